package syncguard

import (
	"sync"
	"unsafe"
)

// handle is a C handle that any number of goroutines use and one closes. C allows a free during a call, but not a call that
// begins with or after it; so the last one out frees.
type handle struct {
	mu     sync.Mutex
	ptr    unsafe.Pointer
	free   func(unsafe.Pointer)
	users  int
	closed bool
}

// enter gives the pointer until leave, or nil if it is closed.
func (h *handle) enter() unsafe.Pointer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.users++
	return h.ptr
}

func (h *handle) leave() {
	h.mu.Lock()
	h.users--
	gone := h.take()
	h.mu.Unlock()
	if gone != nil {
		h.free(gone)
	}
}

// close lets nobody in any more; false if that was so before.
func (h *handle) close() bool {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	gone := h.take()
	h.mu.Unlock()
	if gone != nil {
		h.free(gone)
	}
	return first
}

// take gives the pointer to whoever must free it, once.
func (h *handle) take() unsafe.Pointer {
	if !h.closed || h.users > 0 {
		return nil
	}
	gone := h.ptr
	h.ptr = nil
	return gone
}
