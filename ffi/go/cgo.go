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

static sg_go_answer sg_setup_fence_gate(syncguard_client *c, syncguard_cancel *cancel) {
  sg_go_answer a = {0};
  a.status = syncguard_client_setup_fence_gate(c, cancel, &a.err);
  return a;
}

static sg_go_answer sg_fenced_set(syncguard_client *c, _GoString_ name, _GoString_ value, uint64_t fence, syncguard_cancel *cancel) {
  sg_go_answer a = {0};
  a.status = syncguard_fenced_set(c, sg_text(name), _GoStringLen(name), sg_text(value), _GoStringLen(value), fence, cancel, &a.err);
  return a;
}

static sg_go_answer sg_gate_postgres_text(int32_t which, _GoString_ schema, const char *table, char *text, size_t size, size_t *length) {
  sg_go_answer a = {0};
  a.status = syncguard_gate_postgres_text(which, sg_text(schema), _GoStringLen(schema), table, text, size, length, &a.err);
  return a;
}

static sg_go_number sg_gate_newest(syncguard_client *c, _GoString_ resource, syncguard_cancel *cancel) {
  sg_go_number a = {0};
  uint64_t n = 0;
  a.status = syncguard_gate_newest(c, sg_text(resource), _GoStringLen(resource), cancel, &n, &a.err);
  a.number = (int64_t)n;
  return a;
}

static sg_go_answer sg_gate_reset(syncguard_client *c, _GoString_ resource, uint64_t seen, syncguard_cancel *cancel) {
  sg_go_answer a = {0};
  a.status = syncguard_gate_reset(c, sg_text(resource), _GoStringLen(resource), seen, cancel, &a.err);
  return a;
}

// What is known of an error beside its texts.
static sg_go_details sg_details(const syncguard_error *err) {
  sg_go_details a = {0};
  a.attempts = (int32_t)syncguard_error_attempts(err);
  a.loss = syncguard_error_loss_reason(err);
  a.may_have_applied = syncguard_error_may_have_applied(err);
  a.waited_ms = syncguard_error_waited_ms(err);
  a.has_holder = syncguard_error_holder(err, &a.holder);
  return a;
}

// Copies what is asked of a grant.
static void sg_copy_texts(sg_go_granted *a, const char *key, size_t len) {
  const char *own = syncguard_guard_key(a->guard);
  a->key = strlen(own) == len && memcmp(own, key, len) == 0 ? NULL : own;
  memcpy(a->lock_id_and_fence, syncguard_guard_lock_id(a->guard), 22);
  memcpy(a->lock_id_and_fence + 22, syncguard_guard_fence(a->guard), 15);
  a->waited_ms = syncguard_guard_waited_ms(a->guard);
}

// Options with a place for the only text in them. A text of Go has no NUL behind it, and Go has seen that it fits.
typedef struct {
  syncguard_lock_options options;
  char holder[201];
} sg_own_options;

// The given options, NULL for all defaults, with the token and the hooks of this attempt; with the text if `says` is not 0.
static const syncguard_lock_options *sg_options(sg_own_options *own, const syncguard_lock_options *given, int says, _GoString_ holder,
                                                int hooks, uintptr_t id, syncguard_cancel *cancel) {
  if (given != NULL) {
    own->options = *given;
  } else {
    own->options = (syncguard_lock_options){.struct_size = sizeof own->options};
  }
  if (says) {
    size_t len = _GoStringLen(holder) < sizeof own->holder ? _GoStringLen(holder) : sizeof own->holder - 1;
    memcpy(own->holder, sg_text(holder), len);
    own->holder[len] = 0;
    own->options.holder = own->holder;
  }
  own->options.cancel = cancel;
  sg_go_guard_hooks(&own->options, hooks, id);
  return &own->options;
}

// One attempt, also if other callers wait for the key.
static sg_go_granted sg_try_lock(syncguard_client *c, _GoString_ key, const syncguard_lock_options *given, int says, _GoString_ holder, int hooks, uintptr_t id,
                                 syncguard_cancel *cancel) {
  sg_go_granted a = {0};
  sg_own_options own;
  const syncguard_lock_options *options = sg_options(&own, given, says, holder, hooks, id, cancel);
  a.status = syncguard_try_lock(c, sg_text(key), _GoStringLen(key), options, &a.guard, &a.err);
  if (a.guard != NULL) {
    sg_copy_texts(&a, sg_text(key), _GoStringLen(key));
  }
  return a;
}

// The same, with an error that names the holder in place of LOCKED.
static sg_go_granted sg_lock_once(syncguard_client *c, _GoString_ key, const syncguard_lock_options *given, int says, _GoString_ holder, int hooks, uintptr_t id,
                                  syncguard_cancel *cancel) {
  sg_go_granted a = {0};
  sg_own_options own;
  const syncguard_lock_options *options = sg_options(&own, given, says, holder, hooks, id, cancel);
  a.status = syncguard_lock_once(c, sg_text(key), _GoStringLen(key), options, &a.guard, &a.err);
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
static sg_go_granted sg_waiter_new(syncguard_client *c, _GoString_ key, const syncguard_lock_options *given, int says, _GoString_ holder, int hooks, uintptr_t id) {
  sg_go_granted a = {0};
  sg_own_options own;
  const syncguard_lock_options *options = sg_options(&own, given, says, holder, hooks, id, NULL);
  a.status = sg_go_waiter_new(c, sg_text(key), _GoStringLen(key), options, id, &a.waiter, &a.err);
  return a;
}

// An attempt if no other caller of the client wants the key; else, or if the key is locked, a place in line.
static sg_go_granted sg_lock_or_wait(syncguard_client *c, _GoString_ key, const syncguard_lock_options *given, int says, _GoString_ holder, int hooks, uintptr_t id,
                                     syncguard_cancel *cancel) {
  sg_go_granted a = {0};
  sg_own_options own;
  const syncguard_lock_options *options = sg_options(&own, given, says, holder, hooks, id, cancel);
  a.status = sg_go_lock_or_wait(c, sg_text(key), _GoStringLen(key), options, id, &a.guard, &a.waiter, &a.err);
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
  a.status = syncguard_acquire_or_holder(c, sg_text(key), _GoStringLen(key), ttl, cancel, &a.acquired, &a.holder, &a.err);
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
    a.status = (by_id ? syncguard_lookup_by_id_held : syncguard_lookup_by_key_held)(c, text, len, cancel, &a.found, &a.holder, &a.err);
  } else {
    a.status = (by_id ? syncguard_lookup_by_id : syncguard_lookup_by_key)(c, text, len, cancel, &a.found.info, &a.err);
  }
  return a;
}

static sg_go_page sg_list(syncguard_client *c, _GoString_ prefix, uint32_t examine, _GoString_ after, syncguard_cancel *cancel) {
  sg_go_page a = {0};
  size_t len = _GoStringLen(after);
  char *cursor = NULL;
  if (len > 0) {
    cursor = malloc(len + 1);
    if (cursor == NULL) {
      a.status = SYNCGUARD_STATUS_RATE_LIMITED;
      return a;
    }
    memcpy(cursor, sg_text(after), len);
    cursor[len] = 0;
  }
  a.status = syncguard_client_list(c, sg_text(prefix), _GoStringLen(prefix), examine, cursor, cancel, &a.page, &a.err);
  free(cursor);
  return a;
}

static sg_go_found sg_page_lock(const syncguard_page *page, size_t index, int raw) {
  sg_go_found a = {0};
  if (raw) {
    a.status = syncguard_page_info_raw(page, index, &a.found, &a.err);
  } else {
    a.status = syncguard_page_info(page, index, &a.found.info, &a.err);
  }
  return a;
}

static sg_go_report sg_report(syncguard_client *c) {
  sg_go_report a = {0};
  a.status = syncguard_client_report(c, &a.report, &a.err);
  return a;
}

static syncguard_finding sg_finding(const syncguard_report *report, size_t index) {
  syncguard_finding found = {0};
  syncguard_report_finding(report, index, &found, NULL);
  return found;
}

static sg_go_number sg_is_waited_for(syncguard_client *c, _GoString_ key) {
  sg_go_number a = {0};
  bool yes = false;
  a.status = syncguard_client_is_waited_for(c, sg_text(key), _GoStringLen(key), &yes, &a.err);
  a.number = yes;
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
	d := C.sg_details(err)
	read := &Error{
		Code:           Code(C.syncguard_error_status(err)),
		Message:        C.GoString(C.syncguard_error_message(err)),
		KeyHash:        C.GoString(C.syncguard_error_key_hash(err)),
		Attempts:       int(d.attempts),
		Reason:         LossReason(d.loss),
		MayHaveApplied: bool(d.may_have_applied),
	}
	if d.waited_ms > 0 {
		read.Waited = time.Duration(d.waited_ms) * time.Millisecond
	}
	if d.has_holder {
		read.Holder = readHolder(&d.holder)
		read.HolderText = C.GoString(C.syncguard_error_holder_text(err))
	}
	return read
}

// readHolder is nil if nothing is known of the holder.
func readHolder(holder *C.syncguard_holder) *Holder {
	if holder.lock_id_hash[0] == 0 && holder.fence[0] == 0 && holder.remaining_ms < 0 {
		return nil
	}
	return &Holder{
		LockIDHash: chars(holder.lock_id_hash[:]),
		Fence:      chars(holder.fence[:]),
		Remaining:  time.Duration(holder.remaining_ms) * time.Millisecond,
	}
}

func cCapabilities(c cClient) Capabilities {
	return Capabilities{
		Backend:         cBackend(c),
		SupportsFencing: bool(C.syncguard_client_supports_fencing(c)),
		TimeAuthority:   TimeAuthority(C.syncguard_client_time_authority(c)),
		FenceSource:     FenceSource(C.syncguard_client_fence_source(c)),
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
		fences:               C.int32_t(o.fences),
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
		{o.certFile, &options.tls_client_cert_file},
		{o.keyFile, &options.tls_client_key_file},
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
	if o.hooks.lost != nil {
		which |= C.SG_GO_HOOK_LOST
	}
	if o.hooks.password != nil {
		which |= C.SG_GO_HOOK_PASSWORD
	}
	if o.hooks.connect != nil {
		which |= C.SG_GO_HOOK_CONNECTOR
	}
	a := C.sg_open(url, options, which, C.uintptr_t(hooks))
	return a.client, answered(a.status, a.err)
}

const fencesByClock = C.SYNCGUARD_FENCES_CLOCK

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

func cClientFree(c cClient) { C.syncguard_client_free(c) }

func cStopRenewing(c cClient) { C.syncguard_client_stop_renewing(c) }

func cEventsDropped(c cClient) uint64 { return uint64(C.syncguard_client_events_dropped(c)) }

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

func cSetupFenceGate(c cClient, cancel cCancel) *Error {
	a := C.sg_setup_fence_gate(c, cancel)
	return answered(a.status, a.err)
}

func cFencedSet(c cClient, name, value string, fence uint64, cancel cCancel) *Error {
	a := C.sg_fenced_set(c, name, value, C.uint64_t(fence), cancel)
	return answered(a.status, a.err)
}

func cGateNewest(c cClient, resource string, cancel cCancel) (uint64, *Error) {
	a := C.sg_gate_newest(c, resource, cancel)
	return uint64(a.number), answered(a.status, a.err)
}

func cGateReset(c cClient, resource string, seen uint64, cancel cCancel) *Error {
	a := C.sg_gate_reset(c, resource, C.uint64_t(seen), cancel)
	return answered(a.status, a.err)
}

// The texts of the gates, as the C header numbers them.
const (
	gateRedisPrelude  = C.SYNCGUARD_GATE_REDIS_PRELUDE
	gatePostgresPass  = C.SYNCGUARD_GATE_POSTGRES_PASS
	gatePostgresShare = C.SYNCGUARD_GATE_POSTGRES_SHARE
	gateSQLiteSetup   = C.SYNCGUARD_GATE_SQLITE_SETUP
	gateSQLitePass    = C.SYNCGUARD_GATE_SQLITE_PASS
	gateSQLiteNewest  = C.SYNCGUARD_GATE_SQLITE_NEWEST
	gateSQLiteReset   = C.SYNCGUARD_GATE_SQLITE_RESET

	gatePostgresSetup  = C.SYNCGUARD_GATE_POSTGRES_SETUP
	gatePostgresNewest = C.SYNCGUARD_GATE_POSTGRES_NEWEST
	gatePostgresReset  = C.SYNCGUARD_GATE_POSTGRES_RESET
)

func cGateText(which int32) string { return C.GoString(C.syncguard_gate_text(C.int32_t(which))) }

func cGatePostgresText(which int32, schema, fenceTable string) (string, *Error) {
	var table *C.char
	if fenceTable != "" {
		table = C.CString(fenceTable)
		defer C.free(unsafe.Pointer(table))
	}
	var length C.size_t
	a := C.sg_gate_postgres_text(C.int32_t(which), schema, table, nil, 0, &length)
	if err := answered(a.status, a.err); err != nil {
		return "", err
	}
	text := make([]byte, length+1)
	a = C.sg_gate_postgres_text(C.int32_t(which), schema, table, (*C.char)(unsafe.Pointer(&text[0])), length+1, nil)
	return string(text[:length]), answered(a.status, a.err)
}

func lockDefaults() *cLockOptions {
	return &cLockOptions{struct_size: C.size_t(unsafe.Sizeof(cLockOptions{}))}
}

// granted is a grant; or none, and perhaps a place in line.
type granted struct {
	guard              cGuard
	waiter             cWaiter
	key, lockID, fence string
	waited             time.Duration
}

func (o *lockOptions) hooks() C.int {
	if o.releaseError != nil {
		return C.SG_GO_HOOK_RELEASE_ERROR
	}
	return 0
}

// says tells whether there is a text of the holder.
func (o *lockOptions) says() C.int { return C.int(flag(o.hasHolder)) }

// cTryLock makes one attempt, also if other callers wait for the key.
func cTryLock(c cClient, key string, o *lockOptions, id uintptr, cancel cCancel) (granted, *Error) {
	a := C.sg_try_lock(c, key, o.raw, o.says(), o.holder, o.hooks(), C.uintptr_t(id), cancel)
	return grantedBy(&a, key)
}

// cLockOnce is cTryLock, with an error that names the holder if another one has the key.
func cLockOnce(c cClient, key string, o *lockOptions, id uintptr, cancel cCancel) (granted, *Error) {
	a := C.sg_lock_once(c, key, o.raw, o.says(), o.holder, o.hooks(), C.uintptr_t(id), cancel)
	return grantedBy(&a, key)
}

// cLockOrWait makes an attempt if no other caller of the client wants the key, and gives the grant or a place in line.
func cLockOrWait(c cClient, key string, o *lockOptions, id uintptr, cancel cCancel) (granted, *Error) {
	a := C.sg_lock_or_wait(c, key, o.raw, o.says(), o.holder, o.hooks(), C.uintptr_t(id), cancel)
	return grantedBy(&a, key)
}

// cWaiterNew joins the line of a key.
func cWaiterNew(c cClient, key string, o *lockOptions, id uintptr) (granted, *Error) {
	a := C.sg_waiter_new(c, key, o.raw, o.says(), o.holder, o.hooks(), C.uintptr_t(id))
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
	waited := time.Duration(a.waited_ms) * time.Millisecond
	return granted{guard: a.guard, key: key, lockID: texts[:22], fence: texts[22:], waited: waited}, nil
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
	err = answered(a.status, a.err)
	if a.status == C.SYNCGUARD_STATUS_LOCKED {
		err.Holder = readHolder(&a.holder)
	}
	return chars(a.acquired.lock_id[:]), chars(a.acquired.fence[:]), int64(a.acquired.expires_at_ms), err
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
	found = readLock(&a.found)
	found.Holder = chars(a.holder[:])
	return found, nil
}

func readLock(raw *C.syncguard_lock_info_raw) LockInfoRaw {
	info := &raw.info
	return LockInfoRaw{
		LockInfo: LockInfo{
			KeyHash:    chars(info.key_hash[:]),
			LockIDHash: chars(info.lock_id_hash[:]),
			Fence:      chars(info.fence[:]),
			ExpiresAt:  unixMilli(int64(info.expires_at_ms)),
			AcquiredAt: unixMilli(int64(info.acquired_at_ms)),
		},
		Key:    chars(raw.key[:]),
		LockID: chars(raw.lock_id[:]),
	}
}

// cList gives the locks of a page, and where the next one begins.
func cList(c cClient, o ListOptions, raw bool, cancel cCancel) (locks []LockInfoRaw, next string, err *Error) {
	a := C.sg_list(c, o.Prefix, C.uint32_t(o.Examine), o.After, cancel)
	if err := answered(a.status, a.err); err != nil {
		return nil, "", err
	}
	defer C.syncguard_page_free(a.page)
	for i := C.size_t(0); i < C.syncguard_page_count(a.page); i++ {
		one := C.sg_page_lock(a.page, i, C.int(flag(raw)))
		if err := answered(one.status, one.err); err != nil {
			return nil, "", err
		}
		lock := readLock(&one.found)
		if raw {
			lock.Holder = C.GoString(C.syncguard_page_holder_text(a.page, i))
		}
		locks = append(locks, lock)
	}
	return locks, C.GoString(C.syncguard_page_next(a.page)), nil
}

func cReport(c cClient) (report StoreReport, err *Error) {
	a := C.sg_report(c)
	if err := answered(a.status, a.err); err != nil {
		return StoreReport{}, err
	}
	defer C.syncguard_report_free(a.report)
	report.Level = CheckLevel(C.syncguard_report_level(a.report))
	report.Code = Code(C.syncguard_report_status(a.report))
	for i := C.size_t(0); i < C.syncguard_report_count(a.report); i++ {
		found := C.sg_finding(a.report, i)
		report.Findings = append(report.Findings, Finding{
			Subject: CheckSubject(found.subject),
			Level:   CheckLevel(found.level),
			Text:    C.GoString(found.text),
			Advice:  C.GoString(found.advice),
		})
	}
	return report, nil
}

func cIsWaitedFor(c cClient, key string) (bool, *Error) {
	a := C.sg_is_waited_for(c, key)
	return a.number != 0, answered(a.status, a.err)
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
