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
type slots chan struct{}

// enter takes a slot; false when ctx or the time is over: the limit, or if that is zero the timeout from now.
func (s slots) enter(ctx context.Context, limit time.Time, timeout time.Duration) bool {
	select {
	case s <- struct{}{}:
		return true
	default:
	}
	if !limit.IsZero() {
		timeout = time.Until(limit)
	}
	wait := time.NewTimer(timeout)
	defer wait.Stop()
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-wait.C:
	}
	return false
}

// leave gives the slot back, and lets others run once a millisecond. To the scheduler a goroutine that makes one call after the other
// never stops: after ten milliseconds the runtime's monitor takes the processor away in the middle of a call, and looks every 20 µs
// from then on. That cost more than all of the module.
func (s slots) leave() {
	<-s
	if calls.Add(1)%8 != 0 {
		return
	}
	if now := time.Since(loaded); now-time.Duration(yielded.Load()) > time.Millisecond {
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
	over   chan struct{}
	joined sync.WaitGroup
}

// watch begins to watch ctx, and the clock if limit is not zero. Without either there is nothing to watch and no token.
func watch(ctx context.Context, limit time.Time) *watcher {
	if ctx.Done() == nil && limit.IsZero() {
		return &noWatcher
	}
	w := &watcher{token: cCancelNew(), over: make(chan struct{})}
	w.joined.Add(1)
	go w.run(ctx, limit)
	return w
}

var noWatcher watcher

func (w *watcher) run(ctx context.Context, limit time.Time) {
	defer w.joined.Done()
	var late <-chan time.Time
	if !limit.IsZero() {
		timer := time.NewTimer(time.Until(limit))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-w.over:
		return
	case <-ctx.Done():
	case <-late:
	}
	cCancelTrigger(w.token)
}

// stop ends the watch; the token is freed when nobody can trigger it any more.
func (w *watcher) stop() {
	if w.token == nil {
		return
	}
	close(w.over)
	w.joined.Wait()
	cCancelFree(w.token)
}

// fix turns the answer of an interrupted call into the error of the context that did it.
func fix(ctx context.Context, err *Error) *Error {
	if err != nil && err.Code == Aborted && ctx.Err() != nil {
		err.cause = ctx.Err()
	}
	return err
}

// plain avoids the interface that holds a nil pointer.
func plain(err *Error) error {
	if err == nil {
		return nil
	}
	return err
}
