//go:build cgo

package syncguard

// Owns the C guard of a Guard and frees it once, also if the program forgets the Guard. Uses handle.go, guard_end.go and call.go.

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// guardHandle owns the C guard of one Guard, and has the finalizer that releases it if the program forgets the Guard. Only the Guard may
// refer to it, and it must not refer to the Guard: else the finalizer never runs.
type guardHandle struct {
	handle handle
	end    *guardEnd
	id     uintptr
	giving *slots
	// expires is when the lease ended, in milliseconds, for callers that come after the C guard is closed. Set before that.
	expires atomic.Int64
}

func newGuardHandle(guard cGuard, end *guardEnd, id uintptr, giving *slots) *guardHandle {
	h := &guardHandle{end: end, id: id, giving: giving}
	h.handle.ptr = unsafe.Pointer(guard)
	runtime.SetFinalizer(h, (*guardHandle).collected)
	return h
}

// enter gives the C guard until leave, or nil if it is closed.
func (h *guardHandle) enter() cGuard { return cGuard(h.handle.enter()) }

func (h *guardHandle) leave() { h.free(h.handle.leave()) }

func (h *guardHandle) close(background bool) { h.free(h.handle.close(background)) }

// collected releases, in the background, the lock of a guard that the program has forgotten.
func (h *guardHandle) collected() {
	if h.handle.isClosed() {
		return
	}
	h.end.record(ErrReleased)
	h.end.notHeld()
	h.close(true)
}

func (h *guardHandle) free(last lastUse) {
	switch {
	case last.ptr == nil:
	case last.background:
		go func() {
			h.giving.enter(context.Background(), time.Time{}, Forever)
			defer h.giving.leave()
			h.dispose(cGuard(last.ptr))
		}()
	default:
		h.dispose(cGuard(last.ptr))
	}
}

// dispose frees the C guard. If its lock was not released, that sends a release, bounded by the dispose timeout.
func (h *guardHandle) dispose(guard cGuard) {
	cGuardFree(guard)
	// With a hook for release errors the library may still call back, and gives up the id itself.
	if h.end.releaseError == nil {
		registry.remove(h.id)
	}
	// A finalizer that is left would keep the object for one more round of the collector.
	runtime.SetFinalizer(h, nil)
}
