//go:build cgo

package syncguard

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// slots bounds how many calls of one kind are in the library at once. A call blocks a thread of the system; without this, a
// thousand goroutines would be a thousand threads, which Go never gives back. The library has no more connections than slots
// anyway.
type slots struct {
	size int32
	// taken counts those inside and those who wait. Whoever leaves while more than size are there hands its slot to one who waits.
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

// giveUp is for one who waited in vain. If all who are left have a slot, one was handed to it at this very moment.
func (s *slots) giveUp() {
	if s.taken.Add(-1) < s.size {
		<-s.handed
	}
}

// leave gives the slot back, and lets others run every five milliseconds. To the scheduler a goroutine that makes one call after the
// other never stops: after ten milliseconds the runtime's monitor takes the processor away in the middle of a call, and looks every
// 20 µs from then on. That cost more than all of the module; so does yielding more often, where another thread wakes up to look.
func (s *slots) leave() {
	if s.taken.Add(-1) >= s.size {
		s.handed <- struct{}{}
	}
	if calls.Add(1)%8 != 0 {
		return
	}
	if now := time.Since(loaded); now-time.Duration(yielded.Load()) > 5*time.Millisecond {
		yielded.Store(int64(now))
		runtime.Gosched()
	}
}

var (
	calls   atomic.Uint32
	yielded atomic.Int64
	loaded  = time.Now()
)

// watcher ends a call in flight when its context or its time ends.
type watcher struct {
	token  cCancel
	let    func() bool
	timer  *time.Timer
	mu     sync.Mutex
	over   bool
	called bool
}

// watch begins to watch ctx, and the clock if limit is not zero. Without either there is nothing to watch and no token.
func watch(ctx context.Context, limit time.Time) *watcher {
	if ctx.Done() == nil && limit.IsZero() {
		return &noWatcher
	}
	w := &watcher{token: takeToken()}
	if ctx.Done() != nil {
		w.let = afterFunc(ctx, w.trigger)
	}
	if !limit.IsZero() {
		w.timer = time.AfterFunc(time.Until(limit), w.trigger)
	}
	return w
}

var noWatcher watcher

// trigger may come late, when the token is another call's.
func (w *watcher) trigger() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.called = true
		cCancelTrigger(w.token)
	}
}

// stop ends the watch: nobody triggers the token any more.
func (w *watcher) stop() {
	if w.token == nil {
		return
	}
	if w.let != nil {
		w.let()
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	if w.called {
		cCancelFree(w.token)
	} else {
		keepToken(w.token)
	}
}

// tokens are those that were not triggered: they serve the next calls.
var tokens = make(chan cCancel, 64)

func takeToken() cCancel {
	select {
	case token := <-tokens:
		return token
	default:
		return cCancelNew()
	}
}

func keepToken(token cCancel) {
	select {
	case tokens <- token:
	default:
		cCancelFree(token)
	}
}

// fix turns the answer of an interrupted call into the error of the context that did it.
func fix(ctx context.Context, err *Error) *Error {
	if err != nil && err.Code == Aborted && ctx.Err() != nil {
		err.cause = ctx.Err()
	}
	return err
}

// late is fix for a call that its own time may have ended.
func late(ctx context.Context, err *Error) *Error {
	if err != nil && err.Code == Aborted && ctx.Err() == nil {
		return &Error{Code: NetworkTimeout, Message: "the store did not answer within the operation's time", KeyHash: err.KeyHash}
	}
	return fix(ctx, err)
}

// plain avoids the interface that holds a nil pointer.
func plain(err *Error) error {
	if err == nil {
		return nil
	}
	return err
}
