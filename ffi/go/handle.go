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
	users      int
	closed     bool
	background bool
}

// gone is what the last one out has to free, in the background if that may take its time; nil for everybody else.
type gone struct {
	ptr        unsafe.Pointer
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

func (h *handle) leave() gone {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users--
	return h.last()
}

// close lets nobody in any more.
func (h *handle) close(background bool) gone {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed, h.background = true, background
	}
	return h.last()
}

// last gives up what nobody uses any more.
func (h *handle) last() gone {
	if !h.closed || h.users > 0 {
		return gone{}
	}
	p := h.ptr
	h.ptr = nil
	return gone{p, h.background}
}
