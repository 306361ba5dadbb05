// The C++ header, used: PROGRAM URL [DIRECTORY], the directory if the library knows Redis.
#include <syncguard.hpp>
#include <syncguard.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>
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

static void empty_guards(syncguard::client& client) {
  std::map<std::string, syncguard::guard> held;
  CHECK(!held["x"] && held["x"].is_lost() && held["x"].remaining() == 0ms && held["x"].fence_number() == 0);
  CHECK(held["x"].key().empty() && !held["x"].unlock() && !held["x"].extend(1s));
  held["x"] = client.lock("x");
  CHECK(held["x"] && client.is_locked("x"));
  held["x"] = syncguard::guard();
  CHECK(!client.is_locked("x"));
  held["x"] = client.lock("x");
  held.erase("x");
  CHECK(!client.is_locked("x"));
}

static void guards_that_hold_nothing_are_false(syncguard::client& client) {
  auto unlocked = client.lock("unlocked");
  CHECK(unlocked && unlocked.unlock() && !unlocked && unlocked.key() == "unlocked");
  syncguard::lock_options options;
  options.ttl = 100ms;
  options.heartbeat = syncguard::forever;
  auto lost = client.lock("to be lost", options);
  CHECK(lost.wait_lost(1min) && !lost && lost.fence().size() == 15);
}

static_assert(std::is_base_of_v<syncguard::error, syncguard::lost>);

static syncguard::loss_reason lost_with(syncguard::client& client, syncguard::lock_options options) {
  std::atomic<int> told{0};
  std::atomic<syncguard::loss_reason> why{syncguard::loss_reason::other};
  options.on_lost = [&](const syncguard::lost& loss) {
    CHECK(loss.code() == SYNCGUARD_STATUS_LOST && !loss.key_hash().empty());
    why = loss.reason();
    told++;
  };
  auto guard = client.lock("why", options);
  if (options.heartbeat == 20ms) {
    CHECK(client.release(guard.lock_id()));
  }
  CHECK(guard.wait_lost(1min));
  for (int i = 0; told == 0 && i < 60000; i++) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(told == 1 && guard.loss() == why.load());
  guard.unlock();
  CHECK(guard.loss() == why.load());
  return why;
}

static void losses(syncguard::client& client) {
  syncguard::lock_options options;
  options.ttl = 100ms;
  options.heartbeat = syncguard::forever;
  CHECK(lost_with(client, options) == syncguard::loss_reason::not_renewed);
  options.heartbeat = 0ms;
  options.max_hold = 1ms;
  CHECK(lost_with(client, options) == syncguard::loss_reason::max_hold);
  options.ttl = 1min;
  options.heartbeat = 20ms;
  options.max_hold = 0ms;
  CHECK(lost_with(client, options) == syncguard::loss_reason::removed);

  CHECK(!syncguard::guard().loss());
  auto held = client.lock("held");
  CHECK(!held.loss() && held.unlock() && !held.loss());
  syncguard::mutex mutex(client, "held");
  CHECK(!mutex.loss());
  std::scoped_lock lock(mutex);
  CHECK(!mutex.loss());

  // A callback that takes any error is one for losses too.
  options.on_lost = [](const syncguard::error&) {};
  options.on_lost = std::function<void(const syncguard::error&)>([](const syncguard::error&) {});
}

// A loss that is thrown: in a forked child the lock is its parent's.
static void a_loss_is_an_exception(syncguard::client& client) {
  auto guard = client.lock("parent's");
  const pid_t child = fork();
  if (child == 0) {
    alarm(600);
    try {
      (void)guard.extend(1s);
    } catch (const syncguard::lost& e) {
      const bool as_wanted = e.code() == SYNCGUARD_STATUS_LOST && e.reason() == syncguard::loss_reason::forked &&
                             guard.loss() == syncguard::loss_reason::forked;
      _exit(as_wanted ? 0 : 2);
    } catch (...) {
    }
    _exit(3);
  }
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(guard && !guard.loss());
}

static void numeric_fences(syncguard::client& client) {
  auto guard = client.lock("numbers");
  CHECK(guard.fence_number() == std::stoull(std::string(guard.fence())) && guard.fence_number() > 0);
  CHECK(guard.unlock());
  auto grant = client.acquire("numbers", 30s);
  CHECK(grant && grant->fence_number() == guard.fence_number() + 1);
  CHECK(client.lookup_by_key("numbers")->fence_number() == grant->fence_number());
  CHECK(client.release(grant->lock_id));
  syncguard::mutex mutex(client, "numbers");
  CHECK(mutex.fence_number() == 0);
  std::scoped_lock lock(mutex);
  CHECK(mutex.fence_number() == grant->fence_number() + 1);
}

static_assert(std::is_base_of_v<syncguard::timeout, syncguard::acquisition_timeout>);
static_assert(std::is_base_of_v<syncguard::timeout, syncguard::network_timeout>);
static_assert(std::is_base_of_v<syncguard::error, syncguard::timeout>);
static_assert(std::is_nothrow_default_constructible_v<syncguard::guard>);

// A store that never answers: a socket that listens and is not served.
static void a_silent_store(const char* directory) {
  sockaddr_un silent{};
  silent.sun_family = AF_UNIX;
  const std::string path = std::string(directory) + "/silent";
  CHECK(path.size() < sizeof silent.sun_path);
  path.copy(silent.sun_path, path.size());
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(listener >= 0 && bind(listener, reinterpret_cast<sockaddr*>(&silent), sizeof silent) == 0 && listen(listener, 5) == 0);
  syncguard::client_options hasty;
  hasty.operation_timeout = 50ms;
  try {
    (void)syncguard::client("redis+unix://" + path, hasty).is_locked("k");
    CHECK(false);
  } catch (const syncguard::network_timeout& e) {
    CHECK(e.code() == SYNCGUARD_STATUS_NETWORK_TIMEOUT);
  }
  close(listener);
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
  } catch (const syncguard::acquisition_timeout& e) {
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
  const auto checked = client.check();
  CHECK(checked.undelivered == 0);
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
  empty_guards(client);
  guards_that_hold_nothing_are_false(client);
  losses(client);
  a_loss_is_an_exception(client);
  numeric_fences(client);
  errors(client);
  if (argc > 2) {
    a_silent_store(argv[2]);
  }
  verbs(client);
  callbacks(argv[1]);
  mutexes(client);
  CHECK(other_unit(client).size() == 15);
  return 0;
}
