//go:build cgo

package syncguard

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Guard is a lock that is held: renewed in the background until it is released or lost. Its methods may be called by any number
// of goroutines at once. Copies are the same guard; a nil or zero one holds nothing.
//
// Check the fence where it matters: a holder that was paused past its ttl does not know it, and only the resource itself, by
// refusing an older fence than it has seen, is safe from it.
//
// A guard that is forgotten is released some time after the collector finds it. Do not rely on that.
type Guard struct{ g *guard }

type guard struct {
	// leash is let go of with the lock: it may be another guard's next, which must not live as long as somebody keeps this one.
	leash              atomic.Pointer[leash]
	turn               uint64
	key, lockID, fence string
	loss               *loss
	giving             *slots
	operationTimeout   time.Duration
	values             context.Context

	mu      sync.Mutex
	context context.Context
}

func newGuard(c *client, grant granted, l *loss, id uintptr, values context.Context) *Guard {
	leash := leashes.Get().(*leash)
	leash.loss, leash.id, leash.giving = l, id, c.giving
	// One allocation for both.
	made := &struct {
		Guard
		guard
	}{guard: guard{
		turn: leash.handle.open(unsafe.Pointer(grant.guard)),
		key:  grant.key, lockID: grant.lockID, fence: grant.fence,
		loss: l, giving: c.giving, operationTimeout: c.operationTimeout, values: values,
	}}
	made.guard.leash.Store(leash)
	made.Guard.g = &made.guard
	return &made.Guard
}

// Fence is the fencing token, 15 digits: larger, as a number and as a text, than that of every earlier grant of this key.
func (g *Guard) Fence() string {
	if g == nil || g.g == nil {
		return ""
	}
	return g.g.fence
}

// FenceNumber is the fencing token as a number, which fits a BIGINT; 0, which is no fence, for a zero Guard.
func (g *Guard) FenceNumber() uint64 { return fenceNumber(g.Fence()) }

// fenceNumber reads 15 digits. A text that is no number, such as that of a zero value, is 0.
func fenceNumber(fence string) uint64 {
	number, err := strconv.ParseUint(fence, 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// LockID is the id of this grant. Who knows it can release or extend the lock, from any process or language.
func (g *Guard) LockID() string {
	if g == nil || g.g == nil {
		return ""
	}
	return g.g.lockID
}

// Key is the key, normalised.
func (g *Guard) Key() string {
	if g == nil || g.g == nil {
		return ""
	}
	return g.g.key
}

// ExpiresAt is when the lease ends on the store's clock, as of the last renewal. For display; decide by Remaining.
func (g *Guard) ExpiresAt() time.Time {
	if g == nil || g.g == nil {
		return time.Time{}
	}
	leash, p := g.enter()
	if p == nil {
		return unixMilli(atomic.LoadInt64(&g.g.loss.expires))
	}
	defer leash.leave()
	return unixMilli(cExpiresAt(p))
}

// Remaining is how much longer this process may count on the lock, by its own monotonic clock; 0 once lost or released.
func (g *Guard) Remaining() time.Duration {
	leash, p := g.enter()
	if p == nil {
		return 0
	}
	defer leash.leave()
	return time.Duration(cRemaining(p)) * time.Millisecond
}

// Done is closed when the guard is over: lost, or released. Err says which.
func (g *Guard) Done() <-chan struct{} {
	if g == nil || g.g == nil {
		return closedChannel
	}
	return g.g.loss.channel()
}

// Err is nil while the lock is held; once it is lost, an [Error] in which errors.Is finds ErrLost and whose Reason says why;
// ErrReleased once Release was called; ErrClosed once the client was closed, unless the lock is lost after that. It compares the clock
// at the moment of the call and does no I/O.
func (g *Guard) Err() error {
	if g == nil || g.g == nil {
		return errNoGuard
	}
	l := g.g.loss
	if err := l.why(); err != nil && err != ErrClosed {
		return err
	}
	leash, p := g.enter()
	if p == nil {
		return orReleased(l.why())
	}
	defer leash.leave()
	if reason := cLossReason(p); reason != LossNone {
		l.end(lostBecause(reason, g.g.key))
		l.over()
	}
	return l.why()
}

// Context ends with the guard: when the lock is lost, or released. It has the values of the context given to Lock, but not its end,
// which was for the wait. From Go 1.20 on context.Cause gives what Err gave when it ended. The guard stays alive as long
// as it does, or a context that was made from it and not cancelled.
func (g *Guard) Context() context.Context {
	if g == nil || g.g == nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}
	g.g.mu.Lock()
	defer g.g.mu.Unlock()
	if g.g.context == nil {
		// Without the values: what the library refers to must not refer to the guard, and they may.
		g.g.context, _ = g.g.loss.under(context.Background())
	}
	return guardContext{g.g.context, g.g}
}

// guardContext is the end of a guard with the values of another context. It keeps its guard from the collector.
type guardContext struct {
	context.Context
	guard *guard
}

// Value asks the end first: that is how the package context finds what to cancel.
func (c guardContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.guard.values.Value(key)
}

// Extend sets the lease to ttl from now, and renews with that from now on. Less than what remains shortens it. ErrAbsent if the
// lock was lost or released; then errors.Is also finds ErrLost or ErrReleased.
func (g *Guard) Extend(ctx context.Context, ttl time.Duration) error {
	if g == nil || g.g == nil {
		return errNoGuard
	}
	ms, err := millis("ttl", ttl)
	if err != nil {
		return err
	}
	leash, p := g.enter()
	if p == nil {
		return absent(g.Err())
	}
	defer leash.leave()
	failed := g.g.giving.bounded(ctx, g.g.operationTimeout, func(token cCancel) *Error { return cGuardExtend(p, ms, token) })
	if failed != nil && failed.Code == Absent {
		return absent(g.Err())
	}
	return plain(failed)
}

// Release ends the renewal and releases the lock, and reports. nil: this call removed it. ErrAbsent: it was gone already; then
// errors.Is also finds ErrLost or ErrReleased.
//
// A context that has ended does not keep the lock from being released: one that had ended before is ignored, one that ends
// meanwhile ends the call, with the context's error, and the release goes on in the background. So it does after the ErrRateLimited
// of a call that had to wait too long for other calls of the client. After any other error Release may be called again; the lock may
// be held until its ttl has passed.
func (g *Guard) Release(ctx context.Context) error {
	if g == nil || g.g == nil {
		return errNoGuard
	}
	if ctx == nil || ctx.Err() != nil {
		ctx = context.Background()
	}
	leash, p := g.enter()
	if p == nil {
		return absent(g.Err())
	}
	l := g.g.loss
	var tried, freed bool
	failed := g.g.giving.bounded(ctx, g.g.operationTimeout, func(token cCancel) *Error {
		tried = true
		l.releasing.Add(1)
		var reason LossReason
		var err *Error
		reason, freed, err = cGuardRelease(&leash.handle, g.g.turn, &l.expires, token)
		// If no other Release can have removed it, and none did before, somebody else has.
		if reason == LossNone && err != nil && err.Code == Absent && l.releasing.Load() == 1 {
			reason = LossRemoved
		}
		if reason != LossNone {
			l.end(lostBecause(reason, g.g.key))
		}
		return err
	})
	before := l.why()
	// Not earlier: ctx may be the guard's own, and must not end its release.
	l.end(ErrReleased)
	if tried {
		l.releasing.Add(-1)
	}
	switch {
	case freed:
		l.over()
		g.g.leash.Store(nil)
		leash.again()
	case failed == nil || failed.Code == Absent:
		l.over()
		leash.close(g.g.turn, false)
		leash.leave()
	case failed.Code == Aborted || !tried:
		// Freeing it releases it, without the context. Without that one that was not tried would be renewed for ever.
		atomic.StoreInt64(&l.expires, cExpiresAt(p))
		l.over()
		leash.close(g.g.turn, true)
		leash.leave()
	default:
		leash.leave()
	}
	switch {
	case failed == nil:
		return nil
	case failed.Code == Absent:
		return absent(before)
	}
	return failed
}

// abandon releases it in the background, unless that was done.
func (g *guard) abandon() {
	if leash := g.leash.Load(); leash != nil {
		g.loss.over()
		leash.close(g.turn, true)
	}
}

// enter gives the C guard until leash.leave, or nil if it is closed or never was.
func (g *Guard) enter() (*leash, cGuard) {
	if g == nil || g.g == nil {
		return nil, nil
	}
	leash := g.g.leash.Load()
	if leash == nil {
		return nil, nil
	}
	return leash, cGuard(leash.handle.enter(g.g.turn))
}

// orReleased is why a guard is over that was found closed. Who has just released it may not have said so yet.
func orReleased(why error) error {
	if why == nil {
		return ErrReleased
	}
	return why
}

// absent is the error of a call that found the lock gone.
func absent(why error) error {
	err := &Error{Code: Absent, Message: "the lock is no longer held", cause: orReleased(why)}
	if lost, ok := why.(*Error); ok {
		err.KeyHash, err.Reason = lost.KeyHash, lost.Reason
	}
	return err
}

var (
	errNoGuard    = invalid("the guard is nil or zero: it was not given by Lock or TryLock")
	closedChannel = func() chan struct{} {
		c := make(chan struct{})
		close(c)
		return c
	}()
)
