//go:build cgo

package syncguard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// loss is how a guard ended, once. The library finds it by its id; it must not refer to the guard, or a forgotten one would never
// be collected.
type loss struct {
	// expires is when the lease ends, for who cannot ask the C guard any more; set before that is closed. C changes it too, so it is a
	// plain number; first, for 32-bit machines.
	expires      int64
	releaseError func(ReleaseError)
	// held counts the guard while it is neither released nor lost.
	held *held
	// bell is for the wait before the grant: one id serves both.
	bell bell
	// releasing counts the Releases that are in the library, or have not yet said how the guard ended.
	releasing atomic.Int32

	mu      sync.Mutex
	err     error
	done    chan struct{}
	last    int
	cancels map[int]func(error)
}

// end ends it with err, unless it has ended. A guard whose client was closed is still held, and may be lost.
func (l *loss) end(err error) {
	l.mu.Lock()
	if l.err != nil {
		if l.err == ErrClosed && errors.Is(err, ErrLost) {
			l.err = err
		}
		l.mu.Unlock()
		return
	}
	l.err = err
	if l.done != nil {
		close(l.done)
	}
	cancels := l.cancels
	l.cancels = nil
	l.mu.Unlock()
	for _, cancel := range cancels {
		cancel(err)
	}
}

// over is for a guard that is released or lost: nobody waits for its release any more.
func (l *loss) over() {
	l.held.remove(l)
}

// why is nil while it has not ended.
func (l *loss) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// channel is made when first asked for: most guards are never watched.
func (l *loss) channel() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// under makes a context that also ends with the guard, and what lets go of it.
func (l *loss) under(parent context.Context) (context.Context, func()) {
	ctx, cancel := withCancel(parent)
	l.mu.Lock()
	if l.err != nil {
		err := l.err
		l.mu.Unlock()
		cancel(err)
		return ctx, func() {}
	}
	defer l.mu.Unlock()
	l.last++
	id := l.last
	if l.cancels == nil {
		l.cancels = make(map[int]func(error))
	}
	l.cancels[id] = cancel
	return ctx, func() {
		l.mu.Lock()
		delete(l.cancels, id)
		l.mu.Unlock()
		cancel(nil)
	}
}
