/*
 * syncguard: blocking distributed locks with fencing tokens, on Redis, Postgres or SQLite.
 *
 * Generated from ffi/src by cbindgen (`make header`); do not edit.
 *
 *   syncguard_client *client = NULL;
 *   syncguard_guard *guard = NULL;
 *   syncguard_error *err = NULL;
 *
 *   if (syncguard_client_open("redis://127.0.0.1/", SYNCGUARD_NUL, NULL, &client, &err) == SYNCGUARD_STATUS_OK
 *       && syncguard_lock(client, "invoice:42", SYNCGUARD_NUL, NULL, &guard, &err) == SYNCGUARD_STATUS_OK) {
 *     printf("write with fence %s\n", syncguard_guard_fence(guard));
 *   }
 *   if (err != NULL) fprintf(stderr, "%s\n", syncguard_error_message(err));
 *   syncguard_guard_free(guard);
 *   syncguard_error_free(err);
 *   syncguard_client_free(client);
 *
 * Answers. A call that can fail returns a syncguard_status: 0 and above are answers, below 0 is trouble. Its last argument `err`
 * may be NULL; otherwise a status below 0, and only that, writes an error there that the caller frees. An `out` handle is NULL
 * after any status but OK. Any call may answer PANIC, which is a bug of the library, and in a forked child INTERNAL, or LOST for a guard.
 *
 * Arguments. `err`, `cancel` and `options` may be NULL, and so may what a _free is given. NULL for any other pointer, a length
 * over PTRDIFF_MAX and an unknown number of an enumeration answer INVALID_ARGUMENT, with nothing read or sent. Functions without
 * a status say what they answer for NULL.
 *
 * Ownership. A handle that a call is given stays the caller's; only the _free of its type ends it. What a call writes to `out` or
 * `err`, and what a _new returns, belongs to the caller and is freed with the _free of its type.
 *
 * Texts in are UTF-8, by pointer and length, or by pointer and SYNCGUARD_NUL; they are copied where they must live on. Texts out
 * end with a NUL and belong to the handle that they were asked of.
 *
 * Option structs begin with their size: start from the _INIT macro. A program built against an older header works with a newer
 * library. One built against a newer header works with an older library as long as it leaves the new fields zero.
 *
 * Threads. Every function may be called from any thread, and every handle used by several at once. A call that has begun keeps
 * what it uses alive while another thread frees the handle; to start one while or after it is freed is undefined.
 *
 * Callbacks run on threads of the library, in which all signals are blocked. They may block and may call anything here, freeing
 * their own guard and client included. They must return: to leave one by longjmp, by an exception or by ending the thread is
 * undefined. `user_data` is the library's from the call on, and its `user_data_free` runs exactly once, on any thread.
 * The threads of the library have a stack of 2 MiB, or of what the environment variable RUST_MIN_STACK says.
 *
 * Fork. A handle inherited by a forked child answers INTERNAL there, a guard LOST; freeing it sends nothing and the lock stays the parent's; its
 * user_data_free may not run in the child. A client opened in the child works; one for sqlite: only if no sqlite: file was open at
 * the fork, in the parent or one of its ancestors; otherwise its calls answer INTERNAL. Between fork and exec nothing needs to
 * be done: all descriptors are close-on-exec. A process that closes descriptors which it did not open is answered as a child is.
 *
 * Signals. Nothing here may be called from a signal handler: that is undefined. Signals do not disturb calls (EINTR is handled),
 * and the library neither installs handlers nor changes masks of other threads.
 *
 * Undefined. Freeing a handle twice, using it after it was freed, and passing what was never a handle. A live handle of another
 * type is recognised and refused; debug builds of the library recognise the others too, answer INVALID_ARGUMENT and say so on
 * stderr when there was something to free. The library cannot be unloaded: dlclose leaves it in place.
 */


#ifndef SYNCGUARD_H
#define SYNCGUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The version of this header as one number: 1000000 * MAJOR + 1000 * MINOR + PATCH. */
#define SYNCGUARD_VERSION_NUMBER \
  (1000000 * SYNCGUARD_VERSION_MAJOR + 1000 * SYNCGUARD_VERSION_MINOR + SYNCGUARD_VERSION_PATCH)

/** As a length: up to the NUL. */
#define SYNCGUARD_NUL ((size_t)-1)

/** As a duration: no limit. */
#define SYNCGUARD_FOREVER INT64_C(-1)

/** The defaults of everything. `syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;` */
#define SYNCGUARD_CLIENT_OPTIONS_INIT \
  { sizeof(syncguard_client_options), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL }

/** The defaults of everything. `syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;` */
#define SYNCGUARD_LOCK_OPTIONS_INIT \
  { sizeof(syncguard_lock_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0 }

/**
 * The version of this header: of the API.
 */
#define SYNCGUARD_VERSION_MAJOR 0

/**
 * The version of this header: of additions.
 */
#define SYNCGUARD_VERSION_MINOR 1

/**
 * The version of this header: of repairs.
 */
#define SYNCGUARD_VERSION_PATCH 0

/**
 * The type of an event: `syncguard_acquire`, or an attempt of `syncguard_lock`.
 */
#define SYNCGUARD_EVENT_ACQUIRE 0

/**
 * The type of an event: a release.
 */
#define SYNCGUARD_EVENT_RELEASE 1

/**
 * The type of an event: an extend, or a renewal of a guard.
 */
#define SYNCGUARD_EVENT_EXTEND 2

/**
 * The type of an event: `syncguard_is_locked`.
 */
#define SYNCGUARD_EVENT_IS_LOCKED 3

/**
 * The type of an event: a lookup, or `syncguard_owns`.
 */
#define SYNCGUARD_EVENT_LOOKUP 4

/**
 * The type of an event: a wait of `syncguard_lock` or of a waiter has ended, with the lock or without it.
 */
#define SYNCGUARD_EVENT_WAIT 5

/**
 * The type of an event: a guard was lost. Once per guard.
 */
#define SYNCGUARD_EVENT_LOSS 6

/**
 * A value of `reason_number`: there is none.
 */
#define SYNCGUARD_EVENT_REASON_NONE 0

/**
 * A value of `reason_number`: another holder has the lock; of a wait: another holder had it to the end. The text is "locked".
 */
#define SYNCGUARD_EVENT_REASON_LOCKED 1

/**
 * A value of `reason_number`: the lock was there, and its time was over. The text is "expired".
 */
#define SYNCGUARD_EVENT_REASON_EXPIRED 2

/**
 * A value of `reason_number`: there was no such lock, or it has another owner. The text is "not-found".
 */
#define SYNCGUARD_EVENT_REASON_NOT_FOUND 3

/**
 * A value of `backoff`: the library's default, which is exponential.
 */
#define SYNCGUARD_BACKOFF_DEFAULT 0

/**
 * A value of `backoff`: the delay doubles with every attempt, up to the larger of the base delay and 2 s.
 */
#define SYNCGUARD_BACKOFF_EXPONENTIAL 1

/**
 * A value of `backoff`: the delay stays as it is.
 */
#define SYNCGUARD_BACKOFF_FIXED 2

/**
 * A value of `jitter`: the library's default, which is equal.
 */
#define SYNCGUARD_JITTER_DEFAULT 0

/**
 * A value of `jitter`: half of the delay is fixed, half is random.
 */
#define SYNCGUARD_JITTER_EQUAL 1

/**
 * A value of `jitter`: all of the delay is random.
 */
#define SYNCGUARD_JITTER_FULL 2

/**
 * A value of `jitter`: the delay is as computed.
 */
#define SYNCGUARD_JITTER_NONE 3

/**
 * A value of `fences`: the library's default, which counts, unless the URL says `fences=clock`.
 */
#define SYNCGUARD_FENCES_DEFAULT 0

/**
 * A value of `fences`: the stored counter of the key, plus one.
 */
#define SYNCGUARD_FENCES_COUNTER 1

/**
 * A value of `fences`: the larger of the counter plus one and the store's time in Unix milliseconds, so that fences grow also after a
 * store has lost acknowledged writes, if every client of the key has this set, no lost fence was at or ahead of the clock of the server
 * that goes on, and the old server grants nothing once the new one has begun.
 */
#define SYNCGUARD_FENCES_CLOCK 2

/**
 * A level of a finding: as it should be.
 */
#define SYNCGUARD_CHECK_OK 0

/**
 * A level of a finding: locks work; something about them is not safe, or slow.
 */
#define SYNCGUARD_CHECK_WARNING 1

/**
 * A level of a finding: locks do not work.
 */
#define SYNCGUARD_CHECK_ERROR 2

/**
 * The subject of a finding: whether the store answers.
 */
#define SYNCGUARD_CHECK_REACHABLE 1

/**
 * The subject of a finding: whether the store accepts the user, and the user has every right that locks need.
 */
#define SYNCGUARD_CHECK_ALLOWED 2

/**
 * The subject of a finding: whether tables and functions are there.
 */
#define SYNCGUARD_CHECK_SET_UP 3

/**
 * The subject of a finding: whether the store's settings keep locks and fences.
 */
#define SYNCGUARD_CHECK_SETTINGS 4

/**
 * The subject of a finding: which clock decides about leases.
 */
#define SYNCGUARD_CHECK_CLOCK 5

/**
 * The subject of a finding: how long a cycle of acquire and release takes.
 */
#define SYNCGUARD_CHECK_LATENCY 6

/**
 * The subject of a finding: which version the server has.
 */
#define SYNCGUARD_CHECK_VERSION 7

/**
 * The subject of a finding: whether fences survive a crash of the server.
 */
#define SYNCGUARD_CHECK_DURABLE 8

/**
 * The subject of a finding: whether the store keeps locks until their end, whatever its memory does.
 */
#define SYNCGUARD_CHECK_EVICTING 9

/**
 * A text of `syncguard_gate_text`: Lua that stands before a script of your own. Give the script the key of the gate (the name with
 * ":fence" behind it) before its own keys, and the fence before its own arguments; it finds its own ones in KEYS and ARGV as if it were
 * alone. A former holder gets an error reply that begins with SYNCGUARD_STALE, and nothing is changed.
 */
#define SYNCGUARD_GATE_REDIS_PRELUDE 1

/**
 * A text of `syncguard_gate_text`: the script of `syncguard_fenced_set`, for another client of Redis. Keys: the gate, the name.
 * Arguments: the fence, the value.
 */
#define SYNCGUARD_GATE_REDIS_FENCED_SET 2

/**
 * A text of `syncguard_gate_text` and `syncguard_gate_postgres_text`: the first statement of your transaction in Postgres. $1: the resource,
 * $2: the fence. It raises the SQLSTATE SGG01 for a former holder, SGG02 for what is no fence or no name of a resource, and 42883 where
 * the set-up is missing: call `syncguard_client_setup_fence_gate`.
 */
#define SYNCGUARD_GATE_POSTGRES_PASS 3

/**
 * A text of `syncguard_gate_text` and `syncguard_gate_postgres_text`: the first statement of your transaction where locks and data share a
 * database of Postgres. $1: "fence:" and the key of the lock, $2: the fence. No row: refused. The next grant of the key waits until the
 * transaction ends.
 */
#define SYNCGUARD_GATE_POSTGRES_SHARE 4

/**
 * A text of `syncguard_gate_text`: creates the gate in a database of SQLite; may be repeated.
 */
#define SYNCGUARD_GATE_SQLITE_SETUP 5

/**
 * A text of `syncguard_gate_text`: the first statement of your transaction in SQLite. ?1: the resource, ?2: the fence. For a former
 * holder it fails with "syncguard: refused", and the transaction is rolled back. Stop then: the connection is in autocommit, and what
 * follows would be committed statement by statement. "no such table: syncguard_fence_gates": the set-up is missing.
 */
#define SYNCGUARD_GATE_SQLITE_PASS 6

/**
 * A text of `syncguard_gate_text`: the newest fence of the resource ?1 in SQLite, for operators.
 */
#define SYNCGUARD_GATE_SQLITE_NEWEST 7

/**
 * A text of `syncguard_gate_text`: forgets the newest fence of the resource ?1 in SQLite if it is ?2.
 */
#define SYNCGUARD_GATE_SQLITE_RESET 8

/**
 * A text of `syncguard_gate_postgres_text`: the statements that create the table and the function in an existing schema, to be run once.
 */
#define SYNCGUARD_GATE_POSTGRES_SETUP 9

/**
 * A text of `syncguard_gate_postgres_text`: the newest fence of the resource $1, for operators.
 */
#define SYNCGUARD_GATE_POSTGRES_NEWEST 10

/**
 * A text of `syncguard_gate_postgres_text`: forgets the newest fence of the resource $1 if it is $2, and counts.
 */
#define SYNCGUARD_GATE_POSTGRES_RESET 11

/**
 * The caller begins, its sleep is over, `wake` was called, or it has made an attempt.
 */
#define SYNCGUARD_WAITER_WOKEN 0

/**
 * The caller does not want the lock any more.
 */
#define SYNCGUARD_WAITER_CANCELLED 1

/**
 * The caller had no thread for the attempt that it was to make.
 */
#define SYNCGUARD_WAITER_NO_THREAD 2

/**
 * How a call went. Zero and above are answers, below zero is trouble, and then a call gives a `syncguard_error` if asked to.
 * The numbers never change; later versions may add some, so a `switch` needs a `default`.
 */
typedef enum syncguard_status {
  /**
   * It did what was asked.
   */
  SYNCGUARD_STATUS_OK = 0,
  /**
   * Another holder has the key. An answer, not trouble.
   */
  SYNCGUARD_STATUS_LOCKED = 1,
  /**
   * There is no such live lock: released, expired, or never there. An answer, not trouble.
   */
  SYNCGUARD_STATUS_ABSENT = 2,
  /**
   * The gate of a resource has seen a newer holder: nothing was changed. An answer, not trouble; stop.
   */
  SYNCGUARD_STATUS_REFUSED = 3,
  /**
   * The store cannot be reached or cannot serve now. Trying again later may help.
   */
  SYNCGUARD_STATUS_SERVICE_UNAVAILABLE = -1,
  /**
   * The store refused the credentials, or they lack a right.
   */
  SYNCGUARD_STATUS_AUTH_FAILED = -2,
  /**
   * It can never work as it is: NULL, a bad key, URL or option, which is found before anything is sent; or a store without its
   * tables or its database. Nothing was changed.
   */
  SYNCGUARD_STATUS_INVALID_ARGUMENT = -3,
  /**
   * The store, the pool of connections, or the process is full (no thread or descriptor left). Trying again later may help.
   */
  SYNCGUARD_STATUS_RATE_LIMITED = -4,
  /**
   * The operation's time was over. Whether it took effect is unknown. Trying again later may help.
   */
  SYNCGUARD_STATUS_NETWORK_TIMEOUT = -5,
  /**
   * The whole wait of `syncguard_lock` was over and another holder still had the key.
   */
  SYNCGUARD_STATUS_ACQUISITION_TIMEOUT = -6,
  /**
   * The cancel token ended the call. Whether a request in flight took effect is unknown.
   */
  SYNCGUARD_STATUS_ABORTED = -7,
  /**
   * Anything else: a foreign value under our key, a fence over its limit, a corrupt file, a handle inherited by fork.
   */
  SYNCGUARD_STATUS_INTERNAL = -8,
  /**
   * A bug of the library. The call was given up; the process and its other locks go on.
   */
  SYNCGUARD_STATUS_PANIC = -9,
  /**
   * This process can no longer count on a lock that it held. What `on_lost` is given; and the answer of a guard's calls in a
   * forked child. `syncguard_error_loss_reason` says why.
   */
  SYNCGUARD_STATUS_LOST = -10,
} syncguard_status;

/**
 * Why a lock was lost. The numbers never change; later versions may add some, so a `switch` needs a `default`.
 */
typedef enum syncguard_loss_reason {
  /**
   * It was not lost, or the error is about something else.
   */
  SYNCGUARD_LOSS_NONE = 0,
  /**
   * The lease ran out, by the local clock, before the store confirmed a renewal.
   */
  SYNCGUARD_LOSS_UNCONFIRMED = 1,
  /**
   * `max_hold_ms` was reached: the lock was no longer renewed, and its lease ran out.
   */
  SYNCGUARD_LOSS_MAX_HOLD = 2,
  /**
   * The guard has no heartbeat, and its lease was not extended in time.
   */
  SYNCGUARD_LOSS_NOT_RENEWED = 3,
  /**
   * The store no longer has the lock: another process released it, an operator deleted it, or the store lost it.
   */
  SYNCGUARD_LOSS_REMOVED = 4,
  /**
   * The heartbeat broke down: a bug.
   */
  SYNCGUARD_LOSS_HEARTBEAT_FAILED = 5,
  /**
   * This is a forked child; the lock is its parent's.
   */
  SYNCGUARD_LOSS_FORKED = 6,
  /**
   * For a reason that this version of the library does not name.
   */
  SYNCGUARD_LOSS_OTHER = 7,
} syncguard_loss_reason;

/**
 * Whose clock decides when a lease ends. The numbers never change; later versions may add some, so a `switch` needs a `default`.
 */
typedef enum syncguard_time_authority {
  /**
   * There is no store, or this version of the library does not name it.
   */
  SYNCGUARD_TIME_UNKNOWN = 0,
  /**
   * The store's own: the clocks of the clients do not matter.
   */
  SYNCGUARD_TIME_SERVER = 1,
  /**
   * That of the client which looks: the clocks of all clients must agree to within a second.
   */
  SYNCGUARD_TIME_CLIENT = 2,
} syncguard_time_authority;

/**
 * What ended `syncguard_guard_wait_end`. The numbers never change; later versions may add some, so a `switch` needs a `default`.
 */
typedef enum syncguard_wait_end {
  /**
   * The token that was given is none, or this version of the library does not name what ended the wait.
   */
  SYNCGUARD_WAIT_END_OTHER = 0,
  /**
   * The lock is lost: stop working. `syncguard_guard_loss_reason` says why.
   */
  SYNCGUARD_WAIT_END_LOST = 1,
  /**
   * The guard is released or freed, or its release has begun.
   */
  SYNCGUARD_WAIT_END_RELEASED = 2,
  /**
   * The token was triggered. The lock is held.
   */
  SYNCGUARD_WAIT_END_CANCELLED = 3,
  /**
   * The time is over, or that of the token. The lock is held.
   */
  SYNCGUARD_WAIT_END_TIME_OVER = 4,
} syncguard_wait_end;

/**
 * Ends calls from another thread: a wait at once, a request in flight as soon as its socket notices. Sticky: once triggered,
 * every call given it answers ABORTED. Make a new one for the next piece of work.
 * A `syncguard_lock` that was cancelled gives back by itself what it may have been granted. The bare verbs do not: after an
 * ABORTED `syncguard_acquire`, release the lock id that it wrote.
 * Threads: any, also several at once; may be given to many calls at once.
 */
typedef struct syncguard_cancel syncguard_cancel;

/**
 * A store of locks, opened. One for a whole program is right: it pools its connections.
 * Threads: any, also several at once.
 */
typedef struct syncguard_client syncguard_client;

/**
 * What went wrong, in detail. Written to the `err` argument of a call only if that is not NULL and the call returns a status
 * below zero; it then belongs to the caller and is freed with `syncguard_error_free`. What was in `*err` before is
 * overwritten, not freed.
 * An error given to a callback is borrowed: it ends with the callback and must not be freed.
 * It never holds a password, a raw key, a raw lock id or the user part of a URL, so it may be logged.
 * Threads: it never changes and may be read by several threads at once.
 */
typedef struct syncguard_error syncguard_error;

/**
 * A lock that is held: renewed in the background, released when freed.
 * Check the fence where it matters: a holder that was paused past its ttl does not know it, and only the resource itself, by
 * refusing an older fence than it has seen, is safe from it.
 * Threads: any, also several at once.
 */
typedef struct syncguard_guard syncguard_guard;

/**
 * A page of live locks, as `syncguard_client_list` found it. It never changes.
 * Threads: any, also several at once.
 */
typedef struct syncguard_page syncguard_page;

/**
 * What a check of a store found. It never changes.
 * Threads: any, also several at once.
 */
typedef struct syncguard_report syncguard_report;

/**
 * A place in the line of a key, for callers that wait by themselves between single attempts: event loops, and languages with
 * threads of their own. `syncguard_lock` does all of this for you.
 * `syncguard_lock_or_wait` gives one if the lock is held or others came before. Ask `syncguard_waiter_next` what to do, do it, and
 * ask again: it keeps the acquire timeout, the retries and the delays of the options. Of many that come together one asks the
 * store, and they are served in the order in which they came. Freeing it leaves the line and lets the next one try.
 * Threads: any, one at a time.
 */
typedef struct syncguard_waiter syncguard_waiter;

/**
 * The holder of a key, as far as a contended attempt learnt it without another trip. Nothing in it is secret. Frozen: later
 * versions do not change it.
 */
typedef struct syncguard_holder {
  /**
   * The hash of the holder's lock id; empty if it is not known.
   */
  char lock_id_hash[25];
  /**
   * The holder's fence, 15 digits; empty if it is not known.
   */
  char fence[16];
  /**
   * The same as a number; 0, which is no fence, if it is not known.
   */
  uint64_t fence_number;
  /**
   * How long its lease still ran at that moment, in milliseconds; -1 if it is not known.
   */
  int64_t remaining_ms;
} syncguard_holder;

/**
 * One operation, one wait or one loss and how it went, for the `on_event` callback. All of it is valid only during the call: copy what you keep.
 * Texts are NULL where they do not apply. Later versions may add fields at the end; `struct_size` says how many there are.
 */
typedef struct syncguard_event {
  /**
   * How large the library's struct is.
   */
  size_t struct_size;
  /**
   * One of the `SYNCGUARD_EVENT_` numbers; later versions may add some.
   */
  int32_t type;
  /**
   * Whether it did what was asked.
   */
  bool ok;
  /**
   * Why not, where the store answered: "locked", "expired" or "not-found". NULL for trouble.
   */
  const char *reason;
  /**
   * The key's hash, where the key is known: a release or an extend of a guard has it, one by a lock id alone has not.
   */
  const char *key_hash;
  /**
   * The lock id's hash, where the operation had one.
   */
  const char *lock_id_hash;
  /**
   * The raw key, only with `events_include_raw`.
   */
  const char *key;
  /**
   * The raw lock id, only with `events_include_raw`. Any process that knows it can release the lock.
   */
  const char *lock_id;
  /**
   * How long it took, in microseconds: the operation, or the wait. 0 for a loss.
   */
  int64_t duration_us;
  /**
   * The number of `reason`: one of the `SYNCGUARD_EVENT_REASON_` numbers; later versions may add some.
   */
  int32_t reason_number;
  /**
   * The status of the error that it ended with; OK if there was none.
   */
  enum syncguard_status error_status;
  /**
   * Why the guard was lost, of a loss; otherwise NONE.
   */
  enum syncguard_loss_reason loss_reason;
  /**
   * How many attempts the wait made, of a wait; otherwise 0.
   */
  uint32_t attempts;
  /**
   * The name of the store: "redis", "postgres" or "sqlite". Never NULL.
   */
  const char *backend;
  /**
   * The fence of the grant: of an acquire or a wait that was granted, of an extend, a release or a loss of a guard. 0 where there is
   * none: the first fence is 1.
   */
  uint64_t fence;
  /**
   * How long the wait took, in microseconds, of a wait; otherwise -1.
   */
  int64_t waited_us;
  /**
   * How long a guard had held the lock when its release was sent, or when it was lost, in microseconds; otherwise -1.
   */
  int64_t held_us;
  /**
   * What the holder says of itself, only with `events_include_raw`: of an acquire that was refused, of a wait that gave up because the
   * lock was held, and of a lookup. Any program that can write to the store can write any text.
   */
  const char *holder;
} syncguard_event;

/**
 * A guard that was lost, for the client's `on_lost`. All of it is valid only during the call: copy what you keep. Later versions may
 * add fields at the end; `struct_size` says how many there are.
 */
typedef struct syncguard_lost_lock {
  /**
   * How large the library's struct is.
   */
  size_t struct_size;
  /**
   * What the guard's own `on_lost` is given. `syncguard_error_loss_reason` says why.
   */
  const struct syncguard_error *why;
  /**
   * The raw key.
   */
  const char *key;
  /**
   * The raw lock id. A program that knows it can release the lock.
   */
  const char *lock_id;
  /**
   * The fence of the grant.
   */
  uint64_t fence;
  /**
   * How long the lock was held, in microseconds.
   */
  int64_t held_us;
} syncguard_lost_lock;

/**
 * Everything about a client that is not in its URL. Start from `SYNCGUARD_CLIENT_OPTIONS_INIT`; 0 and NULL mean the default.
 * The struct and its texts are copied and may go once the call has returned; `user_data` is not.
 */
typedef struct syncguard_client_options {
  /**
   * `sizeof(syncguard_client_options)`, as the `_INIT` macro sets it.
   */
  size_t struct_size;
  /**
   * Redis: what stands before every stored key. Default "syncguard"; "" for nothing. Trailing colons do not count, so "a" and
   * "a:" are the same. Prefixes of clients that share a database must not nest ("app" and "app:x").
   */
  const char *key_prefix;
  /**
   * Postgres: the schema of the tables. Default: the connection's own.
   */
  const char *schema;
  /**
   * Postgres: the table of locks. Default "syncguard_locks".
   */
  const char *table_name;
  /**
   * Postgres: the table of fence counters. Default "syncguard_fence_counters".
   */
  const char *fence_table_name;
  /**
   * TLS: a PEM file with the roots to trust, read when a connection is made. Default: the system's. With `rediss://` a
   * certificate that does not fit is always refused; with Postgres the URL's `sslmode` decides.
   */
  const char *tls_ca_file;
  /**
   * How many connections there may be, at least 2. Default 16.
   */
  uint32_t pool_size;
  /**
   * How long connecting may take. Default 2000.
   */
  uint32_t connect_timeout_ms;
  /**
   * How long every single operation may take, connecting included. Default 5000.
   */
  uint32_t operation_timeout_ms;
  /**
   * How long the release done by `syncguard_guard_free` may take. Default 5000.
   */
  uint32_t dispose_timeout_ms;
  /**
   * 1: `syncguard_is_locked` may have locks removed that expired more than two seconds ago. Default 0.
   */
  int32_t cleanup_in_is_locked;
  /**
   * 1: events carry the raw key and lock id. Default 0.
   */
  int32_t events_include_raw;
  /**
   * Called when a release fails and no call can report it: in `syncguard_guard_free` (`source` is "drop") or in the
   * undoing of a lock whose grant never arrived (`source` is "undo"). It may come after the guard is gone. The error and
   * the texts are borrowed for the call; `key` and `lock_id` are raw. Default: to stderr in debug builds or with
   * SYNCGUARD_DEBUG=true in the environment, without key or id; silent otherwise.
   */
  void (*on_release_error)(void *user_data,
                           const struct syncguard_error *err,
                           const char *key,
                           const char *lock_id,
                           const char *source);
  /**
   * Called for every operation, every wait that has ended and every loss of a guard, one after the other on one thread. A slow one
   * delays no operation; what it cannot keep up with is dropped, and `syncguard_client_events_dropped` counts it. Default: none, at
   * no cost.
   */
  void (*on_event)(void *user_data, const struct syncguard_event *event);
  /**
   * Called with what an operator should know. The text is borrowed for the call. Default: to stderr.
   */
  void (*on_warning)(void *user_data, const char *message);
  /**
   * What the callbacks are called with. It must live until `user_data_free` is called with it.
   */
  void *user_data;
  /**
   * Called exactly once, on any thread, when no callback can come any more; also when opening fails. May be NULL.
   */
  void (*user_data_free)(void *user_data);
  /**
   * Called with `user_data` when a guard of the client is lost: at most once per guard, and not once its release has begun, as the
   * guard's own `on_lost`. The two do not wait for each other. It may come before `syncguard_lock` has returned. Default: none.
   */
  void (*on_lost)(void *user_data, const struct syncguard_lost_lock *lost);
  /**
   * Where fences come from: one of the `SYNCGUARD_FENCES_` numbers. `fences=` in the URL wins over it.
   */
  int32_t fences;
  /**
   * TLS: a PEM file with the certificate that the client shows the server, and those of the authorities that the server may not know.
   * Read before every connection, so that it may be replaced. Default: none. `sslcert` in a Postgres URL wins over it.
   */
  const char *tls_client_cert_file;
  /**
   * TLS: a PEM file with the key of that certificate, without a passphrase; it may be the same file. One that other users may read is
   * refused: 0600 or stricter, or 0640 or stricter if it is root's. Set both files, or none.
   */
  const char *tls_client_key_file;
  /**
   * Asked with `user_data` for the password before every connection is made, for one that changes; then the URL has none. It writes a
   * text of UTF-8 that ends with a NUL to `out`, which has `size` bytes (65536), and returns 0; any other answer is a failure, and the
   * call answers SERVICE_UNAVAILABLE. It runs on a thread of the library, one call at a time for a client; connections that are to be
   * made meanwhile wait for the same answer. One that hangs costs each call its own time and is not called again before it has
   * returned. The buffer is wiped, and the password is shown nowhere. Default: none.
   */
  int (*password)(void *user_data, char *out, size_t size);
  /**
   * Makes every connection in place of the library: through a tunnel or a proxy, or with a socket that a supervisor gives. It is given
   * the host as the URL or a server names it (the path of a unix socket with port 0) and how long the call that wants it may still
   * take, and returns the descriptor of a connected stream socket, which is the library's from then on, or minus an `errno`. The
   * library logs in over it, with TLS if the URL asks for that. It runs on threads of the library, also several at once. One that
   * hangs costs the call its own time; until it has returned no other one is begun to the same server. Default: none.
   */
  int (*connector)(void *user_data, const char *host, uint16_t port, int64_t timeout_ms);
} syncguard_client_options;

/**
 * How to wait for a lock and how to hold it. Start from `SYNCGUARD_LOCK_OPTIONS_INIT`; 0 and NULL mean the default. Negative
 * values other than the named ones are refused. The struct is copied; `user_data` is not.
 */
typedef struct syncguard_lock_options {
  /**
   * `sizeof(syncguard_lock_options)`, as the `_INIT` macro sets it.
   */
  size_t struct_size;
  /**
   * How long the lease lasts if it is not renewed, at most ten years. Default 30000.
   */
  int64_t ttl_ms;
  /**
   * How long to wait at most. Default 5000; `SYNCGUARD_FOREVER` for no limit. One attempt is `syncguard_try_lock`.
   */
  int64_t acquire_timeout_ms;
  /**
   * How often to renew, less than the ttl. Default a third of the ttl; `SYNCGUARD_FOREVER` for never.
   */
  int64_t heartbeat_ms;
  /**
   * Stop renewing this long after the grant, so that a worker that hangs does not hold the lock for ever. Default none.
   */
  int64_t max_hold_ms;
  /**
   * How often to try again. 0 is the default: 10, or no limit if `acquire_timeout_ms` is set; -1 is no limit.
   */
  int32_t max_retries;
  /**
   * The delay before the first retry. Default 100.
   */
  uint32_t retry_delay_ms;
  /**
   * How the delay grows: one of the `SYNCGUARD_BACKOFF_` numbers.
   */
  int32_t backoff;
  /**
   * How much of the delay is random: one of the `SYNCGUARD_JITTER_` numbers.
   */
  int32_t jitter;
  /**
   * Ends the wait. Not kept by the guard. NULL for none.
   */
  struct syncguard_cancel *cancel;
  /**
   * Called at most once, on a thread of the library, when the lock is lost; not once a release has begun. It may come before
   * `syncguard_lock` has returned. The error is borrowed for the call. It may block, use the client, and free the
   * guard and the client.
   */
  void (*on_lost)(void *user_data, const struct syncguard_error *why);
  /**
   * As in the client's options, for this guard. Default: the client's.
   */
  void (*on_release_error)(void *user_data,
                           const struct syncguard_error *err,
                           const char *key,
                           const char *lock_id,
                           const char *source);
  /**
   * What the callbacks are called with. It must live until `user_data_free` is called with it.
   */
  void *user_data;
  /**
   * Called exactly once, on any thread, when no callback can come any more: soon after the guard was freed, or if there is no
   * guard, whatever the status, before the call returns. May be NULL.
   */
  void (*user_data_free)(void *user_data);
  /**
   * What is stored beside the lock of its holder, for people that look at it: at most 200 bytes of printable UTF-8. Default
   * `host/pid/program`; an empty text stores nothing. It is copied. It is raw data, and proves nothing.
   */
  const char *holder;
  /**
   * How long the release done by `syncguard_guard_free` may take. Default: the client's.
   */
  uint32_t dispose_timeout_ms;
} syncguard_lock_options;

/**
 * What `syncguard_acquire` was granted. Frozen: later versions do not change it.
 */
typedef struct syncguard_acquired {
  /**
   * The id of the grant, for release and extend.
   */
  char lock_id[23];
  /**
   * The fencing token, 15 digits; empty unless OK.
   */
  char fence[16];
  /**
   * When the lease ends, in Unix milliseconds of the store's clock; 0 unless OK.
   */
  int64_t expires_at_ms;
} syncguard_acquired;

/**
 * A live lock without its secrets. Frozen: later versions do not change it.
 */
typedef struct syncguard_lock_info {
  /**
   * The hash of the key, as `syncguard_hash_key` makes it.
   */
  char key_hash[25];
  /**
   * The hash of the lock id.
   */
  char lock_id_hash[25];
  /**
   * The fencing token, 15 digits.
   */
  char fence[16];
  /**
   * When the lease ends, in Unix milliseconds of the store's clock.
   */
  int64_t expires_at_ms;
  /**
   * When it was granted, in Unix milliseconds of the store's clock.
   */
  int64_t acquired_at_ms;
} syncguard_lock_info;

/**
 * A live lock with its raw key and lock id, which are enough to release it. Frozen: later versions do not change it.
 */
typedef struct syncguard_lock_info_raw {
  /**
   * The part without secrets.
   */
  struct syncguard_lock_info info;
  /**
   * The raw key.
   */
  char key[513];
  /**
   * The raw lock id.
   */
  char lock_id[23];
} syncguard_lock_info_raw;

/**
 * One line of a `syncguard_report`. Frozen: later versions do not change it. The texts belong to the report and live as long as it.
 */
typedef struct syncguard_finding {
  /**
   * What it is about: one of the SYNCGUARD_CHECK_ numbers from REACHABLE to EVICTING; 0 for one that this version does not name.
   */
  int32_t subject;
  /**
   * How serious it is: SYNCGUARD_CHECK_OK, _WARNING or _ERROR; -1 for one that this version does not name.
   */
  int32_t level;
  /**
   * What was found. No key, id or password.
   */
  const char *text;
  /**
   * What to do about it; NULL where there is nothing to do.
   */
  const char *advice;
} syncguard_finding;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library that runs, as a number to compare with `SYNCGUARD_VERSION_NUMBER`, the header's.
 * Threads: any. No I/O.
 */
uint32_t syncguard_version_number(void);

/**
 * The version of the library that runs, such as "0.1.0".
 *
 * @return a static text; never NULL, not to be freed.
 * Threads: any. No I/O.
 */
const char *syncguard_version_string(void);

/**
 * The name of a status, such as "locked" or "network timeout"; "unknown status" for a number that is none.
 *
 * @return a static text; never NULL, not to be freed.
 * Threads: any. No I/O.
 */
const char *syncguard_status_str(int32_t status);

/**
 * The status that the failed call returned. INVALID_ARGUMENT for NULL.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_error_status(const struct syncguard_error *err);

/**
 * What went wrong, for people, in English. It never holds a password, a raw key, a raw lock id or the user part of a URL.
 *
 * @return a text that belongs to the error and lives as long as it; "no error" for NULL.
 * Threads: any. No I/O.
 */
const char *syncguard_error_message(const struct syncguard_error *err);

/**
 * The hash of the key concerned, as `syncguard_hash_key` makes it.
 *
 * @return a text that belongs to the error and lives as long as it; NULL where no key is involved, and for NULL.
 * Threads: any. No I/O.
 */
const char *syncguard_error_key_hash(const struct syncguard_error *err);

/**
 * How many attempts `syncguard_lock` made before it gave up; 0 where that does not apply, and for NULL.
 * Threads: any. No I/O.
 */
uint32_t syncguard_error_attempts(const struct syncguard_error *err);

/**
 * Why the lock was lost, for an error of the status LOST. NONE for any other error, and for NULL.
 * Threads: any. No I/O.
 */
enum syncguard_loss_reason syncguard_error_loss_reason(const struct syncguard_error *err);

/**
 * Whether the operation may have taken effect although it failed: a timeout, a reset, a cancel in flight.
 * After `syncguard_lock`, `syncguard_try_lock` and the waiters there is nothing to do: the library takes back in the background what
 * an attempt may have left. After `syncguard_acquire` release the `lock_id` that it wrote; repeat a release or an extend.
 *
 * @return false if nothing was applied for certain, and for NULL.
 * Threads: any. No I/O.
 */
bool syncguard_error_may_have_applied(const struct syncguard_error *err);

/**
 * How long `syncguard_lock`, or a waiter, waited before it gave up, in whole milliseconds, rounded down.
 *
 * @return milliseconds; -1 where that does not apply, and for NULL.
 * Threads: any. No I/O.
 */
int64_t syncguard_error_waited_ms(const struct syncguard_error *err);

/**
 * The holder of the key at the last attempt, of an error of the status ACQUISITION_TIMEOUT, where the store told it.
 *
 * @param out  gets what is known of the holder; of no holder if the answer is false. NULL is fine.
 * @return whether anything is known of it; false for NULL as the error.
 * Threads: any. No I/O.
 */
bool syncguard_error_holder(const struct syncguard_error *err,
                            struct syncguard_holder *out);

/**
 * What the holder of the key said of itself at the last attempt, of an error of the status ACQUISITION_TIMEOUT, where the store told it.
 * Raw data for people: any program that can write to the store can write any text.
 *
 * @return a text that belongs to the error and lives as long as it; NULL where nothing is known, and for NULL.
 * Threads: any. No I/O.
 */
const char *syncguard_error_holder_text(const struct syncguard_error *err);

/**
 * Frees an error that a call wrote. NULL is fine. Not for errors that a callback was given.
 * Threads: any. No I/O.
 */
void syncguard_error_free(struct syncguard_error *err);

/**
 * Makes a token that is not triggered.
 *
 * @return a token that belongs to the caller and is freed with `syncguard_cancel_free`. NULL only after a bug of the library.
 * Threads: any. No I/O.
 */
struct syncguard_cancel *syncguard_cancel_new(void);

/**
 * Makes a token that also bounds the calls it is given to: each ends `timeout_ms` from now at the latest, with NETWORK_TIMEOUT. The
 * waits of `syncguard_lock` end by then too. For callers that have less time than their operation timeout.
 *
 * @param timeout_ms  milliseconds from now; below zero is taken for zero.
 * @return as for `syncguard_cancel_new`.
 * Threads: any. No I/O.
 */
struct syncguard_cancel *syncguard_cancel_new_timeout(int64_t timeout_ms);

/**
 * Triggers a token, for good, and wakes every call that was given it. Any number of times; NULL is fine.
 * Threads: any. Not from a signal handler: write to a pipe there, or use `signalfd`, and trigger it from a thread.
 */
void syncguard_cancel_trigger(struct syncguard_cancel *cancel);

/**
 * Whether a token was triggered. Its time limit does not count. False for NULL.
 * Threads: any. No I/O.
 */
bool syncguard_cancel_is_triggered(const struct syncguard_cancel *cancel);

/**
 * Sleeps until a token is triggered or the time is over: a pause that a shutdown ends.
 *
 * @param timeout_ms  how long at the most, or `SYNCGUARD_FOREVER`; 0 and any other negative value only look. The token's own time
 *                    limit ends the sleep too.
 * @return true: triggered; false: the time is over. False at once for NULL. A token that is freed meanwhile can no longer be
 * triggered: without a time the call then never returns.
 * Threads: any, also several at once.
 */
bool syncguard_cancel_wait(const struct syncguard_cancel *cancel,
                           int64_t timeout_ms);

/**
 * Frees a token. NULL is fine. A call that was given it keeps it alive inside, but it can no longer be triggered.
 * Threads: any.
 */
void syncguard_cancel_free(struct syncguard_cancel *cancel);

/**
 * Opens a store. Parses and validates only: no I/O, connections are made when first needed.
 *
 *     redis://[user:password@]host[:port][/db]            rediss:// for the same under TLS
 *     redis+unix:///path/to/socket[?db=1&user=U&pass=P]
 *     redis+sentinel://host[:port],host[:port]/name       redis+cluster://host[:port],host[:port]
 *     postgres://user:password@host[:port]/db[?sslmode=verify-full]         or postgresql://
 *     sqlite:/path/to/file                                a ? or % in the path as %3F or %25
 *
 * @param url      the URL, copied.
 * @param url_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param options  NULL for all defaults.
 * @param out      gets the client, which belongs to the caller and is freed with `syncguard_client_free`; NULL unless OK.
 * @param err      NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for a URL or an option that cannot work, or a backend that this build lacks. The message never
 * repeats a password. Whatever the status, the options' `user_data` is the library's from now on, if the struct had a valid size.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_client_open(const char *url,
                                            size_t url_len,
                                            const struct syncguard_client_options *options,
                                            struct syncguard_client **out,
                                            struct syncguard_error **err);

/**
 * Creates what the store needs: tables and functions. May be repeated, and run by many processes at once.
 *
 * @param cancel  NULL, or ends the call.
 * @param err     NULL, or gets an error below zero.
 * @return OK, at once where there is no schema; INVALID_ARGUMENT for NULL, or a store that holds something else under our
 * names; AUTH_FAILED without the right to create; SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as
 * `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_client_setup_schema(struct syncguard_client *client,
                                                    struct syncguard_cancel *cancel,
                                                    struct syncguard_error **err);

/**
 * Checks whether the store is reachable, allowed, set up and safely configured. What is not safe, but works, goes to the
 * client's `on_warning`, or to stderr; that has returned, or the lines are written, when this returns. A hook that hangs delays
 * this call by the operation timeout at the most.
 *
 * @param cancel  NULL, or ends the call.
 * @param err     NULL, or gets an error below zero.
 * @return OK if locks will work; INVALID_ARGUMENT for NULL, a missing schema or a wrong one, with what to do; AUTH_FAILED,
 * SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_client_check(struct syncguard_client *client,
                                             struct syncguard_cancel *cancel,
                                             struct syncguard_error **err);

/**
 * As `syncguard_client_check`, and says what became of the warnings.
 *
 * @param cancel       NULL, or ends the call.
 * @param warnings     gets how many warnings there were; written if OK.
 * @param undelivered  gets how many of them `on_warning`, or stderr, had not taken when the operation timeout was over; written
 * if OK.
 * @param err          NULL, or gets an error below zero.
 * @return as `syncguard_client_check`; INVALID_ARGUMENT also if one of the two is NULL.
 * Threads: any. Blocks up to the operation timeout, and as long again for a hook that hangs.
 */
enum syncguard_status syncguard_client_check_report(struct syncguard_client *client,
                                                    struct syncguard_cancel *cancel,
                                                    uint32_t *warnings,
                                                    uint32_t *undelivered,
                                                    struct syncguard_error **err);

/**
 * Removes locks that expired more than two seconds ago; never a live one and never a fence counter. Redis does that by itself.
 *
 * @param limit   how many at the most.
 * @param cancel  NULL, or ends the call.
 * @param purged  gets how many were removed; written if OK.
 * @param err     NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL; AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as
 * `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_client_purge_expired(struct syncguard_client *client,
                                                     uint32_t limit,
                                                     struct syncguard_cancel *cancel,
                                                     uint64_t *purged,
                                                     struct syncguard_error **err);

/**
 * Which store it is: "redis", "postgres" or "sqlite".
 *
 * @return a text that belongs to the client and lives as long as it; NULL for NULL.
 * Threads: any. No I/O.
 */
const char *syncguard_client_backend(const struct syncguard_client *client);

/**
 * How many events `on_event` was not told of, because it was too slow or there was no thread for it. 0 without the callback, and
 * for NULL.
 * Threads: any. No I/O.
 */
uint64_t syncguard_client_events_dropped(const struct syncguard_client *client);

/**
 * Stops renewing the guards of a client, for good, without releasing them: their leases run out unless they are extended or
 * released. For a program that ends while work under a lock still runs. NULL is fine.
 * Threads: any. No I/O.
 */
void syncguard_client_stop_renewing(struct syncguard_client *client);

/**
 * Whether the grants of the store carry fencing tokens. "redis", "postgres" and "sqlite" have them.
 *
 * @return false if fences are 0 and tell no holder from a former one, and for NULL.
 * Threads: any. No I/O.
 */
bool syncguard_client_supports_fencing(const struct syncguard_client *client);

/**
 * Whose clock decides when a lease ends. It is SERVER for "redis", "postgres" and "sqlite".
 *
 * @return UNKNOWN for NULL.
 * Threads: any. No I/O.
 */
enum syncguard_time_authority syncguard_client_time_authority(const struct syncguard_client *client);

/**
 * Where the fences that this client takes come from, after its options and its URL.
 *
 * @return `SYNCGUARD_FENCES_COUNTER` or `SYNCGUARD_FENCES_CLOCK`; `SYNCGUARD_FENCES_DEFAULT` for NULL, and for a source that this version
 * of the library does not name.
 * Threads: any. No I/O.
 */
int32_t syncguard_client_fence_source(const struct syncguard_client *client);

/**
 * Whether callers of this client wait for the lock of a key now, in this process. The holder may then end its work sooner. Callers
 * of other clients and other processes are not counted.
 *
 * @param key      as for `syncguard_lock`.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param out      gets the answer; written if OK.
 * @param err      NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL or a bad key; INTERNAL in a forked child.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_client_is_waited_for(const struct syncguard_client *client,
                                                     const char *key,
                                                     size_t key_len,
                                                     bool *out,
                                                     struct syncguard_error **err);

/**
 * Frees a client. NULL is fine. Live guards keep what they need, so the order does not matter; a call of another thread that
 * uses it ends as if nothing had happened.
 * With the last client and guard of a process the library's threads end: that free waits for them, at most a second if a
 * callback of yours is running, and not at all inside a callback or in a forked child.
 * Threads: any, also inside a callback.
 */
void syncguard_client_free(struct syncguard_client *client);

/**
 * Takes the lock of a key, waiting for it as the options say, and keeps it renewed until the guard is released, freed or lost.
 * Trouble of the store during the wait is retried within the same time.
 *
 * @param key      the key: 1 to 512 bytes of UTF-8 after NFC, without U+0000.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param options  NULL for all defaults: ttl 30 s, wait up to 5 s and ten retries, renewal every 10 s.
 * @param out      gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`; NULL unless OK.
 * @param err      NULL, or gets an error below zero.
 * @return OK, it is held; ACQUISITION_TIMEOUT, another holder had it to the end; ABORTED, the token was triggered;
 * INVALID_ARGUMENT for NULL, a bad key or a bad option; AUTH_FAILED at once; SERVICE_UNAVAILABLE, RATE_LIMITED and
 * NETWORK_TIMEOUT if the trouble outlasted the wait; INTERNAL as `syncguard_status` says. What an attempt of unknown outcome may
 * have left is taken back in the background. Whatever the status, the options' `user_data` is the library's from now on, if the struct had a
 * valid size.
 * Threads: any. Blocks up to the larger of the acquire timeout and the operation timeout.
 */
enum syncguard_status syncguard_lock(struct syncguard_client *client,
                                     const char *key,
                                     size_t key_len,
                                     const struct syncguard_lock_options *options,
                                     struct syncguard_guard **out,
                                     struct syncguard_error **err);

/**
 * Takes the lock of a key if it is free: one attempt, whatever the options say of waiting.
 *
 * @param key      as for `syncguard_lock`.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param options  NULL for all defaults.
 * @param out      gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`; NULL unless OK.
 * @param err      NULL, or gets an error below zero.
 * @return OK, it is held; LOCKED, another holder has it, in this process or another; below zero as for `syncguard_lock`, but
 * never ACQUISITION_TIMEOUT. The options' `user_data` as there.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_try_lock(struct syncguard_client *client,
                                         const char *key,
                                         size_t key_len,
                                         const struct syncguard_lock_options *options,
                                         struct syncguard_guard **out,
                                         struct syncguard_error **err);

/**
 * Takes the lock of a key if it is free: one attempt, whatever the options say of waiting. As `syncguard_try_lock`, but a key that
 * another holder has is an error, which says what is known of that holder.
 *
 * @param key      as for `syncguard_lock`.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param options  NULL for all defaults.
 * @param out      gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`; NULL unless OK.
 * @param err      NULL, or gets an error below zero.
 * @return OK, it is held; ACQUISITION_TIMEOUT, another holder has it, see `syncguard_error_holder`; else below zero as for
 * `syncguard_lock`. The options' `user_data` as there.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_lock_once(struct syncguard_client *client,
                                          const char *key,
                                          size_t key_len,
                                          const struct syncguard_lock_options *options,
                                          struct syncguard_guard **out,
                                          struct syncguard_error **err);

/**
 * The key, normalised.
 *
 * @return a text that belongs to the guard and lives until it is freed; NULL for NULL.
 * Threads: any. No I/O.
 */
const char *syncguard_guard_key(const struct syncguard_guard *guard);

/**
 * The id of this grant, 22 characters. Any process, in any language, that knows it can release or extend the lock.
 *
 * @return a text that belongs to the guard and lives until it is freed; NULL for NULL.
 * Threads: any. No I/O.
 */
const char *syncguard_guard_lock_id(const struct syncguard_guard *guard);

/**
 * The fencing token, 15 digits: larger, as a number and as a text, than that of every earlier grant of this key.
 *
 * @return a text that belongs to the guard and lives until it is freed; NULL for NULL.
 * Threads: any. No I/O.
 */
const char *syncguard_guard_fence(const struct syncguard_guard *guard);

/**
 * The fencing token as a number, from 1 to 999999999999999: it fits a BIGINT.
 *
 * @return the number; 0, which is no fence, for NULL.
 * Threads: any. No I/O.
 */
uint64_t syncguard_guard_fence_number(const struct syncguard_guard *guard);

/**
 * When the lease ends, in Unix milliseconds of the store's clock, as of the last renewal. For display; decide by
 * `syncguard_guard_remaining_ms`. 0 for NULL.
 * Threads: any. No I/O.
 */
int64_t syncguard_guard_expires_at_ms(const struct syncguard_guard *guard);

/**
 * How much longer this process may count on the lock, in whole milliseconds of the local monotonic clock, rounded down. 0 once
 * lost or released, and for NULL.
 * Threads: any. No I/O.
 */
int64_t syncguard_guard_remaining_ms(const struct syncguard_guard *guard);

/**
 * Whether this process can no longer count on the lock: it could not be renewed in time, or the store no longer has it. For
 * good. Compares the clock at the moment of the call. A released guard is not lost, unless it was before. True for NULL and in a
 * forked child.
 * Threads: any. No I/O.
 */
bool syncguard_guard_is_lost(const struct syncguard_guard *guard);

/**
 * Why the lock was lost. NONE while it is held, and if it was released before it could be lost. Compares the clock at the moment
 * of the call. FORKED in a forked child; NONE for NULL.
 * Threads: any. No I/O.
 */
enum syncguard_loss_reason syncguard_guard_loss_reason(const struct syncguard_guard *guard);

/**
 * A descriptor that becomes readable when the lock is lost, for `poll`, `select` and `epoll`. Made at the first call; the same
 * one ever after.
 *
 * @return a descriptor that belongs to the guard and is closed when that is freed: do not read from it and do not close it, and
 * take it out of an epoll set before the guard is freed. -1 for NULL, in a forked child, or if the process has no descriptor left.
 * Threads: any.
 */
int syncguard_guard_lost_fd(struct syncguard_guard *guard);

/**
 * Waits until the lock is lost.
 *
 * @param timeout_ms  how long at the most, or `SYNCGUARD_FOREVER`; 0 and any other negative value do not wait.
 * @return true: lost; false: released, freed, or the time is up. True at once for NULL and in a forked child.
 * Threads: any.
 */
bool syncguard_guard_wait_lost(const struct syncguard_guard *guard,
                               int64_t timeout_ms);

/**
 * Waits until the lock is lost or released, a token is triggered, or the time is over, whichever comes first: for a thread that watches
 * the work under a lock.
 *
 * @param timeout_ms  how long at the most, or `SYNCGUARD_FOREVER`; 0 and any other negative value only look.
 * @param cancel      NULL, or ends the wait. The token's own time limit ends it too.
 * @return what ended the wait. Of several, a loss is answered first and a release next. LOST at once for NULL and in a forked child;
 * OTHER at once for a token that is none.
 * Threads: any, also several at once.
 */
enum syncguard_wait_end syncguard_guard_wait_end(const struct syncguard_guard *guard,
                                                 int64_t timeout_ms,
                                                 struct syncguard_cancel *cancel);

/**
 * Sets the lease to `ttl_ms` from now, and renews with that from now on. Less than what remains shortens it.
 *
 * @param ttl_ms  at least 1, at most ten years.
 * @param cancel  NULL, or ends the call.
 * @param err     NULL, or gets an error below zero.
 * @return OK, still held; ABSENT, it was lost or released, also in the middle of this call, which needs no I/O once known;
 * INVALID_ARGUMENT for NULL or a bad ttl; below zero as `syncguard_status` says, after which the lease counts as the shorter of
 * what it was and what was asked for.
 * Threads: any. Waits for a renewal under way; blocks up to the operation timeout.
 */
enum syncguard_status syncguard_guard_extend(struct syncguard_guard *guard,
                                             int64_t ttl_ms,
                                             struct syncguard_cancel *cancel,
                                             struct syncguard_error **err);

/**
 * Ends the renewal and releases the lock, whatever this process believes of it, and reports. Does not free the guard.
 * May be repeated: once the store has answered, nothing more is sent and the answer is ABSENT; after an error it is tried again.
 *
 * @param cancel  NULL, or ends the call.
 * @param err     NULL, or gets an error below zero.
 * @return OK, this call removed the lock; ABSENT, it was gone already; INVALID_ARGUMENT for NULL; below zero as `syncguard_status` says:
 * the lock may then be held until its ttl has passed.
 * Threads: any, also inside the guard's own callback; otherwise it waits, up to a second, for one that runs. Blocks up to the
 * operation timeout.
 */
enum syncguard_status syncguard_guard_release(struct syncguard_guard *guard,
                                              struct syncguard_cancel *cancel,
                                              struct syncguard_error **err);

/**
 * How long the call that took the lock went on until the store granted it, in whole milliseconds, rounded down: the time in line,
 * the sleeps and the attempts. 0 for NULL.
 * Threads: any. No I/O.
 */
int64_t syncguard_guard_waited_ms(const struct syncguard_guard *guard);

/**
 * Frees a guard, and releases the lock if that was not done. NULL is fine. Never fails: trouble goes to `on_release_error`.
 * A call of another thread that uses it ends safely; one that waits for the loss returns false. In a forked child nothing is
 * sent and the lock stays the parent's.
 * Threads: any, also inside the guard's own callback. Blocks up to the dispose timeout.
 */
void syncguard_guard_free(struct syncguard_guard *guard);

/**
 * Takes the lock of a key if it is free: one attempt. Nothing is renewed and nothing is undone; `syncguard_lock` does both.
 *
 * @param key      1 to 512 bytes of UTF-8 after NFC, without U+0000.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param ttl_ms   how long the lease lasts; at least 1, at most ten years.
 * @param cancel   NULL, or ends the call.
 * @param out      gets the grant. Its `lock_id` is filled in before anything is sent: after a status below zero the lock may have
 *                 been taken under it, and releasing it is safe. Untouched after INVALID_ARGUMENT for an argument.
 * @param err      NULL, or gets an error below zero.
 * @return OK; LOCKED, another holder has it; INVALID_ARGUMENT for NULL, a bad key or ttl; AUTH_FAILED, SERVICE_UNAVAILABLE,
 * RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_acquire(struct syncguard_client *client,
                                        const char *key,
                                        size_t key_len,
                                        int64_t ttl_ms,
                                        struct syncguard_cancel *cancel,
                                        struct syncguard_acquired *out,
                                        struct syncguard_error **err);

/**
 * Releases the lock with this id, whichever process acquired it, in any language.
 *
 * @param lock_id      22 characters of `[A-Za-z0-9_-]`.
 * @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel       NULL, or ends the call.
 * @param err          NULL, or gets an error below zero.
 * @return OK, this call removed it; ABSENT, there was no such live lock; INVALID_ARGUMENT for NULL or what is no lock id;
 * AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_release(struct syncguard_client *client,
                                        const char *lock_id,
                                        size_t lock_id_len,
                                        struct syncguard_cancel *cancel,
                                        struct syncguard_error **err);

/**
 * Sets the lease of the lock with this id to `ttl_ms` from now. Replaces, never adds, never revives.
 *
 * @param lock_id        22 characters of `[A-Za-z0-9_-]`.
 * @param lock_id_len    its length in bytes, or `SYNCGUARD_NUL`.
 * @param ttl_ms         at least 1, at most ten years.
 * @param cancel         NULL, or ends the call.
 * @param expires_at_ms  gets when the lease ends, in Unix milliseconds of the store's clock; written if OK.
 * @param err            NULL, or gets an error below zero.
 * @return OK; ABSENT, there was no such live lock; INVALID_ARGUMENT for NULL, what is no lock id, or a bad ttl; AUTH_FAILED,
 * SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_extend(struct syncguard_client *client,
                                       const char *lock_id,
                                       size_t lock_id_len,
                                       int64_t ttl_ms,
                                       struct syncguard_cancel *cancel,
                                       int64_t *expires_at_ms,
                                       struct syncguard_error **err);

/**
 * Whether a key is locked. Do not decide by it before a write: the lock may change hands between the two.
 *
 * @param key      as for `syncguard_acquire`.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel   NULL, or ends the call.
 * @param out      gets the answer; written if OK.
 * @param err      NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL or a bad key; AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED,
 * INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_is_locked(struct syncguard_client *client,
                                          const char *key,
                                          size_t key_len,
                                          struct syncguard_cancel *cancel,
                                          bool *out,
                                          struct syncguard_error **err);

/**
 * The live lock of a key, without its secrets. For people and dashboards; do not decide by it before a write.
 *
 * @param key      as for `syncguard_acquire`.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel   NULL, or ends the call.
 * @param out      gets what is known of it; written if OK.
 * @param err      NULL, or gets an error below zero.
 * @return OK; ABSENT, it is not locked; below zero as for `syncguard_is_locked`.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_lookup_by_key(struct syncguard_client *client,
                                              const char *key,
                                              size_t key_len,
                                              struct syncguard_cancel *cancel,
                                              struct syncguard_lock_info *out,
                                              struct syncguard_error **err);

/**
 * The live lock with this id, without its secrets. For people and dashboards; do not decide by it before a write.
 *
 * @param lock_id      22 characters of `[A-Za-z0-9_-]`.
 * @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel       NULL, or ends the call.
 * @param out          gets what is known of it; written if OK.
 * @param err          NULL, or gets an error below zero.
 * @return OK; ABSENT, there is no such live lock; INVALID_ARGUMENT for NULL or what is no lock id; else below zero as for
 * `syncguard_is_locked`.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_lookup_by_id(struct syncguard_client *client,
                                             const char *lock_id,
                                             size_t lock_id_len,
                                             struct syncguard_cancel *cancel,
                                             struct syncguard_lock_info *out,
                                             struct syncguard_error **err);

/**
 * As `syncguard_lookup_by_key`, with the raw key and lock id: keep them out of logs.
 *
 * @param key      as for `syncguard_acquire`.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel   NULL, or ends the call.
 * @param out      gets what is known of it; written if OK.
 * @param err      NULL, or gets an error below zero.
 * @return as `syncguard_lookup_by_key`.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_lookup_by_key_raw(struct syncguard_client *client,
                                                  const char *key,
                                                  size_t key_len,
                                                  struct syncguard_cancel *cancel,
                                                  struct syncguard_lock_info_raw *out,
                                                  struct syncguard_error **err);

/**
 * As `syncguard_lookup_by_id`, with the raw key and lock id: keep them out of logs.
 *
 * @param lock_id      22 characters of `[A-Za-z0-9_-]`.
 * @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel       NULL, or ends the call.
 * @param out          gets what is known of it; written if OK.
 * @param err          NULL, or gets an error below zero.
 * @return as `syncguard_lookup_by_id`.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_lookup_by_id_raw(struct syncguard_client *client,
                                                 const char *lock_id,
                                                 size_t lock_id_len,
                                                 struct syncguard_cancel *cancel,
                                                 struct syncguard_lock_info_raw *out,
                                                 struct syncguard_error **err);

/**
 * Whether the lock with this id is alive. For diagnosis; do not decide by it before a write.
 *
 * @param lock_id      22 characters of `[A-Za-z0-9_-]`.
 * @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param out          gets the answer; written if OK.
 * @param err          NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL or what is no lock id; else below zero as for `syncguard_is_locked`, but never ABORTED.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_owns(struct syncguard_client *client,
                                     const char *lock_id,
                                     size_t lock_id_len,
                                     bool *out,
                                     struct syncguard_error **err);

/**
 * As `syncguard_owns`, and a token ends it.
 *
 * @param lock_id      22 characters of `[A-Za-z0-9_-]`.
 * @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel       NULL, or ends the call.
 * @param out          gets the answer; written if OK.
 * @param err          NULL, or gets an error below zero.
 * @return as `syncguard_owns`, and ABORTED.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_owns_with(struct syncguard_client *client,
                                          const char *lock_id,
                                          size_t lock_id_len,
                                          struct syncguard_cancel *cancel,
                                          bool *out,
                                          struct syncguard_error **err);

/**
 * As `syncguard_lookup_by_key_raw`, and what the holder says of itself: in the same round trip.
 *
 * @param key      as for `syncguard_acquire`.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel   NULL, or ends the call.
 * @param out      gets what is known of the lock; written if OK.
 * @param holder   gets the text, NUL-terminated, empty if the holder says nothing; written if OK. Any program that can write to the
 *                 store can write any text.
 * @param err      NULL, or gets an error below zero.
 * @return as `syncguard_lookup_by_key_raw`.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_lookup_by_key_held(struct syncguard_client *client,
                                                   const char *key,
                                                   size_t key_len,
                                                   struct syncguard_cancel *cancel,
                                                   struct syncguard_lock_info_raw *out,
                                                   char (*holder)[201],
                                                   struct syncguard_error **err);

/**
 * The same, by the lock id.
 *
 * @param lock_id      22 characters of `[A-Za-z0-9_-]`.
 * @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel       NULL, or ends the call.
 * @param out          gets what is known of the lock; written if OK.
 * @param holder       gets the text, NUL-terminated, empty if the holder says nothing; written if OK.
 * @param err          NULL, or gets an error below zero.
 * @return as `syncguard_lookup_by_id_raw`.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_lookup_by_id_held(struct syncguard_client *client,
                                                  const char *lock_id,
                                                  size_t lock_id_len,
                                                  struct syncguard_cancel *cancel,
                                                  struct syncguard_lock_info_raw *out,
                                                  char (*holder)[201],
                                                  struct syncguard_error **err);

/**
 * What the holder of a key says of itself, of a live lock. A pure read. Raw data for people: any program that can write to the store can
 * write any text.
 *
 * @param key      the name of the lock.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel   NULL, or ends the call.
 * @param out      gets the text, NUL-terminated; empty if the holder says nothing.
 * @param err      NULL, or gets an error below zero.
 * @return OK, or ABSENT if the lock is not held.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_holder_text_by_key(struct syncguard_client *client,
                                                   const char *key,
                                                   size_t key_len,
                                                   struct syncguard_cancel *cancel,
                                                   char (*out)[201],
                                                   struct syncguard_error **err);

/**
 * The same, by the lock id.
 *
 * @param lock_id      22 characters.
 * @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel       NULL, or ends the call.
 * @param out          gets the text, NUL-terminated; empty if the holder says nothing.
 * @param err          NULL, or gets an error below zero.
 * @return OK, or ABSENT if no live lock has the id.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_holder_text_by_id(struct syncguard_client *client,
                                                  const char *lock_id,
                                                  size_t lock_id_len,
                                                  struct syncguard_cancel *cancel,
                                                  char (*out)[201],
                                                  struct syncguard_error **err);

/**
 * As `syncguard_acquire`, and says which holder has the key, where the store tells it: in the same round trip.
 *
 * @param key      as for `syncguard_acquire`.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param ttl_ms   as for `syncguard_acquire`.
 * @param cancel   NULL, or ends the call.
 * @param out      as for `syncguard_acquire`.
 * @param holder   gets what is known of the holder; written if LOCKED.
 * @param err      NULL, or gets an error below zero.
 * @return as `syncguard_acquire`.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_acquire_or_holder(struct syncguard_client *client,
                                                  const char *key,
                                                  size_t key_len,
                                                  int64_t ttl_ms,
                                                  struct syncguard_cancel *cancel,
                                                  struct syncguard_acquired *out,
                                                  struct syncguard_holder *holder,
                                                  struct syncguard_error **err);

/**
 * Lists live locks, a page at a time. For people and dashboards; do not decide by it before a write. A lock can be on two pages, and
 * one that is taken or released meanwhile can be missing.
 *
 * @param prefix      what keys must begin with; NULL or "" for all.
 * @param prefix_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param examine     how many stored entries to examine, about, so that one call bounds what it costs the store: 1 to 10000, or 0
 *                    for 500. A page may be empty although more follow.
 * @param after       NULL for the first page; else what `syncguard_page_next` gave, with the same prefix.
 * @param cancel      NULL, or ends the call.
 * @param out         gets the page, which belongs to the caller and is freed with `syncguard_page_free`; NULL unless OK.
 * @param err         NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL, a prefix that no key can have, a number that is too large, or a text that was not given
 * by this store: begin anew; AUTH_FAILED, on Redis also without the right to SCAN; SERVICE_UNAVAILABLE, RATE_LIMITED,
 * NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_client_list(struct syncguard_client *client,
                                            const char *prefix,
                                            size_t prefix_len,
                                            uint32_t examine,
                                            const char *after,
                                            struct syncguard_cancel *cancel,
                                            struct syncguard_page **out,
                                            struct syncguard_error **err);

/**
 * How many locks the page has. 0 for NULL.
 * Threads: any. No I/O.
 */
size_t syncguard_page_count(const struct syncguard_page *page);

/**
 * A lock of the page, without its secrets.
 *
 * @param index  which one: less than `syncguard_page_count`.
 * @param out    gets the lock; written if OK.
 * @param err    NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL and for an index that the page does not have.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_page_info(const struct syncguard_page *page,
                                          size_t index,
                                          struct syncguard_lock_info *out,
                                          struct syncguard_error **err);

/**
 * A lock of the page with its raw key and lock id: keep them out of logs.
 *
 * @param index  which one: less than `syncguard_page_count`.
 * @param out    gets the lock; written if OK.
 * @param err    NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL and for an index that the page does not have; INTERNAL for a lock that another program stored
 * under a key that this library does not take.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_page_info_raw(const struct syncguard_page *page,
                                              size_t index,
                                              struct syncguard_lock_info_raw *out,
                                              struct syncguard_error **err);

/**
 * What the holder of a lock of the page says of itself. Raw data for people: any program that can write to the store can write any
 * text.
 *
 * @return a text that belongs to the page and lives as long as it; NULL if the holder says nothing, for an index that the page does
 * not have, and for NULL.
 * Threads: any. No I/O.
 */
const char *syncguard_page_holder_text(const struct syncguard_page *page,
                                       size_t index);

/**
 * Where the next page begins, for `after` of `syncguard_client_list`. It may hold a raw key.
 *
 * @return a text that belongs to the page and lives as long as it; NULL if this is the last page, and for NULL.
 * Threads: any. No I/O.
 */
const char *syncguard_page_next(const struct syncguard_page *page);

/**
 * Frees a page. NULL is fine.
 * Threads: any.
 */
void syncguard_page_free(struct syncguard_page *page);

/**
 * Checks the store as `syncguard_client_check` does, tries ten cycles on a key of its own, and answers what it found line by line, for
 * people and for scripts that deploy. Trouble of the store is a finding here and not a status. Warnings go to `on_warning` too.
 *
 * @param out  gets the report, which belongs to the caller and is freed with `syncguard_report_free`; NULL unless OK.
 * @param err  NULL, or gets an error below zero.
 * @return OK: the check was made, whatever it found; INVALID_ARGUMENT for NULL.
 * Threads: any. Each of its calls of the store blocks up to the operation timeout.
 */
enum syncguard_status syncguard_client_report(struct syncguard_client *client,
                                              struct syncguard_report **out,
                                              struct syncguard_error **err);

/**
 * The most serious level of all findings: SYNCGUARD_CHECK_OK, _WARNING or _ERROR. ERROR for NULL.
 * Threads: any. No I/O.
 */
int32_t syncguard_report_level(const struct syncguard_report *report);

/**
 * The status that `syncguard_client_check` would answer: OK if locks work. INVALID_ARGUMENT for NULL.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_report_status(const struct syncguard_report *report);

/**
 * How many findings the report has. 0 for NULL.
 * Threads: any. No I/O.
 */
size_t syncguard_report_count(const struct syncguard_report *report);

/**
 * A finding of the report, in the order in which they were looked at. What an error keeps from being looked at is missing.
 *
 * @param index  which one: less than `syncguard_report_count`.
 * @param out    gets the finding; written if OK.
 * @param err    NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL and for an index that the report does not have.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_report_finding(const struct syncguard_report *report,
                                               size_t index,
                                               struct syncguard_finding *out,
                                               struct syncguard_error **err);

/**
 * Frees a report. NULL is fine.
 * Threads: any.
 */
void syncguard_report_free(struct syncguard_report *report);

/**
 * Creates the gate in the store of the client, for data that is kept there too: in Postgres a table and the function
 * syncguard_pass(resource, fence), in SQLite a table; Redis needs nothing. May be repeated, and run by many processes at once.
 *
 * @param cancel  NULL, or ends the call.
 * @param err     NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL, or if something else has the gate's names; AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED,
 * NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_client_setup_fence_gate(struct syncguard_client *client,
                                                        struct syncguard_cancel *cancel,
                                                        struct syncguard_error **err);

/**
 * Redis: stores a value under a name if the fence passes the gate of that name, in one step. The name is a key of your own outside of the
 * client's key_prefix, where every name belongs to a lock; its gate is that name with ":fence" behind it.
 *
 * @param name       1 to 512 bytes of UTF-8, without U+0000; it does not begin with the client's key_prefix and a colon, nor end with
 *                   ":fence". In a Redis Cluster it needs the hash tag of that prefix: "{app}data:account:7" for "{app}".
 * @param name_len   its length in bytes, or `SYNCGUARD_NUL`.
 * @param value      any bytes; copied into the request. NULL only with the length 0.
 * @param value_len  their number.
 * @param fence      of the guard that the caller holds: `syncguard_guard_fence_number`.
 * @param cancel     NULL, or ends the call.
 * @param err        NULL, or gets an error below zero.
 * @return OK, it was stored; REFUSED, a newer holder has written and nothing was changed: stop; INVALID_ARGUMENT for NULL, a bad name,
 * a fence that is 0 or over 900000000000000, or a store that is not Redis; AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED,
 * NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_fenced_set(struct syncguard_client *client,
                                           const char *name,
                                           size_t name_len,
                                           const void *value,
                                           size_t value_len,
                                           uint64_t fence,
                                           struct syncguard_cancel *cancel,
                                           struct syncguard_error **err);

/**
 * The newest fence that has passed the gate of a resource, for operators.
 *
 * @param resource      1 to 512 bytes of UTF-8, without U+0000.
 * @param resource_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param cancel        NULL, or ends the call.
 * @param fence         gets the fence; written if OK.
 * @param err           NULL, or gets an error below zero.
 * @return OK; ABSENT, none has passed; INVALID_ARGUMENT for NULL, a bad name, or a gate that is not set up; AUTH_FAILED,
 * SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_gate_newest(struct syncguard_client *client,
                                            const char *resource,
                                            size_t resource_len,
                                            struct syncguard_cancel *cancel,
                                            uint64_t *fence,
                                            struct syncguard_error **err);

/**
 * Forgets the newest fence of a resource if it is `seen`, so that any fence passes next. Only for an operator that has made sure that no
 * former holder is left, after the counters of the locks were lost.
 *
 * @param resource      1 to 512 bytes of UTF-8, without U+0000.
 * @param resource_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param seen          what `syncguard_gate_newest` answered.
 * @param cancel        NULL, or ends the call.
 * @param err           NULL, or gets an error below zero.
 * @return OK, it was forgotten; ABSENT, it is another one or none; INVALID_ARGUMENT for NULL, a bad name, or a gate that is not set up;
 * AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
 * Threads: any. Blocks up to the operation timeout.
 */
enum syncguard_status syncguard_gate_reset(struct syncguard_client *client,
                                           const char *resource,
                                           size_t resource_len,
                                           uint64_t seen,
                                           struct syncguard_cancel *cancel,
                                           struct syncguard_error **err);

/**
 * The SQL and Lua of the gates, for drivers of your own.
 *
 * @param which  one of the `SYNCGUARD_GATE_` numbers.
 * @return a static text; NULL for another number, and for those that need the name of a schema. Not to be freed.
 * Threads: any. No I/O.
 */
const char *syncguard_gate_text(int32_t which);

/**
 * The SQL of a gate in one schema of Postgres, for drivers of your own. The schema stands in the text, so that no other one in the
 * `search_path` of a session can come before it.
 *
 * @param which        `SYNCGUARD_GATE_POSTGRES_` PASS, SHARE, SETUP, NEWEST or RESET.
 * @param schema       the name of the schema: letters, digits and `_`.
 * @param schema_len   its length in bytes, or `SYNCGUARD_NUL`.
 * @param fence_table  for SHARE: the `fence_table_name` of the clients that lock, NUL-terminated, or NULL for the default.
 * @param text         gets the text and a NUL if `size` bytes are enough, else nothing. NULL only with the size 0.
 * @param size         how many bytes may be written there.
 * @param length       NULL, or gets the length of the text without its NUL: call with the size 0 to learn it.
 * @param err          NULL, or gets an error below zero.
 * @return OK, also if `size` is too small; INVALID_ARGUMENT for NULL, another number or a bad name.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_gate_postgres_text(int32_t which,
                                                   const char *schema,
                                                   size_t schema_len,
                                                   const char *fence_table,
                                                   char *text,
                                                   size_t size,
                                                   size_t *length,
                                                   struct syncguard_error **err);

/**
 * Takes the lock of a key, in one attempt, if no caller of this client waits for it and it is free; else joins the line, without
 * contacting the store if others came before.
 *
 * @param key        as for `syncguard_lock`.
 * @param key_len    its length in bytes, or `SYNCGUARD_NUL`.
 * @param options    NULL for all defaults. They hold for the whole wait and for the guard; `cancel` is for this call only.
 * @param wake       called, on any thread, when the place becomes the first one and when the lock may have been freed, perhaps
 *                   before this has returned. It must return at once and must not call anything here: write to a pipe or an eventfd.
 * @param wake_data  what `wake` is called with. It must live until the place is freed, and `wake` may still be running then.
 * @param out        gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`, or NULL.
 * @param place      gets the place, which belongs to the caller and is freed with `syncguard_waiter_free`, or NULL.
 * @param err        NULL, or gets an error below zero.
 * @return OK: one of the two is there, and the other is NULL; below zero as for `syncguard_lock`, if the wait is over at once, and
 * both are NULL. The options' `user_data` as there: the place keeps it for the guard, and it is finalized when both are freed.
 * Threads: any. Blocks up to the larger of the acquire timeout and the operation timeout.
 */
enum syncguard_status syncguard_lock_or_wait(struct syncguard_client *client,
                                             const char *key,
                                             size_t key_len,
                                             const struct syncguard_lock_options *options,
                                             void (*wake)(void *user_data),
                                             void *wake_data,
                                             struct syncguard_guard **out,
                                             struct syncguard_waiter **place,
                                             struct syncguard_error **err);

/**
 * Joins the line of a key without contacting the store: for a caller that has no thread for an attempt now. The rest is as for
 * `syncguard_lock_or_wait`.
 *
 * @param key        as for `syncguard_lock`.
 * @param key_len    its length in bytes, or `SYNCGUARD_NUL`.
 * @param options    as for `syncguard_lock_or_wait`.
 * @param wake       as there.
 * @param wake_data  as there.
 * @param out        gets the place, which belongs to the caller and is freed with `syncguard_waiter_free`; NULL unless OK.
 * @param err        NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL, a bad key or a bad option; ABORTED, the token was triggered; INTERNAL in a forked child.
 * The options' `user_data` as for `syncguard_lock_or_wait`.
 * Threads: any. Does not wait.
 */
enum syncguard_status syncguard_waiter_new(struct syncguard_client *client,
                                           const char *key,
                                           size_t key_len,
                                           const struct syncguard_lock_options *options,
                                           void (*wake)(void *user_data),
                                           void *wake_data,
                                           struct syncguard_waiter **out,
                                           struct syncguard_error **err);

/**
 * What to do next. Ask at the beginning, when a sleep is over or `wake` was called, and after each attempt.
 *
 * @param event  one of the `SYNCGUARD_WAITER_` numbers: why you ask.
 * @param ms     gets a time in milliseconds, rounded up; written for OK and LOCKED.
 * @param err    NULL, or gets an error below zero.
 * @return OK: call `syncguard_waiter_try_lock` now; the attempt ends by itself within `ms` from now. LOCKED: ask again after `ms`,
 * or as soon as `wake` is called. Below zero: the wait is over, so free the place; ACQUISITION_TIMEOUT and the rest as for
 * `syncguard_lock`, ABORTED after `SYNCGUARD_WAITER_CANCELLED`; INVALID_ARGUMENT for NULL, for an unknown event, during an attempt,
 * and for a wait that has ended before.
 * Threads: any, one at a time. No I/O; does not wait.
 */
enum syncguard_status syncguard_waiter_next(struct syncguard_waiter *waiter,
                                            int32_t event,
                                            int64_t *ms,
                                            struct syncguard_error **err);

/**
 * Makes the attempt that `syncguard_waiter_next` called for; without that it makes one only if one is due. Does not free the place:
 * do that once the lock is held.
 *
 * @param cancel  NULL, or ends the attempt, and with it the wait.
 * @param out     gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`; NULL unless OK.
 * @param err     NULL, or gets an error below zero.
 * @return OK, it is held; LOCKED, it is not, and `syncguard_waiter_next` says what to do; below zero, the wait is over, as there. If
 * less than half of an operation timeout was left and the store did not answer in it: the trouble that others in line met, or
 * ACQUISITION_TIMEOUT if they were answered.
 * Threads: any, one at a time. Blocks up to the larger of the acquire timeout and the operation timeout, counted from when the wait
 * began, or 30 ms if that is over.
 */
enum syncguard_status syncguard_waiter_try_lock(struct syncguard_waiter *waiter,
                                                struct syncguard_cancel *cancel,
                                                struct syncguard_guard **out,
                                                struct syncguard_error **err);

/**
 * Leaves the line, lets the next one try, and frees the place. NULL is fine. `wake` may still be running on another thread.
 * Threads: any, but not inside `wake`.
 */
void syncguard_waiter_free(struct syncguard_waiter *waiter);

/**
 * The display hash of a key, as it stands in errors, events and lookups: 24 hex digits over its NFC form. It tells keys apart
 * in logs; it is not for security.
 *
 * @param key      the key, as for `syncguard_acquire`.
 * @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param out      an array of 25, gets the digits and a NUL; written if OK.
 * @param err      NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL or a bad key.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_hash_key(const char *key,
                                         size_t key_len,
                                         char *out,
                                         struct syncguard_error **err);

/**
 * Whether a text is a lock id: exactly 22 of `[A-Za-z0-9_-]`.
 *
 * @param lock_id      the text.
 * @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param err          NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT if it is none, or NULL. The message does not repeat it.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_validate_lock_id(const char *lock_id,
                                                 size_t lock_id_len,
                                                 struct syncguard_error **err);

/**
 * The number of a fence that a struct holds as a text: it fits a BIGINT.
 *
 * @param fence      the text, exactly 15 digits, such as that in a `syncguard_acquired`.
 * @param fence_len  its length in bytes, or `SYNCGUARD_NUL`.
 * @param out        gets the number; 0 unless OK.
 * @param err        NULL, or gets an error below zero.
 * @return OK; INVALID_ARGUMENT for NULL and for a text that is no fence.
 * Threads: any. No I/O.
 */
enum syncguard_status syncguard_parse_fence(const char *fence,
                                            size_t fence_len,
                                            uint64_t *out,
                                            struct syncguard_error **err);

/**
 * Fills in the defaults: every field that is 0 and has one gets it. Fields beyond `struct_size`, callbacks and data stay as they
 * are. Does nothing for NULL or a `struct_size` that is none. For bindings that wait by themselves.
 * Threads: any, as long as no other uses the struct. No I/O.
 */
void syncguard_lock_options_resolve(struct syncguard_lock_options *options);

/**
 * How long to wait before the next attempt, for callers that wait by themselves between calls of `syncguard_try_lock` or
 * `syncguard_acquire`. Random where the options say so: two calls answer differently.
 *
 * @param options       NULL for all defaults. Callbacks and data are not touched and not taken over.
 * @param attempt       how many attempts have failed, from 1.
 * @param remaining_ms  how much of the whole wait is left, or `SYNCGUARD_FOREVER`.
 * @return milliseconds; -1: give up, because the time or the retries are used up, or the options are not valid.
 * Threads: any. No I/O.
 */
int64_t syncguard_retry_delay_ms(const struct syncguard_lock_options *options,
                                 uint32_t attempt,
                                 int64_t remaining_ms);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SYNCGUARD_H */
