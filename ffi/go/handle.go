package syncguard

import (
	"sync"
	"unsafe"
)

// handle is a C handle that any number of goroutines use and one closes. C allows a free during a call, but not a call that
// begins with or after it; so the last one out frees.
type handle struct {
	mu         sync.Mutex
	ptr        unsafe.Pointer
	free       func(p unsafe.Pointer, background bool)
	users      int
	closed     bool
	background bool
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
	h.unlock()
}

// close lets nobody in any more. In the background is for a free that may take its time.
func (h *handle) close(background bool) {
	h.mu.Lock()
	if !h.closed {
		h.closed, h.background = true, background
	}
	h.unlock()
}

// unlock frees what nobody uses any more.
func (h *handle) unlock() {
	gone := h.ptr
	if !h.closed || h.users > 0 || gone == nil {
		h.mu.Unlock()
		return
	}
	h.ptr = nil
	h.mu.Unlock()
	if h.background {
		go h.free(gone, true)
	} else {
		h.free(gone, false)
	}
}
