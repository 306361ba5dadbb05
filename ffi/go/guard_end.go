//go:build cgo

package syncguard

// How a guard ended. Uses held_guards.go, and wait.go for the signal that wakes a waiter.

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// guardEnd records how a guard ended, once, and ends the channel and the contexts of its users. C finds it by its id, so it lives on after
// the guard: it must not refer to that, or a forgotten guard would never be collected.
type guardEnd struct {
	releaseError func(ReleaseError)
	// held counts the guard while it is neither released nor lost.
	held *heldGuards
	// wake is for the wait before the grant: one id serves both.
	wake wakeSignal
	// releasing counts the Releases that are in the library, or have not yet recorded how the guard ended.
	releasing atomic.Int32

	mu         sync.Mutex
	recorded   error
	done       chan struct{}
	lastCancel int
	cancels    map[int]func(error)
}

// record ends the guard with err, unless it has ended. A guard whose client was closed is still held, and may be lost.
func (e *guardEnd) record(err error) {
	e.mu.Lock()
	if e.recorded != nil {
		if e.recorded == ErrClosed && errors.Is(err, ErrLost) {
			e.recorded = err
		}
		e.mu.Unlock()
		return
	}
	e.recorded = err
	if e.done != nil {
		close(e.done)
	}
	cancels := e.cancels
	e.cancels = nil
	e.mu.Unlock()
	for _, cancel := range cancels {
		cancel(err)
	}
}

// notHeld is for a guard that is released or lost, and for an attempt without a grant: Close waits for it no longer.
func (e *guardEnd) notHeld() {
	e.held.remove(e)
}

// err is nil while the guard has not ended.
func (e *guardEnd) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.recorded
}

// channel is closed when the guard ends. It is made when first asked for: most guards are never watched.
func (e *guardEnd) channel() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.recorded != nil {
			close(e.done)
		}
	}
	return e.done
}

// context makes a context that ends with parent and with the guard, and a function that ends it early.
func (e *guardEnd) context(parent context.Context) (context.Context, func()) {
	ctx, cancel := withCancel(parent)
	e.mu.Lock()
	if e.recorded != nil {
		err := e.recorded
		e.mu.Unlock()
		cancel(err)
		return ctx, func() {}
	}
	defer e.mu.Unlock()
	e.lastCancel++
	id := e.lastCancel
	if e.cancels == nil {
		e.cancels = make(map[int]func(error))
	}
	e.cancels[id] = cancel
	return ctx, func() {
		e.mu.Lock()
		delete(e.cancels, id)
		e.mu.Unlock()
		cancel(nil)
	}
}
