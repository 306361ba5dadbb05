//go:build cgo

package syncguard

// Counts the users of a C handle, so that the last one frees it. Uses the standard library only.

import (
	"sync/atomic"
	"unsafe"
)

// handle is a C handle that any number of goroutines use and one of them closes. C allows a free during a call, but no call that begins
// during or after the free. So the handle counts its users, and the last user of a closed handle frees it.
type handle struct {
	// state is the flags stateClosed and stateBackground, and above them the number of users.
	state atomic.Uint64
	ptr   unsafe.Pointer
}

const (
	stateClosed uint64 = 1 << iota
	stateBackground
	stateOneUser
)

// lastUse is the pointer that the caller must free, in the background if that may take long; nil if the caller must free nothing.
type lastUse struct {
	ptr        unsafe.Pointer
	background bool
}

// enter gives the pointer until leave, or nil if the handle is closed.
func (h *handle) enter() unsafe.Pointer {
	for {
		s := h.state.Load()
		if s&stateClosed != 0 {
			return nil
		}
		if h.state.CompareAndSwap(s, s+stateOneUser) {
			return h.ptr
		}
	}
}

func (h *handle) leave() lastUse { return h.last(h.state.Add(^(stateOneUser - 1))) }

// close admits no further users. Only the first close has an effect.
func (h *handle) close(background bool) lastUse {
	flags := stateClosed
	if background {
		flags |= stateBackground
	}
	for {
		s := h.state.Load()
		if s&stateClosed != 0 {
			return lastUse{}
		}
		if h.state.CompareAndSwap(s, s|flags) {
			return h.last(s | flags)
		}
	}
}

func (h *handle) isClosed() bool { return h.state.Load()&stateClosed != 0 }

func (h *handle) last(s uint64) lastUse {
	if s&stateClosed == 0 || s >= stateOneUser {
		return lastUse{}
	}
	return lastUse{h.ptr, s&stateBackground != 0}
}
