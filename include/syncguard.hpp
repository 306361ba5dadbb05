// syncguard for C++17: blocking distributed locks with fencing tokens, on Redis, Postgres or SQLite. Header only, over the C API
// of syncguard.h, which it needs at compile time, and libsyncguard at link time.
//
//   syncguard::client client("redis://127.0.0.1/");
//   syncguard::guard guard = client.lock("invoice:42");
//   write_with(guard.fence());                                  // released when guard goes out of scope
//
//   if (auto guard = client.try_lock("nightly")) { ... }        // empty: another holder has it
//
//   syncguard::mutex nightly(client, "nightly");                // for std::unique_lock, std::scoped_lock
//   std::unique_lock lock(nightly, std::chrono::seconds(10));
//
// Trouble, bad arguments included, is thrown as syncguard::error, of which syncguard::acquisition_timeout,
// syncguard::network_timeout and syncguard::lost are kinds; contention and absence are answers. Everything may be used from any thread, also by
// several at once, except that one object must not be assigned to or destroyed while another thread uses it. After fork, see
// syncguard.h.
#ifndef SYNCGUARD_HPP
#define SYNCGUARD_HPP

#if __cplusplus < 201703L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 201703L)
#error "syncguard.hpp needs C++17 or later: compile with -std=c++17"
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "syncguard.h"

namespace syncguard {

using status = ::syncguard_status;
using milliseconds = std::chrono::milliseconds;

/// As a duration: no limit.
inline constexpr milliseconds forever{SYNCGUARD_FOREVER};

/// The holder of a key, as far as a contended attempt learnt it without another trip. Nothing in it is secret.
struct holder {
  /// The hash of the holder's lock id; empty if it is not known.
  std::string lock_id_hash;
  /// The holder's fence, 15 digits; empty if it is not known.
  std::string fence;
  /// The same as a number; nothing if it is not known.
  std::optional<std::uint64_t> fence_number;
  /// How long its lease still ran at that moment; nothing if it is not known.
  std::optional<milliseconds> remaining;
};

namespace detail {
inline holder convert(const ::syncguard_holder& raw) {
  holder known{raw.lock_id_hash, raw.fence, std::nullopt, std::nullopt};
  if (raw.fence[0] != '\0') {
    known.fence_number = raw.fence_number;
  }
  if (raw.remaining_ms >= 0) {
    known.remaining = milliseconds(raw.remaining_ms);
  }
  return known;
}
}  // namespace detail

/// What went wrong. `what()` is the message; it holds no password, key or lock id.
class error : public std::runtime_error {
 public:
  /// Copies what the C library says; `detail` may be NULL and stays the caller's.
  error(status code, const ::syncguard_error* detail)
      : std::runtime_error(detail != nullptr ? ::syncguard_error_message(detail) : ::syncguard_status_str(code)),
        code_(code),
        attempts_(::syncguard_error_attempts(detail)),
        may_have_applied_(::syncguard_error_may_have_applied(detail)) {
    if (const char* hash = ::syncguard_error_key_hash(detail)) {
      key_hash_ = hash;
    }
    const std::int64_t waited = ::syncguard_error_waited_ms(detail);
    if (waited >= 0) {
      waited_ = milliseconds(waited);
    }
    ::syncguard_holder known;
    if (::syncguard_error_holder(detail, &known)) {
      holder_ = syncguard::detail::convert(known);
    }
    if (const char* text = ::syncguard_error_holder_text(detail)) {
      holder_text_ = text;
    }
  }
  /// An error with a text of your own.
  error(status code, const std::string& message)
      : std::runtime_error(message), code_(code), attempts_(0), may_have_applied_(false) {}

  /// What to branch on; always below zero.
  status code() const noexcept { return code_; }
  /// The hash of the key concerned; empty where no key is involved.
  const std::string& key_hash() const noexcept { return key_hash_; }
  /// How many attempts a lock made before it gave up; 0 where that does not apply.
  std::uint32_t attempts() const noexcept { return attempts_; }
  /// Whether the operation may have taken effect although it failed. After `acquire` the lock may be there until its ttl has
  /// passed; `lock`, `try_lock` and `lock_once` take back what they may have left; repeat a release or an extend.
  bool may_have_applied() const noexcept { return may_have_applied_; }
  /// How long a lock waited before it gave up; nothing where that does not apply.
  std::optional<milliseconds> waited() const noexcept { return waited_; }
  /// The holder of the key at the last attempt of a wait, where the store told it.
  const std::optional<syncguard::holder>& holder() const noexcept { return holder_; }
  /// What that holder says of itself; empty where that is not known. Raw data for people, never trusted.
  const std::string& holder_text() const noexcept { return holder_text_; }

 private:
  status code_;
  std::uint32_t attempts_;
  bool may_have_applied_;
  std::string key_hash_;
  std::optional<milliseconds> waited_;
  std::optional<syncguard::holder> holder_;
  std::string holder_text_;
};

/// A time limit ran out: one of the two below.
class timeout : public error {
 public:
  using error::error;
};

/// Another holder had the lock to the end of the wait.
class acquisition_timeout : public timeout {
 public:
  using timeout::timeout;
};

/// The store did not answer in time.
class network_timeout : public timeout {
 public:
  using timeout::timeout;
};

/// Why a lock was lost. A later version may have more reasons.
enum class loss_reason : std::int32_t {
  /// The lease ran out before a renewal was confirmed.
  unconfirmed = SYNCGUARD_LOSS_UNCONFIRMED,
  /// `max_hold` was reached, so the lock was no longer renewed.
  max_hold = SYNCGUARD_LOSS_MAX_HOLD,
  /// There is no heartbeat, and the lease was not extended in time.
  not_renewed = SYNCGUARD_LOSS_NOT_RENEWED,
  /// The store no longer has the lock.
  removed = SYNCGUARD_LOSS_REMOVED,
  /// The heartbeat panicked.
  heartbeat_failed = SYNCGUARD_LOSS_HEARTBEAT_FAILED,
  /// This is a forked child; the lock is its parent's.
  forked = SYNCGUARD_LOSS_FORKED,
  /// A reason that this version has no number for.
  other = SYNCGUARD_LOSS_OTHER
};

/// This process can no longer count on a lock that it held.
class lost : public error {
 public:
  /// As for `error`.
  lost(status code, const ::syncguard_error* detail) : error(code, detail), reason_(loss_reason::other) {
    const ::syncguard_loss_reason why = ::syncguard_error_loss_reason(detail);
    if (why != SYNCGUARD_LOSS_NONE) {
      reason_ = static_cast<loss_reason>(why);
    }
  }

  /// Why the lock was lost.
  loss_reason reason() const noexcept { return reason_; }

 private:
  loss_reason reason_;
};

/// Which part of the library tried a release that has no caller to answer to. A later version may have more.
enum class release_source : std::int32_t {
  /// One that this version does not name.
  other = 0,
  /// The destructor of a guard.
  drop = 1,
  /// The undoing of a lock whose grant was not answered.
  undo = 2
};

/// A release that failed and that no call could report. Key and lock id are raw; all of it is valid only during the call.
struct release_error {
  const error& why;
  std::string_view key;
  std::string_view lock_id;
  release_source source;
};

/// What an event is about. A later version may have more.
enum class event_type : std::int32_t {
  acquire = SYNCGUARD_EVENT_ACQUIRE,
  release = SYNCGUARD_EVENT_RELEASE,
  extend = SYNCGUARD_EVENT_EXTEND,
  is_locked = SYNCGUARD_EVENT_IS_LOCKED,
  lookup = SYNCGUARD_EVENT_LOOKUP,
  wait = SYNCGUARD_EVENT_WAIT,
  loss = SYNCGUARD_EVENT_LOSS
};

/// Why an operation did not do what was asked, although the store answered it. A later version may have more.
enum class event_reason : std::int32_t {
  /// Another holder has the lock; of a wait: another holder had it to the end.
  locked = SYNCGUARD_EVENT_REASON_LOCKED,
  /// The lock was there, and its time was over.
  expired = SYNCGUARD_EVENT_REASON_EXPIRED,
  /// There was no such lock, or it has another owner.
  not_found = SYNCGUARD_EVENT_REASON_NOT_FOUND
};

/// One operation, one wait or one loss and how it went. The texts are valid only during the call: copy what you keep.
struct event {
  event_type type;
  /// Whether it did what was asked.
  bool ok;
  /// Why not, where the store answered.
  std::optional<event_reason> reason;
  /// The status of the error that it ended with.
  std::optional<status> code;
  /// Why the guard was lost, of a loss.
  std::optional<loss_reason> loss;
  /// The name of the store.
  std::string_view backend;
  /// The key's hash, where the key is known.
  std::optional<std::string_view> key_hash;
  /// The lock id's hash, where the operation had one.
  std::optional<std::string_view> lock_id_hash;
  /// The raw key, only with `events_include_raw`.
  std::optional<std::string_view> key;
  /// The raw lock id, only with `events_include_raw`. Any program that knows it can release the lock.
  std::optional<std::string_view> lock_id;
  /// What the holder says of itself, only with `events_include_raw`. Never trusted.
  std::optional<std::string_view> holder;
  /// The fence of the grant: of an acquire or a wait that was granted, of an extend, a release or a loss of a guard.
  std::optional<std::uint64_t> fence;
  /// How many attempts the wait made, of a wait.
  std::optional<std::uint32_t> attempts;
  /// How long the wait took, of a wait.
  std::optional<std::chrono::microseconds> waited;
  /// How long a guard had held the lock when its release was sent, or when it was lost.
  std::optional<std::chrono::microseconds> held;
  /// How long it took: the operation, or the wait. Zero for a loss.
  std::chrono::microseconds duration;
};

/// A guard of a client that was lost. Key and lock id are raw; all of it is valid only during the call.
struct lost_lock {
  const lost& why;
  std::string_view key;
  std::string_view lock_id;
  std::uint64_t fence;
  std::chrono::microseconds held;
};

namespace detail {

inline std::optional<std::string_view> maybe_text(const char* text) {
  return text != nullptr ? std::optional<std::string_view>(text) : std::nullopt;
}

inline std::optional<std::chrono::microseconds> maybe_time(std::int64_t us) {
  return us >= 0 ? std::optional(std::chrono::microseconds(us)) : std::nullopt;
}

inline event convert(const ::syncguard_event& raw) {
  event what{};
  what.type = static_cast<event_type>(raw.type);
  what.ok = raw.ok;
  if (raw.reason_number != SYNCGUARD_EVENT_REASON_NONE) {
    what.reason = static_cast<event_reason>(raw.reason_number);
  }
  if (raw.error_status != SYNCGUARD_STATUS_OK) {
    what.code = raw.error_status;
  }
  if (raw.loss_reason != SYNCGUARD_LOSS_NONE) {
    what.loss = static_cast<loss_reason>(raw.loss_reason);
  }
  what.backend = raw.backend;
  what.key_hash = maybe_text(raw.key_hash);
  what.lock_id_hash = maybe_text(raw.lock_id_hash);
  what.key = maybe_text(raw.key);
  what.lock_id = maybe_text(raw.lock_id);
  what.holder = maybe_text(raw.holder);
  if (raw.fence != 0) {
    what.fence = raw.fence;
  }
  if (raw.attempts != 0) {
    what.attempts = raw.attempts;
  }
  what.waited = maybe_time(raw.waited_us);
  what.held = maybe_time(raw.held_us);
  what.duration = std::chrono::microseconds(raw.duration_us);
  return what;
}

inline release_source source(std::string_view text) {
  return text == "drop" ? release_source::drop : text == "undo" ? release_source::undo : release_source::other;
}

/// A time of the store's clock.
inline std::chrono::system_clock::time_point at(std::int64_t unix_ms) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(milliseconds(unix_ms)));
}

/// Throws a status below zero as the type that it has.
[[noreturn]] inline void raise(status code, const ::syncguard_error* detail) {
  switch (code) {
    case SYNCGUARD_STATUS_ACQUISITION_TIMEOUT:
      throw acquisition_timeout(code, detail);
    case SYNCGUARD_STATUS_NETWORK_TIMEOUT:
      throw network_timeout(code, detail);
    case SYNCGUARD_STATUS_LOST:
      throw lost(code, detail);
    default:
      throw error(code, detail);
  }
}

/// Receives the error of one call and throws it.
class outcome {
 public:
  outcome() = default;
  outcome(const outcome&) = delete;
  outcome& operator=(const outcome&) = delete;
  ~outcome() { ::syncguard_error_free(error_); }

  /// Where a call of the C library writes its error.
  ::syncguard_error** out() noexcept { return &error_; }

  /// Call it after the call has returned, not as its argument: the error is read here.
  status check(status code) {
    if (code < 0) {
      raise(code, error_);
    }
    return code;
  }

 private:
  ::syncguard_error* error_ = nullptr;
};

/// Whole milliseconds, rounded up and cut to what the C API takes.
template <class Rep, class Period>
std::int64_t count(const std::chrono::duration<Rep, Period>& time) {
  using wide = std::chrono::duration<long double, std::milli>;
  constexpr std::int64_t most = INT64_MAX;
  if (std::chrono::duration_cast<wide>(time).count() >= static_cast<long double>(most)) {
    return most;
  }
  return static_cast<std::int64_t>(std::chrono::ceil<milliseconds>(time).count());
}

/// Milliseconds of 32 bits, cut to fit.
inline std::uint32_t short_count(milliseconds time, const char* name) {
  if (time.count() < 0) {
    throw error(SYNCGUARD_STATUS_INVALID_ARGUMENT, std::string(name) + " is negative");
  }
  return time.count() > INT64_C(0xffffffff) ? UINT32_C(0xffffffff) : static_cast<std::uint32_t>(time.count());
}

using on_lost = std::function<void(const syncguard::lost&)>;
using on_client_lost = std::function<void(const lost_lock&)>;
using on_release_error = std::function<void(const release_error&)>;
using on_event = std::function<void(const event&)>;
using on_warning = std::function<void(std::string_view)>;
using password = std::function<std::optional<std::string>()>;
using connector = std::function<int(std::string_view, std::uint16_t, milliseconds)>;

/// What the C callbacks are given as their data.
struct hooks {
  detail::on_lost lost;
  detail::on_client_lost client_lost;
  detail::on_release_error failed;
  detail::on_event happened;
  detail::on_warning warned;
  detail::password password;
  detail::connector connect;
};

// An exception must not leave a callback: noexcept ends the program with a message instead of undefined behaviour.
inline void call_lost(void* data, const ::syncguard_error* why) noexcept {
  static_cast<hooks*>(data)->lost(syncguard::lost(::syncguard_error_status(why), why));
}
inline void call_client_lost(void* data, const ::syncguard_lost_lock* what) noexcept {
  const syncguard::lost why(::syncguard_error_status(what->why), what->why);
  static_cast<hooks*>(data)->client_lost(lost_lock{why, what->key, what->lock_id, what->fence, std::chrono::microseconds(what->held_us)});
}
inline void call_failed(void* data, const ::syncguard_error* why, const char* key, const char* lock_id,
                        const char* source) noexcept {
  const error reason(::syncguard_error_status(why), why);
  static_cast<hooks*>(data)->failed(release_error{reason, key, lock_id, detail::source(source)});
}
inline void call_happened(void* data, const ::syncguard_event* what) noexcept { static_cast<hooks*>(data)->happened(convert(*what)); }
inline void call_warned(void* data, const char* message) noexcept { static_cast<hooks*>(data)->warned(message); }
inline int call_password(void* data, char* out, std::size_t size) noexcept {
  std::optional<std::string> answer = static_cast<hooks*>(data)->password();
  if (!answer) {
    return 1;
  }
  // What is too long or holds a NUL is no password; it is not cut.
  const bool fits = answer->size() < size && answer->find('\0') == std::string::npos;
  if (fits) {
    answer->copy(out, size - 1);
  }
  volatile char* at = answer->data();
  for (std::size_t n = 0; n < answer->size(); n++) {
    at[n] = 0;
  }
  return fits ? 0 : 1;
}
inline int call_connector(void* data, const char* host, std::uint16_t port, std::int64_t timeout_ms) noexcept {
  return static_cast<hooks*>(data)->connect(host, port, milliseconds(timeout_ms));
}
inline void drop_hooks(void* data) noexcept { delete static_cast<hooks*>(data); }

}  // namespace detail

/// Ends calls from another thread, for good. Copies are the same token. Options point to it: it must live as long as they are used.
class cancel_token {
 public:
  /// A token that is not triggered.
  cancel_token() : handle_(::syncguard_cancel_new(), ::syncguard_cancel_free) {
    if (!handle_) {
      throw std::bad_alloc();
    }
  }

  /// Also bounds the calls that it is given to: each ends `limit` from now at the latest, with a `syncguard::timeout`.
  explicit cancel_token(std::chrono::milliseconds limit)
      : handle_(::syncguard_cancel_new_timeout(limit.count()), ::syncguard_cancel_free) {
    if (!handle_) {
      throw std::bad_alloc();
    }
  }

  /// Ends the calls that it was given to, now and later. Any thread, any number of times.
  void trigger() const noexcept { ::syncguard_cancel_trigger(handle_.get()); }
  /// Whether it was triggered. Its time limit does not count.
  bool is_triggered() const noexcept { return ::syncguard_cancel_is_triggered(handle_.get()); }
  /// Sleeps until it is triggered (true), or the time or its own limit is over (false): a pause that a shutdown ends.
  bool wait(milliseconds timeout = forever) const noexcept {
    return ::syncguard_cancel_wait(handle_.get(), timeout.count());
  }
  /// The token of the C library, which stays this object's.
  ::syncguard_cancel* native_handle() const noexcept { return handle_.get(); }

 private:
  std::shared_ptr<::syncguard_cancel> handle_;
};

namespace detail {
inline ::syncguard_cancel* native(const cancel_token* token) noexcept {
  return token != nullptr ? token->native_handle() : nullptr;
}
}  // namespace detail

enum class backoff : std::int32_t {
  by_default = SYNCGUARD_BACKOFF_DEFAULT,
  exponential = SYNCGUARD_BACKOFF_EXPONENTIAL,
  fixed = SYNCGUARD_BACKOFF_FIXED
};

enum class jitter : std::int32_t {
  by_default = SYNCGUARD_JITTER_DEFAULT,
  equal = SYNCGUARD_JITTER_EQUAL,
  full = SYNCGUARD_JITTER_FULL,
  none = SYNCGUARD_JITTER_NONE
};

/// How to wait for a lock and how to hold it. Zero, empty and null mean the default; see `syncguard_lock_options`.
struct lock_options {
  milliseconds ttl{0};
  milliseconds acquire_timeout{0};
  milliseconds heartbeat{0};
  milliseconds max_hold{0};
  std::int32_t max_retries = 0;
  milliseconds retry_delay{0};
  syncguard::backoff backoff = syncguard::backoff::by_default;
  syncguard::jitter jitter = syncguard::jitter::by_default;
  const cancel_token* cancel = nullptr;
  /// These run on threads of the library and must not throw.
  std::function<void(const lost&)> on_lost{};
  std::function<void(const release_error&)> on_release_error{};
  /// What is stored beside the lock for people that look at it. Default `host/pid/program`; an empty text stores nothing.
  std::optional<std::string> holder{};
  /// How long the release done by the destructor of the guard may take. Default: the client's.
  milliseconds dispose_timeout{0};
};

/// The SQL and Lua of the gates, for drivers of your own: one of the `SYNCGUARD_GATE_` numbers. Empty for another number.
[[nodiscard]] inline std::string_view gate_text(std::int32_t which) noexcept {
  const char* text = ::syncguard_gate_text(which);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

/// The SQL of a gate in one schema of Postgres: `SYNCGUARD_GATE_POSTGRES_` PASS, SHARE, SETUP, NEWEST or RESET. `fence_table` is for SHARE: the
/// `fence_table_name` of the clients that lock. Throws INVALID_ARGUMENT for another number or a bad name.
[[nodiscard]] inline std::string gate_text(std::int32_t which, const std::string& schema, const std::string& fence_table = {}) {
  const char* table = fence_table.empty() ? nullptr : fence_table.c_str();
  std::size_t length = 0;
  detail::outcome outcome;
  status code =
      ::syncguard_gate_postgres_text(which, schema.data(), schema.size(), table, nullptr, 0, &length, outcome.out());
  outcome.check(code);
  std::string text(length + 1, '\0');
  code = ::syncguard_gate_postgres_text(which, schema.data(), schema.size(), table, &text[0], text.size(), nullptr,
                                        outcome.out());
  outcome.check(code);
  text.pop_back();
  return text;
}

/// Where the fences of a client come from.
enum class fence_source : std::int32_t {
  by_default = SYNCGUARD_FENCES_DEFAULT,
  counter = SYNCGUARD_FENCES_COUNTER,
  clock = SYNCGUARD_FENCES_CLOCK,
};

/// Everything about a client that is not in its URL. Zero, empty and null mean the default; see `syncguard_client_options`.
struct client_options {
  std::optional<std::string> key_prefix{};
  std::optional<std::string> schema{};
  std::optional<std::string> table_name{};
  std::optional<std::string> fence_table_name{};
  std::optional<std::string> tls_ca_file{};
  /// PEM files of the certificate that the client shows, and of its key: both, or none.
  std::optional<std::string> tls_client_cert_file{};
  std::optional<std::string> tls_client_key_file{};
  std::uint32_t pool_size = 0;
  milliseconds connect_timeout{0};
  milliseconds operation_timeout{0};
  milliseconds dispose_timeout{0};
  bool cleanup_in_is_locked = false;
  bool events_include_raw = false;
  /// These run on threads of the library and must not throw.
  std::function<void(const release_error&)> on_release_error{};
  std::function<void(const event&)> on_event{};
  std::function<void(std::string_view)> on_warning{};
  /// For every guard of the client that is lost, beside the guard's own.
  std::function<void(const lost_lock&)> on_lost{};
  /// Where fences come from; `fences=` in the URL wins over it.
  fence_source fences = fence_source::by_default;
  /// Gives the password before every connection, for one that changes; nothing if it has none. It must not throw.
  std::function<std::optional<std::string>()> password{};
  /// Makes every connection: given host, port and the time left it answers a connected stream socket, which is the library's from then
  /// on, or minus an `errno`. It must not throw.
  std::function<int(std::string_view host, std::uint16_t port, milliseconds timeout)> connector{};
};

/// What ended `guard::wait_end`. A later version may have more.
enum class wait_end : std::int32_t {
  /// One that this version does not name.
  other = SYNCGUARD_WAIT_END_OTHER,
  /// The lock is lost: stop working. `guard::loss` says why.
  lost = SYNCGUARD_WAIT_END_LOST,
  /// The guard is unlocked, or its release has begun.
  released = SYNCGUARD_WAIT_END_RELEASED,
  /// The token was triggered. The lock is held.
  cancelled = SYNCGUARD_WAIT_END_CANCELLED,
  /// The time is over, or that of the token. The lock is held.
  time_over = SYNCGUARD_WAIT_END_TIME_OVER
};

/// A lock that is held: renewed in the background, released when destroyed. Move-only; a guard that is empty, because it was
/// default-constructed or moved from, holds nothing and answers as a lost one.
class [[nodiscard]] guard {
 public:
  guard() noexcept = default;
  /// Takes over a guard of the C library.
  explicit guard(::syncguard_guard* handle) noexcept : handle_(handle) {}

  /// Whether this process may count on the lock now: false if empty, unlocked or lost. No I/O.
  explicit operator bool() const noexcept { return ::syncguard_guard_remaining_ms(handle_.get()) > 0; }

  /// The key as it is stored, in NFC; empty for an empty guard. Valid as long as the guard.
  std::string_view key() const noexcept { return view(::syncguard_guard_key(handle_.get())); }
  /// The proof of ownership: keep it out of logs. Empty for an empty guard. Valid as long as the guard.
  std::string_view lock_id() const noexcept { return view(::syncguard_guard_lock_id(handle_.get())); }
  /// 15 digits that order as text: larger than that of every earlier grant of this key. Check it where it matters.
  std::string_view fence() const noexcept { return view(::syncguard_guard_fence(handle_.get())); }
  /// The same as a number that fits a BIGINT; 0, which is no fence, if empty.
  std::uint64_t fence_number() const noexcept { return ::syncguard_guard_fence_number(handle_.get()); }
  /// Unix milliseconds of the store's clock. For display; decide by `remaining()`.
  std::int64_t expires_at_ms() const noexcept { return ::syncguard_guard_expires_at_ms(handle_.get()); }
  /// The same as a time.
  std::chrono::system_clock::time_point expires_at() const noexcept { return detail::at(expires_at_ms()); }
  /// How long the call that took the lock went on until the store granted it.
  milliseconds waited() const noexcept { return milliseconds(::syncguard_guard_waited_ms(handle_.get())); }
  /// How much longer this process may count on the lock; zero once lost or unlocked.
  milliseconds remaining() const noexcept { return milliseconds(::syncguard_guard_remaining_ms(handle_.get())); }
  /// Whether the lock can no longer be counted on. True for an empty guard. No I/O.
  bool is_lost() const noexcept { return ::syncguard_guard_is_lost(handle_.get()); }
  /// Why it was lost; nothing if it was not, or if the guard is empty. No I/O.
  std::optional<loss_reason> loss() const noexcept {
    const ::syncguard_loss_reason why = ::syncguard_guard_loss_reason(handle_.get());
    return why == SYNCGUARD_LOSS_NONE ? std::nullopt : std::optional(static_cast<loss_reason>(why));
  }
  /// Readable once lost; belongs to the guard. -1 where there is none.
  int lost_fd() const noexcept { return ::syncguard_guard_lost_fd(handle_.get()); }
  /// True: lost. False: unlocked, or the time is up.
  bool wait_lost(milliseconds timeout = forever) const noexcept {
    return ::syncguard_guard_wait_lost(handle_.get(), timeout.count());
  }

  /// Waits until the lock is lost or unlocked, the token is triggered, or the time is over. `lost` at once for an empty guard.
  syncguard::wait_end wait_end(milliseconds timeout = forever, const cancel_token* cancel = nullptr) const noexcept {
    return static_cast<syncguard::wait_end>(
        ::syncguard_guard_wait_end(handle_.get(), timeout.count(), detail::native(cancel)));
  }

  /// Sets the lease to `ttl` from now. False: it was lost or unlocked.
  template <class Rep, class Period>
  [[nodiscard]] bool extend(const std::chrono::duration<Rep, Period>& ttl, const cancel_token* cancel = nullptr) {
    if (!handle_) {
      return false;
    }
    detail::outcome outcome;
    const status code =
        ::syncguard_guard_extend(handle_.get(), detail::count(ttl), detail::native(cancel), outcome.out());
    return outcome.check(code) == SYNCGUARD_STATUS_OK;
  }

  /// Releases the lock now and reports: whether this call removed it. Throws trouble; the destructor then tries again.
  bool unlock(const cancel_token* cancel = nullptr) {
    if (!handle_) {
      return false;
    }
    detail::outcome outcome;
    const status code = ::syncguard_guard_release(handle_.get(), detail::native(cancel), outcome.out());
    return outcome.check(code) == SYNCGUARD_STATUS_OK;
  }

  /// The guard of the C library, which stays this object's.
  ::syncguard_guard* native_handle() const noexcept { return handle_.get(); }

 private:
  struct free {
    void operator()(::syncguard_guard* handle) const noexcept { ::syncguard_guard_free(handle); }
  };

  static std::string_view view(const char* text) noexcept { return text != nullptr ? text : std::string_view(); }

  std::unique_ptr<::syncguard_guard, free> handle_;
};

namespace detail {
inline std::uint64_t fence_number(const std::string& fence) {
  std::uint64_t number = 0;
  outcome outcome;
  const status code = ::syncguard_parse_fence(fence.data(), fence.size(), &number, outcome.out());
  outcome.check(code);
  return number;
}
}  // namespace detail

/// What an acquire was granted.
struct acquired {
  std::string lock_id;
  std::string fence;
  std::int64_t expires_at_ms;

  /// The fence as a number that fits a BIGINT.
  std::uint64_t fence_number() const { return detail::fence_number(fence); }
  /// When the lease ends, on the store's clock.
  std::chrono::system_clock::time_point expires_at() const noexcept { return detail::at(expires_at_ms); }
};

/// A live lock without its secrets.
struct lock_info {
  std::string key_hash;
  std::string lock_id_hash;
  std::string fence;
  std::int64_t expires_at_ms;
  std::int64_t acquired_at_ms;

  /// The fence as a number that fits a BIGINT.
  std::uint64_t fence_number() const { return detail::fence_number(fence); }
  /// When the lease ends, on the store's clock.
  std::chrono::system_clock::time_point expires_at() const noexcept { return detail::at(expires_at_ms); }
  /// When it was granted, on the store's clock.
  std::chrono::system_clock::time_point acquired_at() const noexcept { return detail::at(acquired_at_ms); }
};

/// A live lock with its raw key and lock id: keep them out of logs.
struct lock_info_raw {
  lock_info info;
  std::string key;
  std::string lock_id;
  /// What the holder says of itself; nothing if it says nothing. Never trusted.
  std::optional<std::string> holder{};
};

/// Which locks to list, and how many stored entries one call may examine.
struct list_options {
  /// What keys must begin with.
  std::string prefix{};
  /// About how many; 0 for 500.
  std::uint32_t examine = 0;
  /// `page::next` of the page before.
  std::optional<std::string> after{};
};

/// A page of live locks: `lock_info` or `lock_info_raw`.
template <class Info>
struct page {
  std::vector<Info> locks;
  /// Where the next page begins, for `list_options::after`; nothing if this is the last one. It may hold a raw key.
  std::optional<std::string> next;
};

/// How serious a finding is. A later version may have more.
enum class check_level : std::int32_t {
  ok = SYNCGUARD_CHECK_OK,
  /// Locks work; something about them is not safe, or slow.
  warning = SYNCGUARD_CHECK_WARNING,
  /// Locks do not work.
  error = SYNCGUARD_CHECK_ERROR
};

/// What a finding is about. A later version may have more.
enum class check_subject : std::int32_t {
  /// One that this version does not name.
  other = 0,
  reachable = SYNCGUARD_CHECK_REACHABLE,
  allowed = SYNCGUARD_CHECK_ALLOWED,
  set_up = SYNCGUARD_CHECK_SET_UP,
  settings = SYNCGUARD_CHECK_SETTINGS,
  clock = SYNCGUARD_CHECK_CLOCK,
  latency = SYNCGUARD_CHECK_LATENCY,
  version = SYNCGUARD_CHECK_VERSION,
  durable = SYNCGUARD_CHECK_DURABLE,
  evicting = SYNCGUARD_CHECK_EVICTING
};

/// One line of what a check found. No key, id or password is in it.
struct finding {
  check_subject subject;
  check_level level;
  std::string text;
  /// What to do about it.
  std::optional<std::string> advice;
};

/// What `client::report` found.
struct store_report {
  /// The most serious level of all findings.
  check_level level;
  /// What `client::check` would throw; OK if locks work.
  status code;
  std::vector<finding> findings;
};

/// What became of the warnings of a check.
struct check_report {
  /// How many there were.
  std::uint32_t warnings;
  /// How many of them `on_warning`, or stderr, had not taken when the operation timeout was over.
  std::uint32_t undelivered;
};

/// Whose clock decides when a lease ends. A later version may have more.
enum class time_authority : std::int32_t {
  unknown = SYNCGUARD_TIME_UNKNOWN,
  /// The store's own.
  server = SYNCGUARD_TIME_SERVER,
  /// That of the client which looks: the clocks of all clients must agree to within a second.
  client = SYNCGUARD_TIME_CLIENT
};

/// What a store is, and what it can promise.
struct capabilities {
  /// "redis", "postgres" or "sqlite".
  std::string backend;
  /// Whether grants carry fencing tokens.
  bool supports_fencing;
  syncguard::time_authority time_authority;
  /// Where the fences that this client takes come from.
  syncguard::fence_source fence_source;
};

/// A store of locks, opened. Copies share it; guards keep what they need of it.
class client {
 public:
  /// Parses and checks; no I/O.
  explicit client(std::string_view url, client_options options = {}) {
    ::syncguard_client_options raw = SYNCGUARD_CLIENT_OPTIONS_INIT;
    raw.key_prefix = text(options.key_prefix);
    raw.schema = text(options.schema);
    raw.table_name = text(options.table_name);
    raw.fence_table_name = text(options.fence_table_name);
    raw.tls_ca_file = text(options.tls_ca_file);
    raw.tls_client_cert_file = text(options.tls_client_cert_file);
    raw.tls_client_key_file = text(options.tls_client_key_file);
    raw.pool_size = options.pool_size;
    raw.connect_timeout_ms = detail::short_count(options.connect_timeout, "connect_timeout");
    raw.operation_timeout_ms = detail::short_count(options.operation_timeout, "operation_timeout");
    raw.dispose_timeout_ms = detail::short_count(options.dispose_timeout, "dispose_timeout");
    raw.cleanup_in_is_locked = options.cleanup_in_is_locked ? 1 : 0;
    raw.events_include_raw = options.events_include_raw ? 1 : 0;
    raw.fences = static_cast<std::int32_t>(options.fences);
    raw.on_release_error = options.on_release_error ? detail::call_failed : nullptr;
    raw.on_event = options.on_event ? detail::call_happened : nullptr;
    raw.on_warning = options.on_warning ? detail::call_warned : nullptr;
    raw.on_lost = options.on_lost ? detail::call_client_lost : nullptr;
    raw.password = options.password ? detail::call_password : nullptr;
    raw.connector = options.connector ? detail::call_connector : nullptr;
    auto hooks = std::make_unique<detail::hooks>();
    hooks->failed = std::move(options.on_release_error);
    hooks->happened = std::move(options.on_event);
    hooks->warned = std::move(options.on_warning);
    hooks->client_lost = std::move(options.on_lost);
    hooks->password = std::move(options.password);
    hooks->connect = std::move(options.connector);
    raw.user_data_free = detail::drop_hooks;
    raw.user_data = hooks.release();  // the library's from here on, whatever the status
    ::syncguard_client* handle = nullptr;
    detail::outcome outcome;
    const status code = ::syncguard_client_open(url.data(), url.size(), &raw, &handle, outcome.out());
    outcome.check(code);
    handle_ = std::shared_ptr<::syncguard_client>(handle, ::syncguard_client_free);
  }

  /// Stops renewing this client's guards, for good, without releasing them. For a program that ends while work under a lock runs.
  void stop_renewing() const noexcept { ::syncguard_client_stop_renewing(handle_.get()); }

  /// How many events `on_event` was not told of.
  std::uint64_t events_dropped() const noexcept { return ::syncguard_client_events_dropped(handle_.get()); }

  /// "redis", "postgres" or "sqlite".
  std::string_view backend() const noexcept { return ::syncguard_client_backend(handle_.get()); }

  /// What the store is, and what it can promise. No I/O.
  syncguard::capabilities capabilities() const {
    return {std::string(backend()), ::syncguard_client_supports_fencing(handle_.get()),
            static_cast<time_authority>(::syncguard_client_time_authority(handle_.get())),
            static_cast<fence_source>(::syncguard_client_fence_source(handle_.get()))};
  }

  /// Creates what the store needs, if it is not there. Throws `error`.
  void setup_schema(const cancel_token* cancel = nullptr) const {
    detail::outcome outcome;
    const status code = ::syncguard_client_setup_schema(handle_.get(), detail::native(cancel), outcome.out());
    outcome.check(code);
  }

  /// Throws what would keep locks from working. What is not safe, but works, has gone to `on_warning`, or to stderr,
  /// when it returns; a hook that hangs delays it by the operation timeout at the most.
  check_report check(const cancel_token* cancel = nullptr) const {
    check_report report{};
    detail::outcome outcome;
    const status code = ::syncguard_client_check_report(handle_.get(), detail::native(cancel), &report.warnings,
                                                        &report.undelivered, outcome.out());
    outcome.check(code);
    return report;
  }

  /// Checks the store, tries ten cycles on a key of its own, and answers line by line what it found. Trouble of the store is a
  /// finding. Warnings go to `on_warning` too.
  store_report report() const {
    ::syncguard_report* handle = nullptr;
    detail::outcome outcome;
    const status code = ::syncguard_client_report(handle_.get(), &handle, outcome.out());
    outcome.check(code);
    const std::unique_ptr<::syncguard_report, void (*)(::syncguard_report*)> raw(handle, ::syncguard_report_free);
    store_report report{static_cast<check_level>(::syncguard_report_level(handle)), ::syncguard_report_status(handle), {}};
    for (std::size_t i = 0; i < ::syncguard_report_count(handle); i++) {
      ::syncguard_finding found;
      detail::outcome each;
      const status one = ::syncguard_report_finding(handle, i, &found, each.out());
      each.check(one);
      const auto advice = detail::maybe_text(found.advice);
      report.findings.push_back({static_cast<check_subject>(found.subject), static_cast<check_level>(found.level), found.text,
                                 advice ? std::optional<std::string>(*advice) : std::nullopt});
    }
    return report;
  }

  /// A page of live locks, with hashes in place of names. Do not decide by it before a write. Throws `error`.
  [[nodiscard]] page<lock_info> list(const list_options& options = {}, const cancel_token* cancel = nullptr) const {
    return pages<lock_info>(::syncguard_page_info, options, cancel);
  }

  /// As `list`, with raw keys, lock ids and texts of holders: keep them out of logs.
  [[nodiscard]] page<lock_info_raw> list_raw(const list_options& options = {}, const cancel_token* cancel = nullptr) const {
    return pages<lock_info_raw>(::syncguard_page_info_raw, options, cancel);
  }

  /// Whether callers of this client wait for the lock of a key now. The holder may then end its work sooner. No I/O.
  [[nodiscard]] bool is_waited_for(std::string_view key) const {
    bool out = false;
    detail::outcome outcome;
    const status code = ::syncguard_client_is_waited_for(handle_.get(), key.data(), key.size(), &out, outcome.out());
    outcome.check(code);
    return out;
  }

  /// Removes up to `limit` locks that expired more than two seconds ago, and answers how many. Throws `error`.
  std::uint64_t purge_expired(std::uint32_t limit, const cancel_token* cancel = nullptr) const {
    std::uint64_t purged = 0;
    detail::outcome outcome;
    const status code =
        ::syncguard_client_purge_expired(handle_.get(), limit, detail::native(cancel), &purged, outcome.out());
    outcome.check(code);
    return purged;
  }

  /// Creates the gate in this store, for data that is kept there too. May be repeated.
  void setup_fence_gate(const cancel_token* cancel = nullptr) const {
    detail::outcome outcome;
    const status code = ::syncguard_client_setup_fence_gate(handle_.get(), detail::native(cancel), outcome.out());
    outcome.check(code);
  }

  /// Redis: stores a value under a name if the fence passes the gate of that name. False: a newer holder has written, and nothing was
  /// changed.
  [[nodiscard]] bool fenced_set(std::string_view name, std::string_view value, std::uint64_t fence,
                                const cancel_token* cancel = nullptr) const {
    detail::outcome outcome;
    const status code = ::syncguard_fenced_set(handle_.get(), name.data(), name.size(), value.data(), value.size(), fence,
                                               detail::native(cancel), outcome.out());
    return outcome.check(code) == SYNCGUARD_STATUS_OK;
  }

  /// The newest fence that has passed the gate of a resource; empty if none has.
  [[nodiscard]] std::optional<std::uint64_t> newest_fence(std::string_view resource,
                                                          const cancel_token* cancel = nullptr) const {
    std::uint64_t fence = 0;
    detail::outcome outcome;
    const status code = ::syncguard_gate_newest(handle_.get(), resource.data(), resource.size(), detail::native(cancel),
                                                &fence, outcome.out());
    return outcome.check(code) == SYNCGUARD_STATUS_OK ? std::optional<std::uint64_t>(fence) : std::nullopt;
  }

  /// Forgets the newest fence of a resource if it is `seen`. False: it is another one.
  bool reset_fence_gate(std::string_view resource, std::uint64_t seen, const cancel_token* cancel = nullptr) const {
    detail::outcome outcome;
    const status code = ::syncguard_gate_reset(handle_.get(), resource.data(), resource.size(), seen,
                                               detail::native(cancel), outcome.out());
    return outcome.check(code) == SYNCGUARD_STATUS_OK;
  }

  /// Waits for the lock as the options say, by default up to 5 s. Throws `acquisition_timeout` if another holder had it to the end.
  guard lock(std::string_view key, const lock_options& options = {}) const {
    ::syncguard_guard* handle = nullptr;
    detail::outcome outcome;
    const ::syncguard_lock_options raw = native(options);
    const status code = ::syncguard_lock(handle_.get(), key.data(), key.size(), &raw, &handle, outcome.out());
    outcome.check(code);
    return guard(handle);
  }

  /// One attempt; empty if another holder has it.
  [[nodiscard]] std::optional<guard> try_lock(std::string_view key, const lock_options& options = {}) const {
    ::syncguard_guard* handle = nullptr;
    detail::outcome outcome;
    const ::syncguard_lock_options raw = native(options);
    const status code = ::syncguard_try_lock(handle_.get(), key.data(), key.size(), &raw, &handle, outcome.out());
    if (outcome.check(code) != SYNCGUARD_STATUS_OK) {
      return std::nullopt;
    }
    return guard(handle);
  }

  /// One attempt. Throws `acquisition_timeout` if another holder has it, with what is known of that holder.
  guard lock_once(std::string_view key, const lock_options& options = {}) const {
    ::syncguard_guard* handle = nullptr;
    detail::outcome outcome;
    const ::syncguard_lock_options raw = native(options);
    const status code = ::syncguard_lock_once(handle_.get(), key.data(), key.size(), &raw, &handle, outcome.out());
    outcome.check(code);
    return guard(handle);
  }

  // The five verbs: one attempt and one round trip each, nothing is renewed or undone.

  /// Empty if another holder has it. After trouble the lock may be there until its ttl has passed; `lock` and `try_lock` take
  /// back what they may have left.
  template <class Rep, class Period>
  [[nodiscard]] std::optional<acquired> acquire(std::string_view key, const std::chrono::duration<Rep, Period>& ttl,
                                                const cancel_token* cancel = nullptr) const {
    ::syncguard_acquired out;
    detail::outcome outcome;
    const status code = ::syncguard_acquire(handle_.get(), key.data(), key.size(), detail::count(ttl),
                                            detail::native(cancel), &out, outcome.out());
    if (outcome.check(code) != SYNCGUARD_STATUS_OK) {
      return std::nullopt;
    }
    return acquired{out.lock_id, out.fence, out.expires_at_ms};
  }

  /// The same; `found` gets what is known of the holder if another one has it, and nothing else.
  template <class Rep, class Period>
  [[nodiscard]] std::optional<acquired> acquire(std::string_view key, const std::chrono::duration<Rep, Period>& ttl,
                                                holder& found, const cancel_token* cancel = nullptr) const {
    ::syncguard_acquired out;
    ::syncguard_holder raw;
    detail::outcome outcome;
    const status code = ::syncguard_acquire_or_holder(handle_.get(), key.data(), key.size(), detail::count(ttl),
                                                      detail::native(cancel), &out, &raw, outcome.out());
    if (outcome.check(code) != SYNCGUARD_STATUS_OK) {
      found = detail::convert(raw);
      return std::nullopt;
    }
    found = holder{};
    return acquired{out.lock_id, out.fence, out.expires_at_ms};
  }

  /// Whether this call removed the lock with this id.
  bool release(std::string_view lock_id, const cancel_token* cancel = nullptr) const {
    detail::outcome outcome;
    const status code =
        ::syncguard_release(handle_.get(), lock_id.data(), lock_id.size(), detail::native(cancel), outcome.out());
    return outcome.check(code) == SYNCGUARD_STATUS_OK;
  }

  /// When the lease now ends, on the store's clock; empty if there is no such live lock.
  template <class Rep, class Period>
  std::optional<std::chrono::system_clock::time_point> extend(std::string_view lock_id, const std::chrono::duration<Rep, Period>& ttl,
                                     const cancel_token* cancel = nullptr) const {
    std::int64_t expires = 0;
    detail::outcome outcome;
    const status code = ::syncguard_extend(handle_.get(), lock_id.data(), lock_id.size(), detail::count(ttl),
                                           detail::native(cancel), &expires, outcome.out());
    if (outcome.check(code) != SYNCGUARD_STATUS_OK) {
      return std::nullopt;
    }
    return detail::at(expires);
  }

  /// Whether the key is held now. Not a guard before a mutation: it may change at any time. Throws `error`.
  bool is_locked(std::string_view key, const cancel_token* cancel = nullptr) const {
    bool out = false;
    detail::outcome outcome;
    const status code =
        ::syncguard_is_locked(handle_.get(), key.data(), key.size(), detail::native(cancel), &out, outcome.out());
    outcome.check(code);
    return out;
  }

  // Diagnostics: do not decide by them before a write.

  /// What is stored for a key, with hashes in place of names; empty if it is not held. Throws `error`.
  std::optional<lock_info> lookup_by_key(std::string_view key, const cancel_token* cancel = nullptr) const {
    return look<lock_info>(::syncguard_lookup_by_key, key, cancel);
  }
  /// What is stored for a grant, with hashes in place of names; empty if it is gone. Throws `error`.
  std::optional<lock_info> lookup_by_id(std::string_view lock_id, const cancel_token* cancel = nullptr) const {
    return look<lock_info>(::syncguard_lookup_by_id, lock_id, cancel);
  }
  /// What the holder of a live lock says of itself, empty if it says nothing; nothing if the lock is not held. Raw data for people.
  std::optional<std::string> holder_text(std::string_view key, const cancel_token* cancel = nullptr) const {
    char text[201];
    detail::outcome outcome;
    const status code = ::syncguard_holder_text_by_key(handle_.get(), key.data(), key.size(), detail::native(cancel), &text, outcome.out());
    if (outcome.check(code) != SYNCGUARD_STATUS_OK) {
      return std::nullopt;
    }
    return std::string(text);
  }

  /// As `lookup_by_key`, with the raw key and lock id: keep them out of logs.
  std::optional<lock_info_raw> lookup_by_key_raw(std::string_view key, const cancel_token* cancel = nullptr) const {
    return look_raw(::syncguard_lookup_by_key_held, key, cancel);
  }
  /// As `lookup_by_id`, with the raw key and lock id: keep them out of logs.
  std::optional<lock_info_raw> lookup_by_id_raw(std::string_view lock_id, const cancel_token* cancel = nullptr) const {
    return look_raw(::syncguard_lookup_by_id_held, lock_id, cancel);
  }
  /// Whether the grant of this lock id is still held. Throws `error`.
  bool owns(std::string_view lock_id, const cancel_token* cancel = nullptr) const {
    bool out = false;
    detail::outcome outcome;
    const status code = ::syncguard_owns_with(handle_.get(), lock_id.data(), lock_id.size(), detail::native(cancel),
                                              &out, outcome.out());
    outcome.check(code);
    return out;
  }

  /// The client of the C library, which stays this object's.
  ::syncguard_client* native_handle() const noexcept { return handle_.get(); }

 private:
  /// In C a NUL ends a text: one in the middle would cut it off.
  static const char* text(const std::optional<std::string>& value) {
    if (value && value->find('\0') != std::string::npos) {
      throw error(SYNCGUARD_STATUS_INVALID_ARGUMENT, "an option holds a NUL");
    }
    return value ? value->c_str() : nullptr;
  }

  static ::syncguard_lock_options native(const lock_options& options) {
    ::syncguard_lock_options raw = SYNCGUARD_LOCK_OPTIONS_INIT;
    raw.ttl_ms = options.ttl.count();
    raw.acquire_timeout_ms = options.acquire_timeout.count();
    raw.heartbeat_ms = options.heartbeat.count();
    raw.max_hold_ms = options.max_hold.count();
    raw.max_retries = options.max_retries;
    raw.retry_delay_ms = detail::short_count(options.retry_delay, "retry_delay");
    raw.backoff = static_cast<std::int32_t>(options.backoff);
    raw.jitter = static_cast<std::int32_t>(options.jitter);
    raw.cancel = detail::native(options.cancel);
    raw.holder = text(options.holder);
    raw.dispose_timeout_ms = detail::short_count(options.dispose_timeout, "dispose_timeout");
    if (options.on_lost || options.on_release_error) {
      auto hooks = std::make_unique<detail::hooks>();
      hooks->lost = options.on_lost;
      hooks->failed = options.on_release_error;
      raw.on_lost = options.on_lost ? detail::call_lost : nullptr;
      raw.on_release_error = options.on_release_error ? detail::call_failed : nullptr;
      raw.user_data_free = detail::drop_hooks;
      raw.user_data = hooks.release();  // the library's as soon as a lock is asked for, whatever the status
    }
    return raw;
  }

  static lock_info convert(const ::syncguard_lock_info& raw) {
    return lock_info{raw.key_hash, raw.lock_id_hash, raw.fence, raw.expires_at_ms, raw.acquired_at_ms};
  }
  static lock_info_raw convert(const ::syncguard_lock_info_raw& raw) {
    return lock_info_raw{convert(raw.info), raw.key, raw.lock_id, std::nullopt};
  }

  static void say(lock_info&, const char*) {}
  static void say(lock_info_raw& info, const char* holder) {
    if (holder != nullptr) {
      info.holder = holder;
    }
  }

  template <class Info, class Raw>
  page<Info> pages(status (*get)(const ::syncguard_page*, std::size_t, Raw*, ::syncguard_error**), const list_options& options,
                   const cancel_token* cancel) const {
    ::syncguard_page* handle = nullptr;
    detail::outcome outcome;
    const status code = ::syncguard_client_list(handle_.get(), options.prefix.data(), options.prefix.size(), options.examine,
                                                text(options.after), detail::native(cancel), &handle, outcome.out());
    outcome.check(code);
    const std::unique_ptr<::syncguard_page, void (*)(::syncguard_page*)> raw(handle, ::syncguard_page_free);
    page<Info> found;
    for (std::size_t i = 0; i < ::syncguard_page_count(handle); i++) {
      Raw one;
      detail::outcome each;
      const status got = get(handle, i, &one, each.out());
      each.check(got);
      found.locks.push_back(convert(one));
      say(found.locks.back(), ::syncguard_page_holder_text(handle, i));
    }
    if (const char* next = ::syncguard_page_next(handle)) {
      found.next = next;
    }
    return found;
  }

  template <class Info, class Raw>
  std::optional<Info> look(status (*find)(::syncguard_client*, const char*, std::size_t, ::syncguard_cancel*, Raw*,
                                          ::syncguard_error**),
                           std::string_view what, const cancel_token* cancel) const {
    Raw raw;
    detail::outcome outcome;
    const status code =
        find(handle_.get(), what.data(), what.size(), detail::native(cancel), &raw, outcome.out());
    if (outcome.check(code) != SYNCGUARD_STATUS_OK) {
      return std::nullopt;
    }
    return convert(raw);
  }

  std::optional<lock_info_raw> look_raw(status (*find)(::syncguard_client*, const char*, std::size_t, ::syncguard_cancel*,
                                                       ::syncguard_lock_info_raw*, char (*)[201], ::syncguard_error**),
                                        std::string_view what, const cancel_token* cancel) const {
    ::syncguard_lock_info_raw raw;
    char holder[201];
    detail::outcome outcome;
    const status code = find(handle_.get(), what.data(), what.size(), detail::native(cancel), &raw, &holder, outcome.out());
    if (outcome.check(code) != SYNCGUARD_STATUS_OK) {
      return std::nullopt;
    }
    lock_info_raw found = convert(raw);
    if (holder[0] != '\0') {
      found.holder = holder;
    }
    return found;
  }

  std::shared_ptr<::syncguard_client> handle_;
};

/// One key as a mutex of the standard library's kind: meets TimedLockable, so `std::unique_lock` and `std::scoped_lock` work.
/// Not recursive. Threads of this program that share the object wait for each other first, uncancellable, then for the store.
/// The lease may be lost while it is locked: look at `fence()`, `is_lost()`, `loss()` or set `on_lost`.
class mutex {
 public:
  /// `lock()` waits without a limit unless the options set an acquire timeout.
  mutex(client store, std::string key, lock_options options = {})
      : store_(std::move(store)), key_(std::move(key)), options_(std::move(options)) {}
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  /// Throws trouble, and `acquisition_timeout` or ABORTED where the options allow for them; the mutex is then not locked.
  void lock() { lock_within(options_.acquire_timeout == milliseconds(0) ? forever : options_.acquire_timeout); }

  /// One attempt.
  [[nodiscard]] bool try_lock() {
    std::unique_lock gate(gate_, std::try_to_lock);
    return gate.owns_lock() && keep(gate, store_.try_lock(key_, options_));
  }

  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& time) {
    // Far more than a steady clock can count to: no limit.
    if (detail::count(time) > std::chrono::hours(24 * 365 * 100) / milliseconds(1)) {
      lock_within(forever);
      return true;
    }
    return try_lock_until(std::chrono::steady_clock::now() +
                          std::chrono::ceil<std::chrono::steady_clock::duration>(time));
  }

  template <class Clock, class Duration>
  [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration>& end) {
    std::unique_lock gate(gate_, end);
    if (!gate.owns_lock()) {
      return false;
    }
    for (;;) {
      const auto left = end - Clock::now();
      if (left <= left.zero()) {
        return keep(gate, store_.try_lock(key_, options_));
      }
      lock_options options = options_;
      options.acquire_timeout = milliseconds(detail::count(left));
      options.max_retries = -1;
      try {
        return keep(gate, store_.lock(key_, options));
      } catch (const acquisition_timeout&) {
        // The clock may have been set back meanwhile, if it is one that can be.
        if (Clock::now() >= end) {
          return false;
        }
      }
    }
  }

  /// Releases the lock. Trouble goes to `on_release_error`; the lock then ends with its ttl.
  void unlock() noexcept {
    held_.reset();
    gate_.unlock();
  }

  /// The fence of the lock that the calling thread holds.
  std::string_view fence() const noexcept { return held_ ? held_->fence() : std::string_view(); }
  /// The same as a number; 0, which is no fence, if it holds none.
  std::uint64_t fence_number() const noexcept { return held_ ? held_->fence_number() : 0; }
  /// Whether the lock that the calling thread holds is lost; true if it holds none.
  bool is_lost() const noexcept { return !held_ || held_->is_lost(); }
  /// Why the lock that the calling thread holds was lost; nothing if it was not, or if it holds none.
  std::optional<loss_reason> loss() const noexcept { return held_ ? held_->loss() : std::nullopt; }

 private:
  void lock_within(milliseconds time) {
    std::unique_lock gate(gate_);
    lock_options options = options_;
    options.acquire_timeout = time;
    held_ = store_.lock(key_, options);
    gate.release();
  }

  bool keep(std::unique_lock<std::timed_mutex>& gate, std::optional<guard> held) {
    if (!held) {
      return false;
    }
    held_ = std::move(held);
    gate.release();
    return true;
  }

  client store_;
  std::string key_;
  lock_options options_;
  std::timed_mutex gate_;
  std::optional<guard> held_;
};

/// The display hash of a key: 24 hex digits, not for security.
inline std::string hash_key(std::string_view key) {
  char out[25];
  detail::outcome outcome;
  const status code = ::syncguard_hash_key(key.data(), key.size(), out, outcome.out());
  outcome.check(code);
  return out;
}

/// Whether a text is a lock id.
inline bool is_lock_id(std::string_view text) noexcept {
  return ::syncguard_validate_lock_id(text.data(), text.size(), nullptr) == SYNCGUARD_STATUS_OK;
}

}  // namespace syncguard

#endif
