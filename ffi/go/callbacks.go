package syncguard

// The functions that C calls, on threads of the library or within a call from Go. Uses registry.go. Because it exports functions, only
// declarations may stand in its preamble.

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"time"
)

//export syncguardGoOnLost
func syncguardGoOnLost(id C.uintptr_t, why *C.syncguard_error) {
	if end, ok := registry.find(uintptr(id)).(*guardEnd); ok {
		end.record(readError(why))
		end.notHeld()
	}
}

//export syncguardGoOnCall
func syncguardGoOnCall(id C.uintptr_t) {
	if end, ok := registry.find(uintptr(id)).(*guardEnd); ok {
		end.wake.send()
	}
}

//export syncguardGoOnReleaseError
func syncguardGoOnReleaseError(id C.uintptr_t, err *C.syncguard_error, key, lockID, source *C.char) {
	var hook func(ReleaseError)
	switch found := registry.find(uintptr(id)).(type) {
	case *clientHooks:
		hook = found.releaseError
	case *guardEnd:
		hook = found.releaseError
	}
	if hook != nil {
		failed := ReleaseError{Err: readError(err), Key: C.GoString(key), LockID: C.GoString(lockID), Source: C.GoString(source)}
		guarded(func() { hook(failed) })
	}
}

//export syncguardGoOnEvent
func syncguardGoOnEvent(id C.uintptr_t, e *C.syncguard_event) {
	if hooks, ok := registry.find(uintptr(id)).(*clientHooks); ok && hooks.event != nil {
		event := Event{
			Type:       EventType(e._type),
			OK:         bool(e.ok),
			Reason:     C.GoString(e.reason),
			KeyHash:    C.GoString(e.key_hash),
			LockIDHash: C.GoString(e.lock_id_hash),
			Key:        C.GoString(e.key),
			LockID:     C.GoString(e.lock_id),
			Duration:   time.Duration(e.duration_us) * time.Microsecond,
		}
		guarded(func() { hooks.event(event) })
	}
}

//export syncguardGoOnWarning
func syncguardGoOnWarning(id C.uintptr_t, message *C.char) {
	if hooks, ok := registry.find(uintptr(id)).(*clientHooks); ok && hooks.warning != nil {
		text := C.GoString(message)
		guarded(func() { hooks.warning(text) })
	}
}

//export syncguardGoForget
func syncguardGoForget(id C.uintptr_t) {
	registry.remove(uintptr(id))
}

// guarded runs a user's callback. A panic there must not end a thread of the library, which keeps other locks.
func guarded(callback func()) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "syncguard: a callback panicked: %v\n", p)
		}
	}()
	callback()
}
