package syncguard

import (
	"context"
	"math"
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
}

func newWait(ctx context.Context, client *client, c cClient, key string, o *lockOptions) (*wait, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Err() != nil {
		return nil, abortedBy(ctx, "", 0)
	}
	return &wait{ctx: ctx, client: client, c: c, key: key, o: o, begun: time.Now()}, nil
}

func (w *wait) run() (*Guard, error) {
	single := w.o.single()
	// Who finds a line joins it: whoever just arrived is not served before those who wait.
	if g, err := w.attempt(!single); g != nil || err != nil {
		return g, plain(err)
	}
	if single {
		return nil, w.giveUp()
	}
	w.limits()
	place, err := join(w.client, w.c, w.key)
	if err != nil {
		return nil, err
	}
	defer place.leave()
	if w.trouble != nil && place.isFirst() {
		// A store in trouble is given its time.
		place.beginAttempt()
	}
	for {
		delay, counts := w.pause(place)
		if delay < 0 {
			return w.lastChance()
		}
		switch awake := w.sleep(place, delay); awake {
		case promoted:
			continue
		case elapsed:
			if counts {
				w.retries++
			}
			if !place.isFirst() {
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
		place.beginAttempt()
		if g, err := w.attempt(false); g != nil || err != nil {
			return g, plain(err)
		}
	}
}

// limits are asked for when the wait is more than one attempt.
func (w *wait) limits() {
	var ms int64
	w.client.short(func() {
		w.limited = cMaxRetries(w.o) >= 0
		ms = cAcquireTimeout(w.o)
	})
	if ms >= 0 && ms <= math.MaxInt64/int64(time.Millisecond) {
		w.end = w.begun.Add(time.Duration(ms) * time.Millisecond)
		w.last = w.begun.Add(w.client.operationTimeout)
		if w.last.Before(w.end) {
			w.last = w.end
		}
	}
}

// pause is how long to sleep, and whether that is a retry; negative to give up.
func (w *wait) pause(place *place) (time.Duration, bool) {
	left, leftMs := time.Duration(math.MaxInt64), int64(-1)
	if !w.end.IsZero() {
		left = time.Until(w.end)
		leftMs = 0
		if left > 0 {
			leftMs = roundUp(left)
		}
	}
	var ms int64
	var first bool
	w.client.short(func() {
		ms = cRetryDelay(w.o, w.retries+1, leftMs)
		first = cIsFirst(place.waiter)
	})
	if ms < 0 {
		return -1, false
	}
	if !w.limited && !first {
		// Another one asks for all.
		return left, false
	}
	return time.Duration(ms) * time.Millisecond, true
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

func (w *wait) sleep(place *place, delay time.Duration) awake {
	first := place.isFirst()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		isCalled, isFirst := place.stands()
		switch {
		case isCalled:
			return called
		case isFirst && !first:
			return promoted
		}
		select {
		case <-place.rung:
		case <-timer.C:
			return elapsed
		case <-w.ctx.Done():
			return cancelled
		case <-w.client.closing:
			return shut
		}
	}
}

// attempt is one attempt; nil and nil if it failed in a way that may be repeated, or if there is a line to join.
func (w *wait) attempt(polite bool) (*Guard, *Error) {
	g, err := w.try(polite)
	switch {
	case err == nil:
		return g, nil
	case err.Code == statusJoin:
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
func (w *wait) try(polite bool) (*Guard, *Error) {
	limit := w.last
	if limit.IsZero() {
		limit = time.Now().Add(w.client.operationTimeout)
	}
	if !w.client.taking.enter(w.ctx, limit) {
		return nil, crowded(w.ctx)
	}
	defer w.client.taking.leave()
	l := &loss{releaseError: w.o.releaseError}
	id := registry.add(l)
	watcher := watch(w.ctx, w.last)
	grant, err := cTryLock(w.c, w.key, w.o, id, watcher.token, polite)
	watcher.stop()
	if err == nil {
		return newGuard(w.client, grant, l, id, w.ctx), nil
	}
	if l.releaseError == nil || err.Code == statusJoin {
		registry.remove(id)
	}
	if err.Code != statusJoin {
		w.attempts++
	}
	return nil, fix(w.ctx, err)
}

// lastChance ends the wait. Who never came to be first has not asked yet: nobody leaves without an answer.
func (w *wait) lastChance() (*Guard, error) {
	if w.attempts == 0 {
		w.last = time.Now().Add(w.client.operationTimeout)
		if g, err := w.attempt(false); g != nil || err != nil {
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

// place is one in the line of those who wait for a key with one client.
type place struct {
	client *client
	waiter cWaiter
	id     uintptr
	rung   chan struct{}
}

func join(client *client, c cClient, key string) (*place, error) {
	p := &place{client: client, rung: make(chan struct{}, 1)}
	p.id = registry.add(p.rung)
	var err *Error
	client.short(func() { p.waiter, err = cJoin(c, key, p.id) })
	if err != nil {
		registry.remove(p.id)
		return nil, err
	}
	return p, nil
}

// ring notes a call. It may come on any thread, before join has returned, and it must not wait.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// stands tells whether the lock may be free and this one is to try, and whether it is first in line.
func (p *place) stands() (isCalled, isFirst bool) {
	p.client.short(func() { isCalled, isFirst = cIsCalled(p.waiter), cIsFirst(p.waiter) })
	return isCalled, isFirst
}

func (p *place) isFirst() bool {
	_, first := p.stands()
	return first
}

func (p *place) beginAttempt() { p.client.short(func() { cBeginAttempt(p.waiter) }) }

// leave passes the turn on.
func (p *place) leave() {
	registry.remove(p.id)
	p.client.short(func() { cLeave(p.waiter) })
}
