//go:build cgo

package syncguard

// What every call of the library needs: a slot, a watcher of its context, and the errors of a call that was interrupted. Uses cgo.go and
// errors.go.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// slots bounds how many calls of one kind are in the library at once. A call blocks a thread of the system: without a bound a thousand
// goroutines would be a thousand threads, which Go never gives back. The library has no more connections than slots anyway.
type slots struct {
	size int32
	// taken counts the calls that have a slot and those that wait for one. A call that leaves while more than size are counted hands its
	// slot to one that waits.
	taken  atomic.Int32
	handed chan struct{}
}

func newSlots(size int) *slots { return &slots{size: int32(size), handed: make(chan struct{}, size)} }

// enter takes a slot; false when ctx or the time is over: the limit, or if that is zero the timeout from now. It gives the limit of
// the call that follows: if a part of the timeout was spent here, the call has only the rest.
func (s *slots) enter(ctx context.Context, limit time.Time, timeout time.Duration) (time.Time, bool) {
	if s.taken.Add(1) <= s.size {
		return limit, true
	}
	if limit.IsZero() {
		limit = time.Now().Add(timeout)
	}
	wait := time.NewTimer(time.Until(limit))
	defer wait.Stop()
	select {
	case <-s.handed:
		return limit, true
	case <-ctx.Done():
	case <-wait.C:
	}
	s.giveUp()
	return limit, false
}

// enterNow takes a slot if one is free.
func (s *slots) enterNow() bool {
	for {
		taken := s.taken.Load()
		if taken >= s.size {
			return false
		}
		if s.taken.CompareAndSwap(taken, taken+1) {
			return true
		}
	}
}

// giveUp ends a wait without a slot. If every call that is still counted has a slot, one was handed to this wait at the same moment.
func (s *slots) giveUp() {
	if s.taken.Add(-1) < s.size {
		<-s.handed
	}
}

// leave gives the slot back.
func (s *slots) leave() {
	if s.taken.Add(-1) >= s.size {
		s.handed <- struct{}{}
	}
	yieldAfterCall()
}

// watcher ends a call in flight when its context or its time ends.
type watcher struct {
	token     cCancel
	stopFunc  func() bool
	timer     *time.Timer
	mu        sync.Mutex
	stopped   bool
	triggered bool
}

// watch begins to watch ctx, and the clock if limit is not zero. Without either there is nothing to watch and no token.
func watch(ctx context.Context, limit time.Time) *watcher {
	if ctx.Done() == nil && limit.IsZero() {
		return &noWatcher
	}
	w := &watcher{token: takeToken()}
	if ctx.Done() != nil {
		w.stopFunc = afterFunc(ctx, w.trigger)
	}
	if !limit.IsZero() {
		w.timer = time.AfterFunc(time.Until(limit), w.trigger)
	}
	return w
}

var noWatcher watcher

// trigger may run late, when the token serves another call: then it does nothing.
func (w *watcher) trigger() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.triggered = true
		cCancelTrigger(w.token)
	}
}

// stop ends the watch. After it nothing triggers the token.
func (w *watcher) stop() {
	if w.token == nil {
		return
	}
	if w.stopFunc != nil {
		w.stopFunc()
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	if w.triggered {
		cCancelFree(w.token)
	} else {
		keepToken(w.token)
	}
}

// spareTokens are tokens that were not triggered: they serve the next calls.
var spareTokens = make(chan cCancel, 64)

func takeToken() cCancel {
	select {
	case token := <-spareTokens:
		return token
	default:
		return cCancelNew()
	}
}

func keepToken(token cCancel) {
	select {
	case spareTokens <- token:
	default:
		cCancelFree(token)
	}
}

// withContextError adds the error of the context to the answer of a call that its context interrupted.
func withContextError(ctx context.Context, err *Error) *Error {
	if err != nil && err.Code == Aborted && ctx.Err() != nil {
		err.cause = ctx.Err()
	}
	return err
}

// withTimeoutError is withContextError for a call that may also have run out of its own time.
func withTimeoutError(ctx context.Context, err *Error) *Error {
	if err != nil && err.Code == Aborted && ctx.Err() == nil {
		late := *err
		late.Code, late.Message = NetworkTimeout, "the store did not answer within the operation's time"
		return &late
	}
	return withContextError(ctx, err)
}

// asError makes an error of a pointer; a nil pointer becomes nil, and not an interface that holds one.
func asError(err *Error) error {
	if err == nil {
		return nil
	}
	return err
}
