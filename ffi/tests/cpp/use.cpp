// The C++ header, used: PROGRAM URL.
#include <syncguard.hpp>
#include <syncguard.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <type_traits>
#include <vector>

std::string other_unit(syncguard::client& client);

#define CHECK(condition)                                                                                  \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      std::fprintf(stderr, "%s:%d: in %s: not so: %s\n", __FILE__, __LINE__, __func__, #condition);         \
      std::exit(1);                                                                                       \
    }                                                                                                     \
  } while (0)

using namespace std::chrono_literals;

static_assert(std::is_move_constructible_v<syncguard::guard> && !std::is_copy_constructible_v<syncguard::guard>);
static_assert(std::is_nothrow_move_assignable_v<syncguard::guard>);
static_assert(noexcept(std::declval<syncguard::mutex&>().unlock()));
static_assert(!std::is_move_constructible_v<syncguard::mutex>);

template <class F>
syncguard::status thrown(F call) {
  try {
    call();
  } catch (const syncguard::error& e) {
    CHECK(std::string(e.what()).size() > 5);
    return e.code();
  }
  return SYNCGUARD_STATUS_OK;
}

static void guards(syncguard::client& client) {
  auto guard = client.lock("cpp");
  CHECK(guard && guard.key() == "cpp" && guard.fence().size() == 15 && guard.lock_id().size() == 22);
  CHECK(guard.remaining() > 0ms && guard.expires_at_ms() > 0 && !guard.is_lost() && guard.lost_fd() >= 0);
  CHECK(!client.try_lock("cpp"));
  CHECK(guard.extend(1min) && guard.remaining() > 30s);
  auto moved = std::move(guard);
  CHECK(moved && moved.key() == "cpp");
  CHECK(!guard && guard.key().empty() && guard.is_lost());  // NOLINT: a moved-from guard is defined
  CHECK(moved.unlock() && !moved.unlock() && !moved.extend(1s));
  {
    auto again = client.try_lock("cpp");
    CHECK(again && (*again).fence() > moved.fence());
  }
  CHECK(client.try_lock("cpp"));
  CHECK(!client.lock("cpp").wait_lost(1ms));
}

static void errors(syncguard::client& client) {
  CHECK(thrown([&] { (void)client.lock(""); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  CHECK(thrown([&] { (void)client.lock(std::string_view("a\0b", 3)); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  CHECK(thrown([] { syncguard::client bad("nosuch://"); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  // What C cannot say is refused, not cut off.
  syncguard::client_options bad;
  bad.key_prefix = std::string("a\0b", 3);
  CHECK(thrown([&] { syncguard::client cut("redis://h", bad); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  bad.key_prefix.reset();
  bad.connect_timeout = -1ms;
  CHECK(thrown([&] { syncguard::client negative("redis://h", bad); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  auto held = client.lock("held");
  syncguard::lock_options options;
  options.acquire_timeout = 30ms;
  options.retry_delay = 5ms;
  try {
    (void)client.lock("held", options);
    CHECK(false);
  } catch (const syncguard::error& e) {
    CHECK(e.code() == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT && e.attempts() >= 1);
    CHECK(e.key_hash() == syncguard::hash_key("held"));
  }
  syncguard::cancel_token token;
  auto same = token;
  std::thread later([same] { same.trigger(); });
  options.cancel = &token;
  options.acquire_timeout = syncguard::forever;
  CHECK(thrown([&] { (void)client.lock("held", options); }) == SYNCGUARD_STATUS_ABORTED);
  later.join();
}

static void verbs(syncguard::client& client) {
  client.setup_schema();
  client.check();
  CHECK(!client.backend().empty() && client.purge_expired(10) == 0);
  auto grant = client.acquire("verb", 30s);
  CHECK(grant && syncguard::is_lock_id(grant->lock_id) && !syncguard::is_lock_id("x"));
  CHECK(!client.acquire("verb", 30s) && client.is_locked("verb") && client.owns(grant->lock_id));
  auto info = client.lookup_by_key("verb");
  CHECK(info && info->key_hash == syncguard::hash_key("verb") && info->fence == grant->fence);
  CHECK(client.lookup_by_id(grant->lock_id) && !client.lookup_by_key("nobody"));
  CHECK(client.lookup_by_key_raw("verb")->lock_id == grant->lock_id);
  CHECK(client.lookup_by_id_raw(grant->lock_id)->key == "verb");
  CHECK(*client.extend(grant->lock_id, 1min) > grant->expires_at_ms);
  CHECK(client.release(grant->lock_id) && !client.release(grant->lock_id) && !client.extend(grant->lock_id, 1s));
}

static void callbacks(const char* url) {
  std::atomic<int> lost{0}, events{0};
  auto alive = std::make_shared<int>(0);
  {
    syncguard::client_options options;
    options.on_event = [&events, alive](const syncguard::event& event) { events += event.struct_size == sizeof event; };
    options.on_warning = [](std::string_view) {};
    options.operation_timeout = 10s;
    syncguard::client client(url, options);
    syncguard::lock_options held;
    held.ttl = 100ms;
    held.heartbeat = syncguard::forever;
    held.on_lost = [&lost, alive](const syncguard::error& why) { lost += !why.key_hash().empty(); };
    auto guard = client.lock("lost", held);
    CHECK(guard.wait_lost(1min));
    while (lost == 0) {
      std::this_thread::sleep_for(1ms);
    }
  }
  // Every copy of the callbacks is gone soon after the handles.
  for (int i = 0; alive.use_count() > 1 && i < 30000; i++) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(alive.use_count() == 1 && lost >= 1 && events >= 1);
}

static void mutexes(syncguard::client& client) {
  syncguard::mutex a(client, "a"), b(client, "b"), again(client, "a");
  {
    std::scoped_lock both(a, b);
    CHECK(a.fence().size() == 15 && !b.is_lost());
    CHECK(!again.try_lock() && !again.try_lock_for(20ms));
    CHECK(!again.try_lock_until(std::chrono::system_clock::now() + 20ms));
    CHECK(!again.try_lock_until(std::chrono::steady_clock::now() - 1s));
    std::unique_lock other(again, std::defer_lock);
    CHECK(!other.try_lock_for(5ms));
    CHECK(client.is_locked("a") && client.is_locked("b"));
  }
  CHECK(!client.is_locked("a") && !client.is_locked("b") && a.fence().empty() && a.is_lost());
  {
    std::unique_lock lock(again, std::chrono::seconds(20));
    CHECK(lock.owns_lock());
  }
  CHECK(again.try_lock_for(std::chrono::hours::max()));
  again.unlock();
  CHECK(again.try_lock());
  again.unlock();
  // Threads that share the object exclude each other.
  int counter = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&] {
      for (int n = 0; n < 25; n++) {
        std::scoped_lock lock(a);
        counter++;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(counter == 100);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    return 2;
  }
  syncguard::client client(argv[1]);
  guards(client);
  errors(client);
  verbs(client);
  callbacks(argv[1]);
  mutexes(client);
  CHECK(other_unit(client).size() == 15);
  return 0;
}
