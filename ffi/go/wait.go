//go:build cgo

package syncguard

// Waits for a lock in Go, as the library's waiting policy says. Uses call.go, guard_end.go and guard.go.

import (
	"context"
	"sync"
	"time"
)

// wait is one Lock: channels and contexts around the library's own waiting policy, which decides when to try, how long to sleep and when to
// give up.
type wait struct {
	ctx    context.Context
	client *clientState
	c      cClient
	key    string
	o      *lockOptions

	// end becomes the guard's. Until the grant the line wakes the goroutine through it. C finds it by id.
	end *guardEnd
	id  uintptr
	// place is the one in line; nil before it is entered and once the lock is granted.
	place cWaiter
	wake  chan struct{}
}

func newWait(ctx context.Context, client *clientState, c cClient, key string, o *lockOptions) (wait, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Err() != nil {
		return wait{}, abortedBy(ctx, "", 0)
	}
	return wait{ctx: ctx, client: client, c: c, key: key, o: o}, nil
}

// once is a Lock that does not wait, with the error of one that waited for no time.
func (w *wait) once() (*Guard, error) {
	g, err := w.tryOutsideLine(true)
	return g, asError(err)
}

// tryOutsideLine is one attempt that does not join the line. If the key is held the error is ErrLocked, or the one that names the holder.
func (w *wait) tryOutsideLine(nameHolder bool) (*Guard, *Error) {
	limit, ok := w.client.taking.enter(w.ctx, time.Time{}, w.client.operationTimeout)
	if !ok {
		return nil, noSlot(w.ctx)
	}
	defer w.client.taking.leave()
	w.register()
	w.end.held.add(w.end)
	watcher := watch(w.ctx, limit)
	var grant granted
	var err *Error
	if nameHolder {
		grant, err = cLockOnce(w.c, w.key, w.o, w.id, watcher.token)
	} else {
		grant, err = cTryLock(w.c, w.key, w.o, w.id, watcher.token)
	}
	watcher.stop()
	return w.took(grant, withTimeoutError(w.ctx, err))
}

// run takes the lock, or waits in line for it.
func (w *wait) run() (*Guard, error) {
	if g, err := w.enter(); g != nil || err != nil {
		return g, asError(err)
	}
	w.client.inLine.Add(1)
	defer w.client.inLine.Add(-1)
	defer w.leave()
	event := woken
	for {
		var next waiterStep
		w.client.oneAtATime(func() { next = cWaiterNext(w.place, event) })
		switch {
		case next.err != nil:
			return nil, withContextError(w.ctx, next.err)
		case next.try:
			g, happened, err := w.try(next.time)
			if g != nil || err != nil {
				return g, asError(err)
			}
			event = happened
		default:
			happened, closed := w.sleep(next.time)
			if closed {
				return nil, ErrClosed
			}
			event = happened
		}
	}
}

// enter takes the lock, or a place in line. Without a slot for the attempt it only joins the line.
func (w *wait) enter() (*Guard, *Error) {
	w.register()
	if !w.client.taking.enterNow() {
		var grant granted
		var err *Error
		w.client.oneAtATime(func() { grant, err = cWaiterNew(w.c, w.key, w.o, w.id) })
		return w.took(grant, err)
	}
	defer w.client.taking.leave()
	w.end.held.add(w.end)
	watcher := watch(w.ctx, time.Time{})
	grant, err := cLockOrWait(w.c, w.key, w.o, w.id, watcher.token)
	watcher.stop()
	return w.took(grant, withContextError(w.ctx, err))
}

// try is one attempt from the place in line, in a slot that is had within the attempt's time. Without a grant and an error it gives
// what to tell the library next.
func (w *wait) try(within time.Duration) (*Guard, waiterEvent, *Error) {
	if _, ok := w.client.taking.enter(w.ctx, time.Time{}, within); !ok {
		if w.ctx.Err() != nil {
			return nil, cancelled, nil
		}
		return nil, noThread, nil
	}
	defer w.client.taking.leave()
	w.end.held.add(w.end)
	watcher := watch(w.ctx, time.Time{})
	grant, err := cWaiterTryLock(w.place, w.key, watcher.token)
	watcher.stop()
	if err == nil {
		w.place = nil
		return newGuard(w.client, grant, w.end, w.id, w.ctx), woken, nil
	}
	// Between attempts there is nothing for Close to wait for.
	w.end.notHeld()
	if err.Code == Locked {
		return nil, woken, nil
	}
	return nil, woken, withContextError(w.ctx, err)
}

// sleep ends when the time is over, the line wakes the goroutine, the context ends or the client is closed.
func (w *wait) sleep(d time.Duration) (event waiterEvent, closed bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C:
	case <-w.ctx.Done():
		return cancelled, false
	case <-w.client.closing:
		return woken, true
	}
	return woken, false
}

func (w *wait) register() {
	w.end = &guardEnd{releaseError: w.o.releaseError, held: w.client.held}
	w.id = registry.add(w.end)
}

// forget gives up the id of a wait without a grant. With a hook the library does that.
func (w *wait) forget() {
	if w.o.releaseError == nil {
		registry.remove(w.id)
	}
}

// took turns the answer of a first attempt into a guard, an error, or neither and a place in line.
func (w *wait) took(grant granted, err *Error) (*Guard, *Error) {
	switch {
	case grant.guard != nil:
		return newGuard(w.client, grant, w.end, w.id, w.ctx), nil
	case grant.waiter != nil:
		w.end.notHeld()
		// A signal sent before is not lost: the library, asked next, says what to do.
		w.place, w.wake = grant.waiter, w.end.wake.channel()
	default:
		w.end.notHeld()
		w.forget()
	}
	return nil, err
}

// leave leaves the line, and the next one may try.
func (w *wait) leave() {
	if w.place != nil {
		w.client.oneAtATime(func() { cWaiterFree(w.place) })
		w.place = nil
		w.forget()
	}
}

// oneAtATime makes a call without I/O for a goroutine that waits. When thousands wake at once, the mutexes inside the library would hold a
// thread for each.
func (c *clientState) oneAtATime(call func()) {
	c.waiting.Lock()
	defer c.waiting.Unlock()
	call()
}

// wakeSignal wakes a goroutine that stands in line.
type wakeSignal struct {
	mu   sync.Mutex
	sent chan struct{}
}

// channel makes the channel that send writes to. Most locks are never waited for, so it is made late.
func (s *wakeSignal) channel() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = make(chan struct{}, 1)
	return s.sent
}

// send may be called on any thread, also before channel, and does not block.
func (s *wakeSignal) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.sent <- struct{}{}:
	default:
	}
}
