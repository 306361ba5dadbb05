// The C++ header, used: PROGRAM URL [DIRECTORY], the directory if the library knows Redis.
#include <syncguard.hpp>
#include <syncguard.hpp>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/socket.h>
#include <sys/stat.h>
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

static void stops_renewing(const char* url) {
  syncguard::client client(url);
  syncguard::lock_options options;
  options.ttl = 500ms;
  auto guard = client.lock("stops renewing", options);
  client.stop_renewing();
  CHECK(guard.wait_lost(60s) && guard.loss() == syncguard::loss_reason::not_renewed);
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
    // Not even the greeting was answered.
    CHECK(!e.may_have_applied());
  }
  close(listener);
  unlink(path.c_str());
}

// A store that answers the greeting of each connection, and no request.
static void a_store_that_answers_no_request(const char* directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = std::string(directory) + "/greets";
  path.copy(address.sun_path, path.size());
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(listener >= 0 && bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(listener, 5) == 0);
  std::vector<int> connections;
  std::thread server([&] {
    for (int one; (one = accept(listener, nullptr, nullptr)) >= 0;) {
      connections.push_back(one);
      char greeting[512];
      if (recv(one, greeting, sizeof greeting, 0) > 0) {
        // The time, and the name that the connection is given.
        static const std::string answer = "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n+OK\r\n";
        (void)!send(one, answer.data(), answer.size(), MSG_NOSIGNAL);
      }
    }
  });
  syncguard::client_options hasty;
  hasty.operation_timeout = 200ms;
  const syncguard::client client("redis+unix://" + path, hasty);
  // On a busy machine the greeting may take the whole time: then the request was not sent.
  bool sent = false;
  for (int i = 0; !sent && i < 300; i++) {
    try {
      (void)client.acquire("k", 1s);
      CHECK(false);
    } catch (const syncguard::network_timeout& e) {
      sent = e.may_have_applied();
    }
  }
  CHECK(sent);
  shutdown(listener, SHUT_RDWR);
  server.join();
  for (int one : connections) {
    close(one);
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
  CHECK(*client.extend(grant->lock_id, 1min) > grant->expires_at());
  CHECK(client.release(grant->lock_id) && !client.release(grant->lock_id) && !client.extend(grant->lock_id, 1s));
}

static void details(syncguard::client& client) {
  const auto store = client.capabilities();
  CHECK(store.backend == client.backend() && store.supports_fencing);
  CHECK(store.time_authority == syncguard::time_authority::server);
  CHECK(store.fence_source == syncguard::fence_source::counter);

  auto held = client.lock_once("details");
  CHECK(held.waited() >= 0ms && held.waited() < 1min);
  CHECK(held.expires_at().time_since_epoch() == std::chrono::milliseconds(held.expires_at_ms()));
  syncguard::lock_options options;
  options.acquire_timeout = 20ms;
  for (bool once : {false, true}) {
    bool timed_out = false;
    try {
      auto second = once ? client.lock_once("details", options) : client.lock("details", options);
    } catch (const syncguard::acquisition_timeout& e) {
      timed_out = true;
      CHECK(!e.may_have_applied() && e.attempts() >= 1 && (!once || e.attempts() == 1));
      CHECK(e.waited().has_value() && (once || *e.waited() >= 20ms));
      CHECK(e.holder() && e.holder()->fence == held.fence() && e.holder()->fence_number == held.fence_number());
      CHECK(e.holder()->remaining && *e.holder()->remaining > 0ms && *e.holder()->remaining <= 30s);
      CHECK(e.holder()->lock_id_hash == client.lookup_by_key("details")->lock_id_hash);
      // A copy outlives the error of the library.
      const syncguard::acquisition_timeout copy = e;
      CHECK(copy.holder()->fence == held.fence());
    }
    CHECK(timed_out);
  }
  syncguard::holder found;
  CHECK(!client.acquire("details", 30s, found) && found.fence == held.fence() && found.remaining > 0ms);
  const auto grant = client.acquire("details:free", 30s, found);
  CHECK(grant && found.fence.empty() && !found.fence_number && !found.remaining);
  CHECK(grant->expires_at().time_since_epoch() == std::chrono::milliseconds(grant->expires_at_ms));
  const auto info = client.lookup_by_id(grant->lock_id);
  CHECK(info && info->expires_at() - info->acquired_at() == 30s);

  syncguard::cancel_token token;
  CHECK(client.owns(grant->lock_id, &token));
  token.trigger();
  CHECK(thrown([&] { client.owns(grant->lock_id, &token); }) == SYNCGUARD_STATUS_ABORTED);
  const syncguard::cancel_token none_left(0ms), plenty(1h);
  CHECK(client.owns(grant->lock_id, &plenty));
  CHECK(thrown([&] { client.owns(grant->lock_id, &none_left); }) == SYNCGUARD_STATUS_NETWORK_TIMEOUT);
  CHECK(client.release(grant->lock_id));

  try {
    auto bad = client.lock("");
    CHECK(false);
  } catch (const syncguard::error& e) {
    CHECK(!e.may_have_applied() && !e.waited() && !e.holder());
  }
}

static void callbacks(const char* url) {
  std::atomic<int> lost{0}, losses{0}, events{0};
  auto alive = std::make_shared<int>(0);
  {
    syncguard::client_options options;
    options.on_event = [&events, alive](const syncguard::event& event) { events += event.backend == "sqlite"; };
    options.on_warning = [](std::string_view) {};
    options.on_lost = [&losses, alive](const syncguard::lost_lock& what) {
      losses += what.key == "lost" && what.fence > 0 && what.held > 50ms && what.why.reason() == syncguard::loss_reason::not_renewed;
    };
    options.operation_timeout = 10s;
    syncguard::client client(url, options);
    syncguard::lock_options held;
    held.ttl = 100ms;
    held.heartbeat = syncguard::forever;
    held.on_lost = [&lost, alive](const syncguard::error& why) { lost += !why.key_hash().empty(); };
    auto guard = client.lock("lost", held);
    CHECK(guard.wait_lost(1min));
    CHECK(client.events_dropped() == 0);
    while (lost == 0 || losses == 0) {
      std::this_thread::sleep_for(1ms);
    }
  }
  // Every copy of the callbacks is gone soon after the handles.
  for (int i = 0; alive.use_count() > 1 && i < 30000; i++) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(alive.use_count() == 1 && lost >= 1 && events >= 1);
}

// What an event says, with its types.
static void events(const char* url) {
  std::mutex gate;
  std::vector<syncguard::event_type> types;
  int granted = 0, refused = 0, waits = 0, releases = 0;
  auto alive = std::make_shared<int>(0);
  {
    syncguard::client_options options;
    options.events_include_raw = true;
    options.on_event = [&, alive](const syncguard::event& event) {
      const std::scoped_lock lock(gate);
      types.push_back(event.type);
      CHECK(event.key == "events" && event.key_hash == syncguard::hash_key("events") && event.duration >= 0us);
      CHECK(event.waited.has_value() == (event.type == syncguard::event_type::wait) && !event.loss);
      if (event.type == syncguard::event_type::acquire && event.ok) {
        granted += event.fence && *event.fence > 0 && !event.reason && !event.code && !event.holder && !event.held;
      } else if (event.type == syncguard::event_type::acquire) {
        refused += event.reason == syncguard::event_reason::locked && event.holder == "events of C++" && !event.fence;
      } else if (event.type == syncguard::event_type::wait && !event.ok) {
        waits += event.code == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT && *event.attempts > 0 && *event.waited >= 1ms;
      } else if (event.type == syncguard::event_type::release) {
        releases += event.ok && event.held && *event.held > 0us && event.lock_id_hash && event.lock_id;
      }
    };
    syncguard::client client(url, options);
    syncguard::lock_options says;
    says.holder = "events of C++";
    says.dispose_timeout = 10s;
    auto held = client.lock("events", says);
    says.acquire_timeout = 1ms;
    CHECK(thrown([&] { (void)client.lock("events", says); }) == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT);
  }
  // Once the callback is gone, it has been told of all.
  for (int i = 0; alive.use_count() > 1 && i < 60000; i++) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(alive.use_count() == 1);
  CHECK(types.size() >= 5 && types.back() == syncguard::event_type::release);
  CHECK(granted == 1 && refused >= 1 && waits == 1 && releases == 1);
  syncguard::lock_options cut;
  cut.holder = std::string("a\0b", 3);
  CHECK(thrown([&] { (void)syncguard::client(url).lock("events", cut); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
}

// Where a release failed.
static void a_failed_release_says_where(const char* directory) {
  std::atomic<int> told{0};
  syncguard::client_options options;
  options.operation_timeout = options.dispose_timeout = 5s;
  options.on_release_error = [&](const syncguard::release_error& failed) {
    told += failed.source == syncguard::release_source::drop && failed.key == "moved" && failed.why.code() < 0;
  };
  const std::string folder = std::string(directory) + "/moved";
  CHECK(mkdir(folder.c_str(), 0700) == 0);
  {
    syncguard::client client("sqlite:" + folder + "/locks.db", options);
    auto guard = client.lock("moved");
    // The file of the lock is gone, and none can be made in its place.
    for (const char* file : {"/locks.db", "/locks.db-wal", "/locks.db-shm"}) {
      unlink((folder + file).c_str());
    }
    CHECK(rmdir(folder.c_str()) == 0);
  }
  for (int i = 0; told == 0 && i < 60000; i++) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(told == 1);
}

static void ends_of_a_wait(syncguard::client& client) {
  using syncguard::wait_end;
  CHECK(syncguard::guard().wait_end() == wait_end::lost);
  auto guard = client.lock("wait end");
  CHECK(guard.wait_end(1ms) == wait_end::time_over);
  syncguard::cancel_token token;
  CHECK(!token.is_triggered() && !token.wait(1ms));
  std::thread later([&] { token.trigger(); });
  CHECK(guard.wait_end(syncguard::forever, &token) == wait_end::cancelled);
  CHECK(token.is_triggered() && token.wait());
  later.join();
  const syncguard::cancel_token limit(1ms);
  CHECK(!limit.wait() && guard.wait_end(syncguard::forever, &limit) == wait_end::time_over);
  CHECK(guard.unlock() && guard.wait_end() == wait_end::released);
  syncguard::lock_options options;
  options.ttl = 100ms;
  options.heartbeat = syncguard::forever;
  auto lost = client.lock("wait end", options);
  CHECK(lost.wait_end(1min) == wait_end::lost && lost.loss() == syncguard::loss_reason::not_renewed);
}

static void lists_and_reports(syncguard::client& client) {
  syncguard::lock_options says;
  says.holder = "a list of C++";
  std::vector<syncguard::guard> held;
  for (const char* key : {"list:1", "list:2", "list:3"}) {
    held.push_back(client.lock(key, says));
  }
  CHECK(!client.is_waited_for("list:1"));
  CHECK(thrown([&] { (void)client.is_waited_for(""); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  syncguard::list_options options;
  options.prefix = "list:";
  options.examine = 1;
  std::map<std::string, std::string> found;
  do {
    const auto page = client.list_raw(options);
    for (const auto& lock : page.locks) {
      CHECK(lock.holder == "a list of C++" && lock.info.key_hash == syncguard::hash_key(lock.key));
      found[lock.key] = lock.lock_id;
    }
    options.after = page.next;
  } while (options.after);
  CHECK(found.size() == 3 && found["list:2"] == held[1].lock_id());
  CHECK(client.lookup_by_key_raw("list:1")->holder == "a list of C++" && client.lookup_by_id_raw(found["list:1"])->key == "list:1");
  options.after.reset();
  options.examine = 0;
  options.prefix = "list:3";
  const auto page = client.list(options);
  CHECK(page.locks.size() == 1 && page.locks[0].fence == held[2].fence());
  options.after = "not a cursor";
  CHECK(thrown([&] { (void)client.list(options); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  syncguard::cancel_token token;
  token.trigger();
  CHECK(thrown([&] { (void)client.list({}, &token); }) == SYNCGUARD_STATUS_ABORTED);

  const auto report = client.report();
  CHECK(report.code == SYNCGUARD_STATUS_OK && report.level < syncguard::check_level::error && !report.findings.empty());
  CHECK(report.findings[0].subject == syncguard::check_subject::reachable);
  CHECK(report.findings[0].level == syncguard::check_level::ok && !report.findings[0].text.empty());
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
  {
    // Less than a millisecond is no time that the default stands for, which is seconds.
    std::scoped_lock held(a);
    for (int i = 0; i < 10; i++) {
      const auto begun = std::chrono::steady_clock::now();
      CHECK(!again.try_lock_for(std::chrono::microseconds(900)));
      CHECK(std::chrono::steady_clock::now() - begun < 4s);
    }
  }
  {
    // A thread that shares the object waits for its unlock, also when the lock in the store is over.
    syncguard::lock_options options;
    options.ttl = 20ms;
    options.heartbeat = syncguard::forever;
    syncguard::mutex brief(client, "brief", options);
    std::scoped_lock held(brief);
    while (client.is_locked("brief")) {
      std::this_thread::sleep_for(5ms);
    }
    bool taken = true;
    std::thread([&] { taken = brief.try_lock(); }).join();
    CHECK(!taken);
  }
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

/// A store without a gate says what to call; names and fences that are none are refused before it is asked.
static void gates_that_refuse(const std::string& bare) {
  const syncguard::client client(bare);
  for (const bool look : {true, false}) {
    std::string said;
    try {
      (void)(look ? client.newest_fence("use.cpp").has_value() : client.reset_fence_gate("use.cpp", 34));
    } catch (const syncguard::error& e) {
      said = e.what();
      CHECK(e.code() == SYNCGUARD_STATUS_INVALID_ARGUMENT);
    }
    CHECK(said.find("setup_fence_gate()") != std::string::npos);
  }
  const syncguard::client redis("redis://127.0.0.1:1");
  for (const std::string& name : {std::string(), std::string(10000, 'x'), std::string("a\0b", 3), std::string("\xff")}) {
    CHECK(thrown([&] { (void)redis.fenced_set(name, "text", 34); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
    CHECK(thrown([&] { (void)client.newest_fence(name); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
    CHECK(thrown([&] { (void)client.reset_fence_gate(name, 34); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  }
  for (const std::uint64_t fence : {UINT64_C(0), UINT64_C(900000000000001), static_cast<std::uint64_t>(-1)}) {
    CHECK(thrown([&] { (void)redis.fenced_set("use.cpp", "text", fence); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  }
  CHECK(thrown([&] { (void)client.reset_fence_gate("use.cpp", static_cast<std::uint64_t>(-1)); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
}

/// The gate of a store that is not Redis: its set-up, its texts, and what an operator does.
static void gates(const syncguard::client& client, const char* url) {
  client.setup_fence_gate();
  CHECK(!client.newest_fence("use.cpp"));
  CHECK(!client.reset_fence_gate("use.cpp", 34));
  bool refused = false;
  try {
    (void)client.fenced_set("use.cpp", "text", 34);
  } catch (const syncguard::error& e) {
    refused = e.code() == SYNCGUARD_STATUS_INVALID_ARGUMENT;
  }
  CHECK(refused);
  CHECK(syncguard::gate_text(SYNCGUARD_GATE_SQLITE_PASS).find("syncguard_fence_gates") != std::string_view::npos);
  CHECK(syncguard::gate_text(0).empty());
  CHECK(syncguard::gate_text(SYNCGUARD_GATE_POSTGRES_PASS, "app").find("\"app\".\"syncguard_pass\"") != std::string::npos);
  CHECK(syncguard::gate_text(SYNCGUARD_GATE_POSTGRES_SHARE, "app", "other").find("\"app\".\"other\"") != std::string::npos);
  CHECK(thrown([] { (void)syncguard::gate_text(SYNCGUARD_GATE_POSTGRES_PASS, "no name"); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  CHECK(thrown([] { (void)syncguard::gate_text(SYNCGUARD_GATE_SQLITE_PASS, "app"); }) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  syncguard::client_options options;
  options.fences = syncguard::fence_source::clock;
  const syncguard::client by_clock(url, options);
  CHECK(by_clock.lock("use.cpp by clock").fence_number() > UINT64_C(1700000000000));
  CHECK(by_clock.capabilities().fence_source == syncguard::fence_source::clock);
}

/// A password and a connector, of a server that there need not be.
static void functions_of_the_user() {
  std::atomic<int> passwords{0}, connections{0};
  const auto options = [&](bool has) {
    syncguard::client_options wanted;
    wanted.password = [&passwords, has]() -> std::optional<std::string> {
      passwords++;
      return has ? std::optional<std::string>("hunter2") : std::nullopt;
    };
    wanted.connector = [&connections](std::string_view host, std::uint16_t port, syncguard::milliseconds timeout) {
      CHECK(host == "redis.test" && port == 7 && timeout.count() >= 0);
      connections++;
      return -ECONNREFUSED;
    };
    return wanted;
  };
  for (const bool has : {false, true}) {
    const syncguard::client client("redis://app@redis.test:7", options(has));
    std::string said;
    try {
      (void)client.is_locked("k");
    } catch (const syncguard::error& e) {
      said = e.what();
      CHECK(e.code() == SYNCGUARD_STATUS_SERVICE_UNAVAILABLE);
    }
    CHECK(said.find(has ? "connector" : "password provider failed") != std::string::npos);
    CHECK(said.find("hunter2") == std::string::npos);
  }
  CHECK(passwords == 2 && connections == 1);
  syncguard::client_options half;
  half.tls_client_cert_file = "/cert.pem";
  bool refused = false;
  try {
    const syncguard::client client("rediss://redis.test", half);
  } catch (const syncguard::error& e) {
    refused = e.code() == SYNCGUARD_STATUS_INVALID_ARGUMENT;
  }
  CHECK(refused);
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
    a_store_that_answers_no_request(argv[2]);
    functions_of_the_user();
  }
  verbs(client);
  details(client);
  stops_renewing(argv[1]);
  callbacks(argv[1]);
  events(argv[1]);
  ends_of_a_wait(client);
  lists_and_reports(client);
  if (argc > 2) {
    a_failed_release_says_where(argv[2]);
  }
  mutexes(client);
  gates(client, argv[1]);
  gates_that_refuse(std::string(argv[1]) + "-without");
  CHECK(other_unit(client).size() == 15);
  return 0;
}
