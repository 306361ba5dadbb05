//go:build cgo

package syncguard

import (
	"sync"
	"time"
)

// held is the guards of a client that are neither released nor lost, and the attempts that may become one, by how they end: it must
// not refer to a guard, or a forgotten one would never be collected.
type held struct {
	mu     sync.Mutex
	losses map[*loss]struct{}
	closed bool
	// none is closed when there is none left, once somebody waits for that.
	none chan struct{}
}

// add begins to count a guard, before the store is asked for it. One that is granted while the client closes has ended already.
func (h *held) add(l *loss) {
	h.mu.Lock()
	if h.losses == nil {
		h.losses = make(map[*loss]struct{})
	}
	h.losses[l] = struct{}{}
	closed := h.closed
	h.mu.Unlock()
	if closed {
		l.end(ErrClosed)
	}
}

func (h *held) remove(l *loss) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.losses, l)
	if len(h.losses) == 0 && h.none != nil {
		close(h.none)
		h.none = nil
	}
}

// close ends what is under the guards, and waits until they are released; false if some were not in time.
func (h *held) close(timeout time.Duration) bool {
	h.mu.Lock()
	h.closed = true
	left := make([]*loss, 0, len(h.losses))
	for l := range h.losses {
		left = append(left, l)
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
	for _, l := range left {
		l.end(ErrClosed)
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
