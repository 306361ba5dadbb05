package syncguard

// Every call of C, and nothing else. Texts go in as they are: the library copies what must live on, and a Go string is never
// changed. Answers come by value.

/*
#include <stdlib.h>
#include "shim.h"

// An empty Go string may have no address.
static const char *sg_text(_GoString_ s) { return _GoStringLen(s) ? _GoStringPtr(s) : ""; }

static sg_go_opened sg_open(_GoString_ url, syncguard_client_options options, int hooks, uintptr_t id) {
  sg_go_opened a = {0};
  sg_go_client_hooks(&options, hooks, id);
  a.status = syncguard_client_open(sg_text(url), _GoStringLen(url), &options, &a.client, &a.err);
  return a;
}

static sg_go_answer sg_setup_schema(syncguard_client *c, syncguard_cancel *cancel) {
  sg_go_answer a = {0};
  a.status = syncguard_client_setup_schema(c, cancel, &a.err);
  return a;
}

static sg_go_answer sg_check(syncguard_client *c, syncguard_cancel *cancel) {
  sg_go_answer a = {0};
  a.status = syncguard_client_check(c, cancel, &a.err);
  return a;
}

static sg_go_number sg_purge(syncguard_client *c, uint32_t limit, syncguard_cancel *cancel) {
  sg_go_number a = {0};
  uint64_t n = 0;
  a.status = syncguard_client_purge_expired(c, limit, cancel, &n, &a.err);
  a.number = (int64_t)n;
  return a;
}

// One attempt, unless the caller is to stand in line.
static sg_go_granted sg_try_lock(syncguard_client *c, _GoString_ key, syncguard_lock_options options, int hooks, uintptr_t id,
                                 syncguard_cancel *cancel, int polite) {
  sg_go_granted a = {0};
  const char *text = sg_text(key);
  size_t len = _GoStringLen(key);
  bool line = false;
  if (polite && syncguard_is_waited_for(c, text, len, &line, NULL) == SYNCGUARD_STATUS_OK && line) {
    a.status = SG_GO_JOIN;
    return a;
  }
  options.cancel = cancel;
  sg_go_guard_hooks(&options, hooks, id);
  a.status = syncguard_try_lock(c, text, len, &options, &a.guard, &a.err);
  if (a.guard != NULL) {
    a.key = syncguard_guard_key(a.guard);
    a.lock_id = syncguard_guard_lock_id(a.guard);
    a.fence = syncguard_guard_fence(a.guard);
  }
  return a;
}

static sg_go_joined sg_join(syncguard_client *c, _GoString_ key, uintptr_t id) {
  sg_go_joined a = {0};
  a.status = sg_go_waiter_new(c, sg_text(key), _GoStringLen(key), id, &a.waiter, &a.err);
  return a;
}

static int64_t sg_retry_delay_ms(syncguard_lock_options options, uint32_t attempt, int64_t remaining) {
  return syncguard_retry_delay_ms(&options, attempt, remaining);
}

static int32_t sg_max_retries(syncguard_lock_options options) {
  syncguard_lock_options_resolve(&options);
  return options.max_retries;
}

static int64_t sg_acquire_timeout_ms(syncguard_lock_options options) {
  syncguard_lock_options_resolve(&options);
  return options.acquire_timeout_ms;
}

static sg_go_answer sg_guard_extend(syncguard_guard *g, int64_t ttl, syncguard_cancel *cancel) {
  sg_go_answer a = {0};
  a.status = syncguard_guard_extend(g, ttl, cancel, &a.err);
  return a;
}

// A release, with what must be asked before it and what cannot be asked after the guard is freed.
static sg_go_released sg_guard_release(syncguard_guard *g, syncguard_cancel *cancel) {
  sg_go_released a = {0};
  a.was_lost = syncguard_guard_is_lost(g);
  a.status = syncguard_guard_release(g, cancel, &a.err);
  a.expires_at_ms = syncguard_guard_expires_at_ms(g);
  return a;
}

static sg_go_acquired sg_acquire(syncguard_client *c, _GoString_ key, int64_t ttl, syncguard_cancel *cancel) {
  sg_go_acquired a = {0};
  a.status = syncguard_acquire(c, sg_text(key), _GoStringLen(key), ttl, cancel, &a.acquired, &a.err);
  return a;
}

static sg_go_answer sg_release(syncguard_client *c, _GoString_ id, syncguard_cancel *cancel) {
  sg_go_answer a = {0};
  a.status = syncguard_release(c, sg_text(id), _GoStringLen(id), cancel, &a.err);
  return a;
}

static sg_go_number sg_extend(syncguard_client *c, _GoString_ id, int64_t ttl, syncguard_cancel *cancel) {
  sg_go_number a = {0};
  a.status = syncguard_extend(c, sg_text(id), _GoStringLen(id), ttl, cancel, &a.number, &a.err);
  return a;
}

static sg_go_number sg_is_locked(syncguard_client *c, _GoString_ key, syncguard_cancel *cancel) {
  sg_go_number a = {0};
  bool yes = false;
  a.status = syncguard_is_locked(c, sg_text(key), _GoStringLen(key), cancel, &yes, &a.err);
  a.number = yes;
  return a;
}

static sg_go_found sg_lookup(syncguard_client *c, _GoString_ what, int by_id, int raw, syncguard_cancel *cancel) {
  sg_go_found a = {0};
  const char *text = sg_text(what);
  size_t len = _GoStringLen(what);
  if (raw) {
    a.status = (by_id ? syncguard_lookup_by_id_raw : syncguard_lookup_by_key_raw)(c, text, len, cancel, &a.found, &a.err);
  } else {
    a.status = (by_id ? syncguard_lookup_by_id : syncguard_lookup_by_key)(c, text, len, cancel, &a.found.info, &a.err);
  }
  return a;
}

typedef struct {
  int32_t status;
  syncguard_error *err;
  char text[25];
} sg_hashed;

static sg_hashed sg_hash_key(_GoString_ key) {
  sg_hashed a = {0};
  a.status = syncguard_hash_key(sg_text(key), _GoStringLen(key), a.text, &a.err);
  return a;
}

static sg_go_answer sg_validate_lock_id(_GoString_ id) {
  sg_go_answer a = {0};
  a.status = syncguard_validate_lock_id(sg_text(id), _GoStringLen(id), &a.err);
  return a;
}
*/
import "C"

import (
	"unsafe"
)

type (
	cClient      = *C.syncguard_client
	cGuard       = *C.syncguard_guard
	cWaiter      = *C.syncguard_waiter
	cCancel      = *C.syncguard_cancel
	cLockOptions = C.syncguard_lock_options
	cMillis      = C.int64_t
	cRetries     = C.int32_t
	cDelay       = C.uint32_t
	cEnum        = C.int32_t
)

const statusJoin = C.SG_GO_JOIN

func statusName(status int32) string { return C.GoString(C.syncguard_status_str(C.int32_t(status))) }

func versionString() string { return C.GoString(C.syncguard_version_string()) }

// readError copies an error that stays C's.
func readError(err *C.syncguard_error) *Error {
	if err == nil {
		return nil
	}
	return &Error{
		Code:     Code(C.syncguard_error_status(err)),
		Message:  C.GoString(C.syncguard_error_message(err)),
		KeyHash:  C.GoString(C.syncguard_error_key_hash(err)),
		Attempts: int(C.syncguard_error_attempts(err)),
	}
}

// answered is nil for OK, else the error; it takes err over.
func answered(status C.int32_t, err *C.syncguard_error) *Error {
	switch {
	case status == 0:
		return nil
	case err == nil:
		return &Error{Code: Code(status)}
	}
	defer C.syncguard_error_free(err)
	return readError(err)
}

func cOpen(url string, o *clientOptions, hooks uintptr) (cClient, *Error) {
	options := C.syncguard_client_options{
		pool_size:            C.uint32_t(o.pool),
		connect_timeout_ms:   C.uint32_t(o.connect),
		operation_timeout_ms: C.uint32_t(o.operation),
		dispose_timeout_ms:   C.uint32_t(o.dispose),
		cleanup_in_is_locked: flag(o.cleanup),
		events_include_raw:   flag(o.raw),
	}
	options.struct_size = C.size_t(unsafe.Sizeof(options))
	for _, text := range []struct {
		from *string
		to   **C.char
	}{
		{o.prefix, &options.key_prefix},
		{o.schema, &options.schema},
		{o.table, &options.table_name},
		{o.fenceTable, &options.fence_table_name},
		{o.caFile, &options.tls_ca_file},
	} {
		if text.from != nil {
			*text.to = C.CString(*text.from)
			defer C.free(unsafe.Pointer(*text.to))
		}
	}
	var which C.int
	if o.hooks.releaseError != nil {
		which |= C.SG_GO_HOOK_RELEASE_ERROR
	}
	if o.hooks.event != nil {
		which |= C.SG_GO_HOOK_EVENT
	}
	if o.hooks.warning != nil {
		which |= C.SG_GO_HOOK_WARNING
	}
	a := C.sg_open(url, options, which, C.uintptr_t(hooks))
	return a.client, answered(a.status, a.err)
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

func cClientFree(p unsafe.Pointer, _ bool) { C.syncguard_client_free(cClient(p)) }

func cBackend(c cClient) string { return C.GoString(C.syncguard_client_backend(c)) }

func cSetupSchema(c cClient, cancel cCancel) *Error {
	a := C.sg_setup_schema(c, cancel)
	return answered(a.status, a.err)
}

func cCheck(c cClient, cancel cCancel) *Error {
	a := C.sg_check(c, cancel)
	return answered(a.status, a.err)
}

func cPurge(c cClient, limit uint32, cancel cCancel) (int64, *Error) {
	a := C.sg_purge(c, C.uint32_t(limit), cancel)
	return int64(a.number), answered(a.status, a.err)
}

func lockDefaults() cLockOptions {
	var o cLockOptions
	o.struct_size = C.size_t(unsafe.Sizeof(o))
	return o
}

type granted struct {
	guard              cGuard
	key, lockID, fence string
}

// cTryLock makes one attempt. Its code is statusJoin if polite and somebody waits.
func cTryLock(c cClient, key string, o *lockOptions, id uintptr, cancel cCancel, polite bool) (granted, *Error) {
	var hooks C.int
	if o.releaseError != nil {
		hooks = C.SG_GO_HOOK_RELEASE_ERROR
	}
	a := C.sg_try_lock(c, key, o.raw, hooks, C.uintptr_t(id), cancel, C.int(flag(polite)))
	if a.guard == nil {
		return granted{}, answered(a.status, a.err)
	}
	return granted{a.guard, C.GoString(a.key), C.GoString(a.lock_id), C.GoString(a.fence)}, nil
}

func cJoin(c cClient, key string, id uintptr) (cWaiter, *Error) {
	a := C.sg_join(c, key, C.uintptr_t(id))
	return a.waiter, answered(a.status, a.err)
}

func cIsCalled(w cWaiter) bool { return bool(C.syncguard_waiter_is_called(w)) }

func cIsFirst(w cWaiter) bool { return bool(C.syncguard_waiter_is_first(w)) }

func cBeginAttempt(w cWaiter) { C.syncguard_waiter_begin_attempt(w) }

func cLeave(w cWaiter) { C.syncguard_waiter_free(w) }

// cRetryDelay is in milliseconds; -1 to give up.
func cRetryDelay(o *lockOptions, attempt uint32, remaining int64) int64 {
	return int64(C.sg_retry_delay_ms(o.raw, C.uint32_t(attempt), C.int64_t(remaining)))
}

// cMaxRetries is -1 for no limit.
func cMaxRetries(o *lockOptions) int32 { return int32(C.sg_max_retries(o.raw)) }

// cAcquireTimeout is in milliseconds; -1 for no limit.
func cAcquireTimeout(o *lockOptions) int64 { return int64(C.sg_acquire_timeout_ms(o.raw)) }

func cExpiresAt(g cGuard) int64 { return int64(C.syncguard_guard_expires_at_ms(g)) }

func cRemaining(g cGuard) int64 { return int64(C.syncguard_guard_remaining_ms(g)) }

func cIsLost(g cGuard) bool { return bool(C.syncguard_guard_is_lost(g)) }

func cGuardExtend(g cGuard, ttl int64, cancel cCancel) *Error {
	a := C.sg_guard_extend(g, C.int64_t(ttl), cancel)
	return answered(a.status, a.err)
}

func cGuardRelease(g cGuard, cancel cCancel) (wasLost bool, expires int64, err *Error) {
	a := C.sg_guard_release(g, cancel)
	return bool(a.was_lost), int64(a.expires_at_ms), answered(a.status, a.err)
}

func cGuardFree(g cGuard) { C.syncguard_guard_free(g) }

func cCancelNew() cCancel { return C.syncguard_cancel_new() }

func cCancelTrigger(c cCancel) { C.syncguard_cancel_trigger(c) }

func cCancelFree(c cCancel) { C.syncguard_cancel_free(c) }

func cAcquire(c cClient, key string, ttl int64, cancel cCancel) (lockID, fence string, expires int64, err *Error) {
	a := C.sg_acquire(c, key, C.int64_t(ttl), cancel)
	return chars(a.acquired.lock_id[:]), chars(a.acquired.fence[:]), int64(a.acquired.expires_at_ms), answered(a.status, a.err)
}

func cRelease(c cClient, lockID string, cancel cCancel) *Error {
	a := C.sg_release(c, lockID, cancel)
	return answered(a.status, a.err)
}

func cExtend(c cClient, lockID string, ttl int64, cancel cCancel) (int64, *Error) {
	a := C.sg_extend(c, lockID, C.int64_t(ttl), cancel)
	return int64(a.number), answered(a.status, a.err)
}

func cIsLocked(c cClient, key string, cancel cCancel) (bool, *Error) {
	a := C.sg_is_locked(c, key, cancel)
	return a.number != 0, answered(a.status, a.err)
}

func cLookup(c cClient, what string, byID, raw bool, cancel cCancel) (found LockInfoRaw, err *Error) {
	a := C.sg_lookup(c, what, C.int(flag(byID)), C.int(flag(raw)), cancel)
	if err := answered(a.status, a.err); err != nil {
		return LockInfoRaw{}, err
	}
	info := &a.found.info
	return LockInfoRaw{
		LockInfo: LockInfo{
			KeyHash:    chars(info.key_hash[:]),
			LockIDHash: chars(info.lock_id_hash[:]),
			Fence:      chars(info.fence[:]),
			ExpiresAt:  unixMilli(int64(info.expires_at_ms)),
			AcquiredAt: unixMilli(int64(info.acquired_at_ms)),
		},
		Key:    chars(a.found.key[:]),
		LockID: chars(a.found.lock_id[:]),
	}, nil
}

func cHashKey(key string) (string, *Error) {
	a := C.sg_hash_key(key)
	return chars(a.text[:]), answered(a.status, a.err)
}

func cValidateLockID(lockID string) *Error {
	a := C.sg_validate_lock_id(lockID)
	return answered(a.status, a.err)
}

// chars is the text in a C array.
func chars(array []C.char) string {
	text := make([]byte, 0, len(array))
	for _, c := range array {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return string(text)
}
