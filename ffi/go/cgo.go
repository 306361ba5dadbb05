package syncguard

// Every call of C, and nothing else. Texts are passed without a copy: the library copies what must live on, and a Go string never
// changes. Answers come by value.

/*
// Without pkg-config the directories come from CGO_CFLAGS and CGO_LDFLAGS.
#cgo !syncguard_nopkgconfig,!syncguard_static pkg-config: syncguard
#cgo syncguard_static pkg-config: syncguard-static
#cgo syncguard_nopkgconfig LDFLAGS: -lsyncguard
#include <stdlib.h>
#include <string.h>
#include "shim.h"

// The address of a text. An empty Go string may have none.
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

static sg_go_checked sg_check(syncguard_client *c, syncguard_cancel *cancel) {
  sg_go_checked a = {0};
  a.status = syncguard_client_check_report(c, cancel, &a.warnings, &a.undelivered, &a.err);
  return a;
}

static sg_go_number sg_purge(syncguard_client *c, uint32_t limit, syncguard_cancel *cancel) {
  sg_go_number a = {0};
  uint64_t n = 0;
  a.status = syncguard_client_purge_expired(c, limit, cancel, &n, &a.err);
  a.number = (int64_t)n;
  return a;
}

// Copies the texts of a grant.
static void sg_copy_texts(sg_go_granted *a, const char *key, size_t len) {
  const char *own = syncguard_guard_key(a->guard);
  a->key = strlen(own) == len && memcmp(own, key, len) == 0 ? NULL : own;
  memcpy(a->lock_id_and_fence, syncguard_guard_lock_id(a->guard), 22);
  memcpy(a->lock_id_and_fence + 22, syncguard_guard_fence(a->guard), 15);
}

// The given options, NULL for all defaults, with the token and the hooks of this attempt.
static syncguard_lock_options sg_options(const syncguard_lock_options *given, int hooks, uintptr_t id, syncguard_cancel *cancel) {
  syncguard_lock_options options = {.struct_size = sizeof options};
  if (given != NULL) {
    options = *given;
  }
  options.cancel = cancel;
  sg_go_guard_hooks(&options, hooks, id);
  return options;
}

// One attempt, also if other callers wait for the key.
static sg_go_granted sg_try_lock(syncguard_client *c, _GoString_ key, const syncguard_lock_options *given, int hooks, uintptr_t id,
                                 syncguard_cancel *cancel) {
  sg_go_granted a = {0};
  syncguard_lock_options options = sg_options(given, hooks, id, cancel);
  a.status = syncguard_try_lock(c, sg_text(key), _GoStringLen(key), &options, &a.guard, &a.err);
  if (a.guard != NULL) {
    sg_copy_texts(&a, sg_text(key), _GoStringLen(key));
  }
  return a;
}

// One attempt by a place in line, which is left if it is granted.
static sg_go_granted sg_waiter_try_lock(syncguard_waiter *w, _GoString_ key, syncguard_cancel *cancel) {
  sg_go_granted a = {0};
  a.status = syncguard_waiter_try_lock(w, cancel, &a.guard, &a.err);
  if (a.guard != NULL) {
    sg_copy_texts(&a, sg_text(key), _GoStringLen(key));
    syncguard_waiter_free(w);
  }
  return a;
}

// A place in line, without contacting the store.
static sg_go_granted sg_waiter_new(syncguard_client *c, _GoString_ key, const syncguard_lock_options *given, int hooks, uintptr_t id) {
  sg_go_granted a = {0};
  syncguard_lock_options options = sg_options(given, hooks, id, NULL);
  a.status = sg_go_waiter_new(c, sg_text(key), _GoStringLen(key), &options, id, &a.waiter, &a.err);
  return a;
}

// An attempt if no other caller of the client wants the key; else, or if the key is locked, a place in line.
static sg_go_granted sg_lock_or_wait(syncguard_client *c, _GoString_ key, const syncguard_lock_options *given, int hooks, uintptr_t id,
                                     syncguard_cancel *cancel) {
  sg_go_granted a = {0};
  syncguard_lock_options options = sg_options(given, hooks, id, cancel);
  a.status = sg_go_lock_or_wait(c, sg_text(key), _GoStringLen(key), &options, id, &a.guard, &a.waiter, &a.err);
  if (a.guard != NULL) {
    sg_copy_texts(&a, sg_text(key), _GoStringLen(key));
  }
  return a;
}

static sg_go_number sg_waiter_next(syncguard_waiter *w, int32_t event) {
  sg_go_number a = {0};
  a.status = syncguard_waiter_next(w, event, &a.number, &a.err);
  return a;
}

static sg_go_answer sg_guard_extend(syncguard_guard *g, int64_t ttl, syncguard_cancel *cancel) {
  sg_go_answer a = {0};
  a.status = syncguard_guard_extend(g, ttl, cancel, &a.err);
  return a;
}

// A release, with what cannot be asked after the guard is freed. A release that removed the lock was in time, whatever the clock says.
static sg_go_released sg_guard_release(syncguard_guard *g, syncguard_cancel *cancel) {
  sg_go_released a = {0};
  a.status = syncguard_guard_release(g, cancel, &a.err);
  a.loss = a.status != SYNCGUARD_STATUS_OK ? syncguard_guard_loss_reason(g) : SYNCGUARD_LOSS_NONE;
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
	"time"
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

func statusName(status int32) string { return C.GoString(C.syncguard_status_str(C.int32_t(status))) }

func versionString() string { return C.GoString(C.syncguard_version_string()) }

// readError copies an error that C keeps.
func readError(err *C.syncguard_error) *Error {
	if err == nil {
		return nil
	}
	return &Error{
		Code:     Code(C.syncguard_error_status(err)),
		Message:  C.GoString(C.syncguard_error_message(err)),
		KeyHash:  C.GoString(C.syncguard_error_key_hash(err)),
		Attempts: int(C.syncguard_error_attempts(err)),
		Reason:   LossReason(C.syncguard_error_loss_reason(err)),
	}
}

// answered is nil for OK, else the error. It frees err.
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

func cClientFree(c cClient) { C.syncguard_client_free(c) }

func cStopRenewing(c cClient) { C.syncguard_client_stop_renewing(c) }

func cBackend(c cClient) string { return C.GoString(C.syncguard_client_backend(c)) }

func cSetupSchema(c cClient, cancel cCancel) *Error {
	a := C.sg_setup_schema(c, cancel)
	return answered(a.status, a.err)
}

func cCheck(c cClient, cancel cCancel) (CheckReport, *Error) {
	a := C.sg_check(c, cancel)
	return CheckReport{Warnings: int(a.warnings), Undelivered: int(a.undelivered)}, answered(a.status, a.err)
}

func cPurge(c cClient, limit uint32, cancel cCancel) (int64, *Error) {
	a := C.sg_purge(c, C.uint32_t(limit), cancel)
	return int64(a.number), answered(a.status, a.err)
}

func lockDefaults() *cLockOptions {
	return &cLockOptions{struct_size: C.size_t(unsafe.Sizeof(cLockOptions{}))}
}

// granted is a grant; or none, and perhaps a place in line.
type granted struct {
	guard              cGuard
	waiter             cWaiter
	key, lockID, fence string
}

func (o *lockOptions) hooks() C.int {
	if o.releaseError != nil {
		return C.SG_GO_HOOK_RELEASE_ERROR
	}
	return 0
}

// cTryLock makes one attempt, also if other callers wait for the key.
func cTryLock(c cClient, key string, o *lockOptions, id uintptr, cancel cCancel) (granted, *Error) {
	a := C.sg_try_lock(c, key, o.raw, o.hooks(), C.uintptr_t(id), cancel)
	return grantedBy(&a, key)
}

// cLockOrWait makes an attempt if no other caller of the client wants the key, and gives the grant or a place in line.
func cLockOrWait(c cClient, key string, o *lockOptions, id uintptr, cancel cCancel) (granted, *Error) {
	a := C.sg_lock_or_wait(c, key, o.raw, o.hooks(), C.uintptr_t(id), cancel)
	return grantedBy(&a, key)
}

// cWaiterNew joins the line of a key.
func cWaiterNew(c cClient, key string, o *lockOptions, id uintptr) (granted, *Error) {
	a := C.sg_waiter_new(c, key, o.raw, o.hooks(), C.uintptr_t(id))
	return grantedBy(&a, key)
}

// cWaiterTryLock makes one attempt by a place, which is gone if it is granted.
func cWaiterTryLock(w cWaiter, key string, cancel cCancel) (granted, *Error) {
	a := C.sg_waiter_try_lock(w, key, cancel)
	return grantedBy(&a, key)
}

func grantedBy(a *C.sg_go_granted, key string) (granted, *Error) {
	if a.guard == nil {
		return granted{waiter: a.waiter}, answered(a.status, a.err)
	}
	if a.key != nil {
		key = C.GoString(a.key)
	}
	texts := string((*[len(a.lock_id_and_fence)]byte)(unsafe.Pointer(&a.lock_id_and_fence))[:])
	return granted{guard: a.guard, key: key, lockID: texts[:22], fence: texts[22:]}, nil
}

// waiterEvent is what happened since the library was last asked what to do.
type waiterEvent = C.int32_t

const (
	woken     waiterEvent = C.SYNCGUARD_WAITER_WOKEN
	cancelled waiterEvent = C.SYNCGUARD_WAITER_CANCELLED
	noThread  waiterEvent = C.SYNCGUARD_WAITER_NO_THREAD
)

// waiterStep is what a goroutine in line does next: give up with err, try within the time, or sleep for it.
type waiterStep struct {
	err  *Error
	try  bool
	time time.Duration
}

func cWaiterNext(w cWaiter, event waiterEvent) waiterStep {
	a := C.sg_waiter_next(w, event)
	if a.status < 0 {
		return waiterStep{err: answered(a.status, a.err)}
	}
	return waiterStep{try: a.status == C.SYNCGUARD_STATUS_OK, time: time.Duration(a.number) * time.Millisecond}
}

func cWaiterFree(w cWaiter) { C.syncguard_waiter_free(w) }

func cExpiresAt(g cGuard) int64 { return int64(C.syncguard_guard_expires_at_ms(g)) }

func cRemaining(g cGuard) int64 { return int64(C.syncguard_guard_remaining_ms(g)) }

func cLossReason(g cGuard) LossReason { return LossReason(C.syncguard_guard_loss_reason(g)) }

func cGuardExtend(g cGuard, ttl int64, cancel cCancel) *Error {
	a := C.sg_guard_extend(g, C.int64_t(ttl), cancel)
	return answered(a.status, a.err)
}

func cGuardRelease(g cGuard, cancel cCancel) (lost LossReason, expires int64, err *Error) {
	a := C.sg_guard_release(g, cancel)
	return LossReason(a.loss), int64(a.expires_at_ms), answered(a.status, a.err)
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
