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

#include "syncguard.h"

namespace syncguard {

using status = ::syncguard_status;
using event = ::syncguard_event;
using milliseconds = std::chrono::milliseconds;

/// As a duration: no limit.
inline constexpr milliseconds forever{SYNCGUARD_FOREVER};

/// What went wrong. `what()` is the message; it holds no password, key or lock id.
class error : public std::runtime_error {
 public:
  error(status code, const ::syncguard_error* detail)
      : std::runtime_error(detail != nullptr ? ::syncguard_error_message(detail) : ::syncguard_status_str(code)),
        code_(code),
        attempts_(::syncguard_error_attempts(detail)) {
    if (const char* hash = ::syncguard_error_key_hash(detail)) {
      key_hash_ = hash;
    }
  }
  error(status code, const std::string& message) : std::runtime_error(message), code_(code), attempts_(0) {}

  /// What to branch on; always below zero.
  status code() const noexcept { return code_; }
  /// The hash of the key concerned; empty where no key is involved.
  const std::string& key_hash() const noexcept { return key_hash_; }
  /// How many attempts a lock made before it gave up; 0 where that does not apply.
  std::uint32_t attempts() const noexcept { return attempts_; }

 private:
  status code_;
  std::uint32_t attempts_;
  std::string key_hash_;
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
  lost(status code, const ::syncguard_error* detail) : error(code, detail), reason_(loss_reason::other) {
    const ::syncguard_loss_reason why = ::syncguard_error_loss_reason(detail);
    if (why != SYNCGUARD_LOSS_NONE) {
      reason_ = static_cast<loss_reason>(why);
    }
  }

  loss_reason reason() const noexcept { return reason_; }

 private:
  loss_reason reason_;
};

/// A release that failed and that no call could report. Key and lock id are raw; all of it is valid only during the call.
struct release_error {
  const error& why;
  std::string_view key;
  std::string_view lock_id;
  std::string_view source;
};

namespace detail {

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
using on_release_error = std::function<void(const release_error&)>;
using on_event = std::function<void(const event&)>;
using on_warning = std::function<void(std::string_view)>;

/// What the C callbacks are given as their data.
struct hooks {
  detail::on_lost lost;
  detail::on_release_error failed;
  detail::on_event happened;
  detail::on_warning warned;
};

// An exception must not leave a callback: noexcept ends the program with a message instead of undefined behaviour.
inline void call_lost(void* data, const ::syncguard_error* why) noexcept {
  static_cast<hooks*>(data)->lost(syncguard::lost(::syncguard_error_status(why), why));
}
inline void call_failed(void* data, const ::syncguard_error* why, const char* key, const char* lock_id,
                        const char* source) noexcept {
  const error reason(::syncguard_error_status(why), why);
  static_cast<hooks*>(data)->failed(release_error{reason, key, lock_id, source});
}
inline void call_happened(void* data, const ::syncguard_event* what) noexcept { static_cast<hooks*>(data)->happened(*what); }
inline void call_warned(void* data, const char* message) noexcept { static_cast<hooks*>(data)->warned(message); }
inline void drop_hooks(void* data) noexcept { delete static_cast<hooks*>(data); }

}  // namespace detail

/// Ends calls from another thread, for good. Copies are the same token. Options point to it: it must live as long as they are used.
class cancel_token {
 public:
  cancel_token() : handle_(::syncguard_cancel_new(), ::syncguard_cancel_free) {
    if (!handle_) {
      throw std::bad_alloc();
    }
  }

  void trigger() const noexcept { ::syncguard_cancel_trigger(handle_.get()); }
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
};

/// Everything about a client that is not in its URL. Zero, empty and null mean the default; see `syncguard_client_options`.
struct client_options {
  std::optional<std::string> key_prefix{};
  std::optional<std::string> schema{};
  std::optional<std::string> table_name{};
  std::optional<std::string> fence_table_name{};
  std::optional<std::string> tls_ca_file{};
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
};

/// A lock that is held: renewed in the background, released when destroyed. Move-only; a guard that is empty, because it was
/// default-constructed or moved from, holds nothing and answers as a lost one.
class [[nodiscard]] guard {
 public:
  guard() noexcept = default;
  explicit guard(::syncguard_guard* handle) noexcept : handle_(handle) {}

  /// Whether this process may count on the lock now: false if empty, unlocked or lost. No I/O.
  explicit operator bool() const noexcept { return ::syncguard_guard_remaining_ms(handle_.get()) > 0; }

  std::string_view key() const noexcept { return view(::syncguard_guard_key(handle_.get())); }
  std::string_view lock_id() const noexcept { return view(::syncguard_guard_lock_id(handle_.get())); }
  /// 15 digits that order as text: larger than that of every earlier grant of this key. Check it where it matters.
  std::string_view fence() const noexcept { return view(::syncguard_guard_fence(handle_.get())); }
  /// The same as a number that fits a BIGINT; 0, which is no fence, if empty.
  std::uint64_t fence_number() const noexcept { return ::syncguard_guard_fence_number(handle_.get()); }
  /// Unix milliseconds of the store's clock. For display; decide by `remaining()`.
  std::int64_t expires_at_ms() const noexcept { return ::syncguard_guard_expires_at_ms(handle_.get()); }
  /// How much longer this process may count on the lock; zero once lost or unlocked.
  milliseconds remaining() const noexcept { return milliseconds(::syncguard_guard_remaining_ms(handle_.get())); }
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
};

/// A live lock with its raw key and lock id: keep them out of logs.
struct lock_info_raw {
  lock_info info;
  std::string key;
  std::string lock_id;
};

/// What became of the warnings of a check.
struct check_report {
  /// How many there were.
  std::uint32_t warnings;
  /// How many of them `on_warning`, or stderr, had not taken when the operation timeout was over.
  std::uint32_t undelivered;
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
    raw.pool_size = options.pool_size;
    raw.connect_timeout_ms = detail::short_count(options.connect_timeout, "connect_timeout");
    raw.operation_timeout_ms = detail::short_count(options.operation_timeout, "operation_timeout");
    raw.dispose_timeout_ms = detail::short_count(options.dispose_timeout, "dispose_timeout");
    raw.cleanup_in_is_locked = options.cleanup_in_is_locked ? 1 : 0;
    raw.events_include_raw = options.events_include_raw ? 1 : 0;
    raw.on_release_error = options.on_release_error ? detail::call_failed : nullptr;
    raw.on_event = options.on_event ? detail::call_happened : nullptr;
    raw.on_warning = options.on_warning ? detail::call_warned : nullptr;
    auto hooks = std::make_unique<detail::hooks>();
    hooks->failed = std::move(options.on_release_error);
    hooks->happened = std::move(options.on_event);
    hooks->warned = std::move(options.on_warning);
    raw.user_data_free = detail::drop_hooks;
    raw.user_data = hooks.release();  // the library's from here on, whatever the status
    ::syncguard_client* handle = nullptr;
    detail::outcome outcome;
    const status code = ::syncguard_client_open(url.data(), url.size(), &raw, &handle, outcome.out());
    outcome.check(code);
    handle_ = std::shared_ptr<::syncguard_client>(handle, ::syncguard_client_free);
  }

  /// "redis", "postgres" or "sqlite".
  std::string_view backend() const noexcept { return ::syncguard_client_backend(handle_.get()); }

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

  std::uint64_t purge_expired(std::uint32_t limit, const cancel_token* cancel = nullptr) const {
    std::uint64_t purged = 0;
    detail::outcome outcome;
    const status code =
        ::syncguard_client_purge_expired(handle_.get(), limit, detail::native(cancel), &purged, outcome.out());
    outcome.check(code);
    return purged;
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

  /// Whether this call removed the lock with this id.
  bool release(std::string_view lock_id, const cancel_token* cancel = nullptr) const {
    detail::outcome outcome;
    const status code =
        ::syncguard_release(handle_.get(), lock_id.data(), lock_id.size(), detail::native(cancel), outcome.out());
    return outcome.check(code) == SYNCGUARD_STATUS_OK;
  }

  /// When the lease now ends, in Unix milliseconds of the store's clock; empty if there is no such live lock.
  template <class Rep, class Period>
  std::optional<std::int64_t> extend(std::string_view lock_id, const std::chrono::duration<Rep, Period>& ttl,
                                     const cancel_token* cancel = nullptr) const {
    std::int64_t expires = 0;
    detail::outcome outcome;
    const status code = ::syncguard_extend(handle_.get(), lock_id.data(), lock_id.size(), detail::count(ttl),
                                           detail::native(cancel), &expires, outcome.out());
    if (outcome.check(code) != SYNCGUARD_STATUS_OK) {
      return std::nullopt;
    }
    return expires;
  }

  bool is_locked(std::string_view key, const cancel_token* cancel = nullptr) const {
    bool out = false;
    detail::outcome outcome;
    const status code =
        ::syncguard_is_locked(handle_.get(), key.data(), key.size(), detail::native(cancel), &out, outcome.out());
    outcome.check(code);
    return out;
  }

  // Diagnostics: do not decide by them before a write.

  std::optional<lock_info> lookup_by_key(std::string_view key, const cancel_token* cancel = nullptr) const {
    return look<lock_info>(::syncguard_lookup_by_key, key, cancel);
  }
  std::optional<lock_info> lookup_by_id(std::string_view lock_id, const cancel_token* cancel = nullptr) const {
    return look<lock_info>(::syncguard_lookup_by_id, lock_id, cancel);
  }
  std::optional<lock_info_raw> lookup_by_key_raw(std::string_view key, const cancel_token* cancel = nullptr) const {
    return look<lock_info_raw>(::syncguard_lookup_by_key_raw, key, cancel);
  }
  std::optional<lock_info_raw> lookup_by_id_raw(std::string_view lock_id, const cancel_token* cancel = nullptr) const {
    return look<lock_info_raw>(::syncguard_lookup_by_id_raw, lock_id, cancel);
  }
  bool owns(std::string_view lock_id) const {
    bool out = false;
    detail::outcome outcome;
    const status code = ::syncguard_owns(handle_.get(), lock_id.data(), lock_id.size(), &out, outcome.out());
    outcome.check(code);
    return out;
  }

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
    return lock_info_raw{convert(raw.info), raw.key, raw.lock_id};
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
