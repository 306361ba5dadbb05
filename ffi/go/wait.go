//go:build cgo

package syncguard

import (
	"context"
	"math"
	"sync"
	"time"
)

// wait is one Lock: the library's own loop, between single attempts, without its thread. The delays are the library's.
type wait struct {
	ctx    context.Context
	client *client
	c      cClient
	key    string
	o      *lockOptions

	begun time.Time
	// end of the wait; zero is never.
	end time.Time
	// last is the end of the last attempt: the first one has its whole operation timeout. Zero is never.
	last     time.Time
	limited  bool
	attempts int
	// retries are delays that passed in vain. Being called is not a retry.
	retries uint32
	// trouble is why the last attempt failed, if not because somebody held the lock.
	trouble *Error

	// place is the one in line; nil before it is entered and once the lock is granted.
	place cWaiter
	// bell is the id by which the library calls; 0 for none.
	bell uintptr
	rung chan struct{}
	// first tells whether this one was first in line when its sleep was measured out.
	first bool
}

func newWait(ctx context.Context, client *client, c cClient, key string, o *lockOptions) (wait, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Err() != nil {
		return wait{}, abortedBy(ctx, "", 0)
	}
	return wait{ctx: ctx, client: client, c: c, key: key, o: o, begun: time.Now()}, nil
}

// once is a Lock that does not wait.
func (w *wait) once() (*Guard, error) {
	if g, err := w.attempt(alone); g != nil || err != nil {
		return g, plain(err)
	}
	return nil, w.giveUp()
}

func (w *wait) run() (*Guard, error) {
	// Of a rush of callers one asks the store, and whoever just arrived is not served before those who wait.
	if g, err := w.attempt(entering); g != nil || err != nil {
		w.leave()
		return g, plain(err)
	}
	if w.place == nil {
		if err := w.join(); err != nil {
			return nil, err
		}
	}
	w.client.inLine.Add(1)
	defer w.client.inLine.Add(-1)
	defer w.leave()
	w.limits()
	for {
		delay, counts := w.pause()
		if delay < 0 {
			return w.lastChance()
		}
		awake, first := w.sleep(delay)
		switch awake {
		case promoted:
			continue
		case elapsed:
			if counts {
				w.retries++
			}
			if !first {
				continue
			}
		case cancelled:
			return nil, w.aborted()
		case shut:
			return nil, ErrClosed
		}
		if !w.last.IsZero() && !time.Now().Before(w.last) {
			return w.lastChance()
		}
		if g, err := w.attempt(inLine); g != nil || err != nil {
			return g, plain(err)
		}
	}
}

// limits are asked for when the wait is more than one attempt.
func (w *wait) limits() {
	var retries int32
	var ms int64
	w.client.short(func() { retries, ms = cLimits(w.o) })
	w.limited = retries >= 0
	if ms >= 0 && ms <= math.MaxInt64/int64(time.Millisecond) {
		w.end = w.begun.Add(time.Duration(ms) * time.Millisecond)
		w.last = w.begun.Add(w.client.operationTimeout)
		if w.last.Before(w.end) {
			w.last = w.end
		}
	}
}

// pause is how long to sleep, and whether that is a retry; negative to give up.
func (w *wait) pause() (time.Duration, bool) {
	left, leftMs := time.Duration(math.MaxInt64), int64(-1)
	if !w.end.IsZero() {
		left = time.Until(w.end)
		leftMs = 0
		if left > 0 {
			leftMs = roundUp(left)
		}
	}
	var at stand
	w.client.short(func() { at = cPause(w.place, w.o, w.retries+1, leftMs) })
	w.first = at.first
	switch {
	case at.delay < 0:
		return -1, false
	case !at.first && !w.limited:
		// Another one asks for all.
		return left, false
	case at.first && at.lease >= 0 && at.lease < at.delay:
		// Nobody calls when a holder dies.
		return time.Duration(at.lease) * time.Millisecond, false
	}
	return time.Duration(at.delay) * time.Millisecond, true
}

type awake int

const (
	// called: the lock may be free.
	called awake = iota
	elapsed
	// promoted: first in line now, with other times to keep.
	promoted
	cancelled
	shut
)

// sleep ends for a reason, and tells whether this one is first in line.
func (w *wait) sleep(delay time.Duration) (awake, bool) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		var at stand
		w.client.short(func() { at = cStand(w.place) })
		switch {
		case at.called:
			return called, true
		case at.first && !w.first:
			return promoted, true
		}
		select {
		case <-w.rung:
		case <-timer.C:
			return elapsed, at.first
		case <-w.ctx.Done():
			return cancelled, at.first
		case <-w.client.closing:
			return shut, at.first
		}
	}
}

// way is how an attempt is made.
type way int

const (
	// alone: whoever waits.
	alone way = iota
	// entering: at the end of the line, and only if nobody else is there.
	entering
	// inLine: from a place that was entered before.
	inLine
)

// attempt is one attempt; nil and nil if it failed in a way that may be repeated, or if others came before.
func (w *wait) attempt(how way) (*Guard, *Error) {
	g, err := w.try(how)
	switch {
	case err == nil:
		return g, nil
	case err.Code == statusInLine:
	case err.Code == Locked:
		w.trouble = nil
	case err.transient():
		w.trouble = err
	case err.Code == Aborted && w.ctx.Err() == nil:
		// The end of the wait is no trouble of the store's.
		if w.attempts == 1 {
			w.trouble = &Error{Code: NetworkTimeout, Message: "the wait was over before the store answered", KeyHash: err.KeyHash}
		}
	default:
		err.Attempts = w.attempts
		return nil, err
	}
	return nil, nil
}

// try is one call of the library.
func (w *wait) try(how way) (*Guard, *Error) {
	limit, ok := w.client.taking.enter(w.ctx, w.last, w.client.operationTimeout)
	if !ok {
		return nil, crowded(w.ctx)
	}
	defer w.client.taking.leave()
	if how == inLine && !limit.IsZero() {
		// The library ends it by the same time, and knows what the others in line met.
		limit = limit.Add(10 * time.Millisecond)
	}
	l := &loss{releaseError: w.o.releaseError, held: w.client.held}
	id := registry.add(l)
	l.held.add(l)
	watcher := watch(w.ctx, limit)
	var grant granted
	var err *Error
	switch how {
	case alone:
		grant, err = cTryLock(w.c, w.key, w.o, id, watcher.token)
	case inLine:
		grant, err = cTryInLine(w.place, w.key, w.o, id, watcher.token)
		w.place = grant.waiter
	case entering:
		grant, err = w.enter(l, id, watcher.token)
	}
	watcher.stop()
	if err == nil {
		return newGuard(w.client, grant, l, id, w.ctx), nil
	}
	l.over()
	// With a hook the library forgets the id.
	if id != w.bell && l.releaseError == nil {
		registry.remove(id)
	}
	if err.Code != statusInLine {
		w.attempts++
	}
	return nil, fix(w.ctx, err)
}

// enter makes an attempt if nobody else wants the key, and else joins the line.
func (w *wait) enter(l *loss, id uintptr, token cCancel) (granted, *Error) {
	ringing := &l.bell
	w.bell = id
	if l.releaseError != nil {
		ringing = new(bell)
		w.bell = registry.add(ringing)
	}
	grant, err := cEnter(w.c, w.key, w.o, id, w.bell, token)
	w.place = grant.waiter
	if w.place != nil {
		// What rang before is found when the place is asked how it stands.
		w.rung = ringing.hang()
		return grant, err
	}
	if w.bell != id {
		registry.remove(w.bell)
	}
	w.bell = 0
	return grant, err
}

// join is for who asked in vain, or got no slot to ask from: a store in trouble is given its time.
func (w *wait) join() (err *Error) {
	ringing := new(bell)
	w.rung = ringing.hang()
	w.bell = registry.add(ringing)
	w.client.short(func() { w.place, err = cJoin(w.c, w.key, w.bell) })
	if err != nil {
		registry.remove(w.bell)
	}
	return err
}

// leave leaves the line and passes the turn on.
func (w *wait) leave() {
	if w.bell != 0 {
		registry.remove(w.bell)
	}
	if w.place != nil {
		w.client.short(func() { cLeave(w.place) })
		w.place = nil
	}
}

// leastTime is what the library gives a last attempt whose wait has used up everything.
const leastTime = 30 * time.Millisecond

// lastChance ends the wait. A caller that never became first has not asked yet, and does so once, in what is left of its time or in
// leastTime.
func (w *wait) lastChance() (*Guard, error) {
	if w.attempts == 0 {
		if least := time.Now().Add(leastTime); !w.last.IsZero() && w.last.Before(least) {
			w.last = least
		}
		if g, err := w.attempt(inLine); g != nil || err != nil {
			return g, plain(err)
		}
	}
	return nil, w.giveUp()
}

func (w *wait) giveUp() error {
	if w.trouble != nil {
		w.trouble.Attempts = w.attempts
		return w.trouble
	}
	return &Error{
		Code:     AcquisitionTimeout,
		Message:  "the lock was held by somebody else for the whole wait of " + time.Since(w.begun).Round(time.Millisecond).String(),
		KeyHash:  w.keyHash(),
		Attempts: w.attempts,
	}
}

func (w *wait) aborted() error { return abortedBy(w.ctx, w.keyHash(), w.attempts) }

func (w *wait) keyHash() (hash string) {
	w.client.short(func() { hash, _ = cHashKey(w.key) })
	return hash
}

// short makes a call that does no I/O for one who waits. One at a time: when thousands wake at once, the mutexes inside the library
// would hold a thread for each.
func (c *client) short(call func()) {
	c.waiting.Lock()
	defer c.waiting.Unlock()
	call()
}

// bell wakes a goroutine that stands in line.
type bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

// hang gives what ring is heard on. Most locks are never waited for, so it is made late.
func (b *bell) hang() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rung = make(chan struct{}, 1)
	return b.rung
}

// ring may come on any thread, also before anybody listens, and it must not wait.
func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.rung <- struct{}{}:
	default:
	}
}
