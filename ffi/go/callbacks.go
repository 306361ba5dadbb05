package syncguard

// The functions that C calls, on threads of the library or within a call from Go. Uses registry.go. Because it exports functions, only
// declarations may stand in its preamble.

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
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
		failed := ReleaseError{Err: readError(err), Key: C.GoString(key), LockID: C.GoString(lockID), Source: ReleaseSource(C.GoString(source))}
		guarded(func() { hook(failed) })
	}
}

//export syncguardGoOnEvent
func syncguardGoOnEvent(id C.uintptr_t, e *C.syncguard_event) {
	if hooks, ok := registry.find(uintptr(id)).(*clientHooks); ok && hooks.event != nil {
		event := Event{
			Type:       EventType(e._type),
			OK:         bool(e.ok),
			Reason:     EventReason(C.GoString(e.reason)),
			KeyHash:    C.GoString(e.key_hash),
			LockIDHash: C.GoString(e.lock_id_hash),
			Key:        C.GoString(e.key),
			LockID:     C.GoString(e.lock_id),
			Holder:     C.GoString(e.holder),
			Duration:   micros(e.duration_us),
			Code:       Code(e.error_status),
			Loss:       LossReason(e.loss_reason),
			Backend:    C.GoString(e.backend),
			Fence:      uint64(e.fence),
			Attempts:   int(e.attempts),
			Waited:     micros(e.waited_us),
			Held:       micros(e.held_us),
		}
		guarded(func() { hooks.event(event) })
	}
}

// micros is a time of an event; -1, for one that does not apply, is 0.
func micros(us C.int64_t) time.Duration {
	if us < 0 {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

//export syncguardGoOnClientLost
func syncguardGoOnClientLost(id C.uintptr_t, l *C.syncguard_lost_lock) {
	if hooks, ok := registry.find(uintptr(id)).(*clientHooks); ok && hooks.lost != nil {
		lost := LostLock{
			Err:    readError(l.why),
			Key:    C.GoString(l.key),
			LockID: C.GoString(l.lock_id),
			Fence:  uint64(l.fence),
			Held:   micros(l.held_us),
		}
		guarded(func() { hooks.lost(lost) })
	}
}

//export syncguardGoOnWarning
func syncguardGoOnWarning(id C.uintptr_t, message *C.char) {
	if hooks, ok := registry.find(uintptr(id)).(*clientHooks); ok && hooks.warning != nil {
		text := C.GoString(message)
		guarded(func() { hooks.warning(text) })
	}
}

//export syncguardGoOnPassword
func syncguardGoOnPassword(id C.uintptr_t, out *C.char, size C.size_t) C.int {
	hooks, ok := registry.find(uintptr(id)).(*clientHooks)
	failed := C.int(1)
	if !ok || hooks.password == nil {
		return failed
	}
	guarded(func() {
		ctx, cancel := context.WithTimeout(hooks.ctx, hooks.timeout)
		defer cancel()
		password, err := hooks.password(ctx)
		if err != nil || len(password) >= int(size) || strings.IndexByte(password, 0) >= 0 {
			return
		}
		buffer := unsafe.Slice((*byte)(unsafe.Pointer(out)), int(size))
		buffer[copy(buffer, password)] = 0
		failed = 0
	})
	return failed
}

//export syncguardGoOnConnect
func syncguardGoOnConnect(id C.uintptr_t, host *C.char, port C.uint16_t, timeoutMS C.int64_t) C.int {
	hooks, ok := registry.find(uintptr(id)).(*clientHooks)
	fd := -C.int(syscall.ECONNABORTED)
	if !ok || hooks.connect == nil {
		return fd
	}
	guarded(func() {
		ctx, cancel := context.WithTimeout(hooks.ctx, time.Duration(timeoutMS)*time.Millisecond)
		defer cancel()
		conn, err := hooks.connect(ctx, C.GoString(host), uint16(port))
		if err == nil {
			var n int
			n, err = descriptor(conn)
			fd = C.int(n)
		}
		if err != nil {
			fd = -C.int(number(err))
		}
	})
	return fd
}

// descriptor is a copy of a connection's descriptor, for the library; the connection itself is closed.
func descriptor(conn net.Conn) (int, error) {
	if conn == nil {
		return 0, syscall.ENOTCONN
	}
	defer func() { _ = conn.Close() }()
	socket, ok := conn.(interface{ File() (*os.File, error) })
	if !ok {
		return 0, syscall.ENOTSOCK
	}
	file, err := socket.File()
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	// A child that is forked at this moment must not get it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(file.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	return fd, err
}

// number is the errno of an error, for the library to say what kind it is.
func number(err error) syscall.Errno {
	var errno syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &errno) && errno > 0:
		return errno
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return syscall.ETIMEDOUT
	default:
		return syscall.ECONNABORTED
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
