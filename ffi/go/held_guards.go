//go:build cgo

package syncguard

// The guards that Close waits for. Uses guard_end.go.

import (
	"sync"
	"time"
)

// heldGuards is the guards of a client that are neither released nor lost, and the attempts that may become one. It knows them by their
// guardEnd: it must not refer to a guard, or a forgotten one would never be collected.
type heldGuards struct {
	mu     sync.Mutex
	ends   map[*guardEnd]struct{}
	closed bool
	// none is closed when the last one is removed. It exists only while close waits.
	none chan struct{}
}

// add counts a guard, before the store is asked for it. A guard that is granted while the client closes has ended already.
func (h *heldGuards) add(e *guardEnd) {
	h.mu.Lock()
	if h.ends == nil {
		h.ends = make(map[*guardEnd]struct{})
	}
	h.ends[e] = struct{}{}
	closed := h.closed
	h.mu.Unlock()
	if closed {
		e.record(ErrClosed)
	}
}

func (h *heldGuards) remove(e *guardEnd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ends, e)
	if len(h.ends) == 0 && h.none != nil {
		close(h.none)
		h.none = nil
	}
}

// close ends the contexts of the guards and waits until all are released; false if some were not within the timeout.
func (h *heldGuards) close(timeout time.Duration) bool {
	h.mu.Lock()
	h.closed = true
	left := make([]*guardEnd, 0, len(h.ends))
	for e := range h.ends {
		left = append(left, e)
	}
	var none chan struct{}
	if len(left) > 0 {
		none = make(chan struct{})
		h.none = none
	}
	h.mu.Unlock()
	if len(left) == 0 {
		return true
	}
	for _, e := range left {
		e.record(ErrClosed)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-none:
		return true
	case <-timer.C:
		return false
	}
}
