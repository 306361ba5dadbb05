//go:build cgo

package syncguard

import (
	"sync/atomic"
	"unsafe"
)

// handle is a C handle that any number of goroutines use and one closes. C allows a free during a call, but not a call that
// begins with or after it; so the last one out frees.
type handle struct {
	// state is isClosed, inBackground, above them the number of those inside, and above that the turn: how often it was used
	// before, for another pointer. C changes it too, so it is a plain number; first, for 32-bit machines, here and in what holds it.
	state uint64
	ptr   unsafe.Pointer
}

const (
	isClosed uint64 = 1 << iota
	inBackground
	oneInside
	oneTurn = 1 << 32
)

// gone is what the last one out has to free, in the background if that may take its time; nil for everybody else.
type gone struct {
	ptr        unsafe.Pointer
	background bool
}

// enter gives the pointer until leave, or nil if it is closed, or open for another turn.
func (h *handle) enter(turn uint64) unsafe.Pointer {
	for {
		s := atomic.LoadUint64(&h.state)
		if s&isClosed != 0 || s/oneTurn != turn {
			return nil
		}
		if atomic.CompareAndSwapUint64(&h.state, s, s+oneInside) {
			return h.ptr
		}
	}
}

func (h *handle) leave() gone { return h.last(atomic.AddUint64(&h.state, ^(oneInside - 1))) }

// close lets nobody in any more. Only the first one of a turn does anything.
func (h *handle) close(turn uint64, background bool) gone {
	how := isClosed
	if background {
		how |= inBackground
	}
	for {
		s := atomic.LoadUint64(&h.state)
		if s&isClosed != 0 || s/oneTurn != turn {
			return gone{}
		}
		if atomic.CompareAndSwapUint64(&h.state, s, s|how) {
			return h.last(s | how)
		}
	}
}

// current is the turn, and whether it is still open.
func (h *handle) current() (turn uint64, open bool) {
	s := atomic.LoadUint64(&h.state)
	return s / oneTurn, s&isClosed == 0
}

// last gives up what nobody uses any more.
func (h *handle) last(s uint64) gone {
	if s&isClosed == 0 || s%oneTurn >= oneInside {
		return gone{}
	}
	return gone{h.ptr, s&inBackground != 0}
}

// open begins the turn of a pointer, on a handle that is closed and empty.
func (h *handle) open(ptr unsafe.Pointer) (turn uint64) {
	turn, _ = h.current()
	h.ptr = ptr
	atomic.StoreUint64(&h.state, turn*oneTurn)
	return turn
}

// again ends the turn of the only one inside a closed handle.
func (h *handle) again() {
	turn, _ := h.current()
	h.ptr = nil
	atomic.StoreUint64(&h.state, (turn+1)*oneTurn|isClosed)
}
