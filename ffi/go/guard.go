//go:build cgo

package syncguard

// Guard: what a program does with a lock that it holds. Uses call.go, guard_handle.go and guard_end.go.

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// Guard is a lock that is held, renewed in the background until it is released or lost. Its methods may be called by any number
// of goroutines at once. Copies are the same guard; a nil or zero one holds nothing.
//
// Check the fence where it matters: a holder that was paused past its ttl does not know it, and only the resource itself, by
// refusing an older fence than it has seen, is safe from it.
//
// A guard that the program forgets is released some time after the collector finds it. Do not rely on that.
type Guard struct{ g *guardState }

// guardState is what all copies of a Guard share.
type guardState struct {
	handle             *guardHandle
	key, lockID, fence string
	waited             time.Duration
	end                *guardEnd
	giving             *slots
	operationTimeout   time.Duration
	values             context.Context

	mu      sync.Mutex
	context context.Context
}

func newGuard(c *clientState, grant granted, end *guardEnd, id uintptr, values context.Context) *Guard {
	// One allocation for both.
	made := &struct {
		Guard
		guardState
	}{guardState: guardState{
		handle: newGuardHandle(grant.guard, end, id, c.giving),
		key:    grant.key, lockID: grant.lockID, fence: grant.fence, waited: grant.waited,
		end: end, giving: c.giving, operationTimeout: c.operationTimeout, values: values,
	}}
	made.Guard.g = &made.guardState
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

// LockID is the id of this grant. Any process, in any language, that knows it can release or extend the lock: keep it out of logs.
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

// Waited is how long Lock or TryLock went on until the store granted the lock, in whole milliseconds.
func (g *Guard) Waited() time.Duration {
	if g == nil || g.g == nil {
		return 0
	}
	return g.g.waited
}

// ExpiresAt is when the lease ends on the store's clock, as of the last renewal. For display; decide by Remaining.
func (g *Guard) ExpiresAt() time.Time {
	if g == nil || g.g == nil {
		return time.Time{}
	}
	p := g.enter()
	if p == nil {
		return unixMilli(g.g.handle.expires.Load())
	}
	defer g.g.handle.leave()
	return unixMilli(cExpiresAt(p))
}

// Remaining is how much longer this process may count on the lock, by its own monotonic clock; 0 once lost or released.
func (g *Guard) Remaining() time.Duration {
	p := g.enter()
	if p == nil {
		return 0
	}
	defer g.g.handle.leave()
	return time.Duration(cRemaining(p)) * time.Millisecond
}

// Done is closed when the guard has ended: lost, or released. Err says which.
func (g *Guard) Done() <-chan struct{} {
	if g == nil || g.g == nil {
		return closedChannel
	}
	return g.g.end.channel()
}

// Err is nil while the lock is held; once it is lost, an [Error] in which errors.Is finds ErrLost and whose Reason says why;
// ErrReleased once Release was called; ErrClosed once the client was closed, unless the lock is lost after that. It compares the clock
// at the moment of the call and does no I/O.
func (g *Guard) Err() error {
	if g == nil || g.g == nil {
		return errNoGuard
	}
	end := g.g.end
	if err := end.err(); err != nil && err != ErrClosed {
		return err
	}
	p := g.enter()
	if p == nil {
		return orReleased(end.err())
	}
	defer g.g.handle.leave()
	if reason := cLossReason(p); reason != LossNone {
		end.record(lostBecause(reason, g.g.key))
		end.notHeld()
	}
	return end.err()
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
		g.g.context, _ = g.g.end.context(context.Background())
	}
	return guardContext{g.g.context, g.g}
}

// guardContext is the end of a guard with the values of another context. It keeps its guard from the collector.
type guardContext struct {
	context.Context
	guard *guardState
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
	p := g.enter()
	if p == nil {
		return absent(g.Err())
	}
	defer g.g.handle.leave()
	failed := g.g.giving.bounded(ctx, g.g.operationTimeout, func(token cCancel) *Error { return cGuardExtend(p, ms, token) })
	if failed != nil && failed.Code == Absent {
		return absent(g.Err())
	}
	return asError(failed)
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
	p := g.enter()
	if p == nil {
		return absent(g.Err())
	}
	h, end := g.g.handle, g.g.end
	var tried, gone bool
	failed := g.g.giving.bounded(ctx, g.g.operationTimeout, func(token cCancel) *Error {
		tried = true
		end.releasing.Add(1)
		reason, expires, err := cGuardRelease(p, token)
		h.expires.Store(expires)
		gone = err == nil || err.Code == Absent
		// If no other Release can have removed the lock, and none did before, another program has.
		if reason == LossNone && err != nil && err.Code == Absent && end.releasing.Load() == 1 {
			reason = LossRemoved
		}
		if reason != LossNone {
			end.record(lostBecause(reason, g.g.key))
		}
		if gone {
			// Freed here, within the slot: thousands of goroutines that release must not each be in C on a thread.
			h.close(false)
			h.leave()
		}
		return err
	})
	before := end.err()
	// Not earlier: ctx may be the guard's own, and must not end its release.
	end.record(ErrReleased)
	if tried {
		end.releasing.Add(-1)
	}
	switch {
	case gone:
		end.notHeld()
	case failed.Code == Aborted || !tried:
		// Freeing the C guard sends the release without the context. A guard whose release was not tried would else be renewed for ever.
		h.expires.Store(cExpiresAt(p))
		end.notHeld()
		h.close(true)
		h.leave()
	default:
		h.leave()
	}
	switch {
	case failed == nil:
		return nil
	case failed.Code == Absent:
		return absent(before)
	}
	return failed
}

// abandon releases it in the background, unless it is closed.
func (g *guardState) abandon() {
	g.end.notHeld()
	g.handle.close(true)
}

// enter gives the C guard until g.g.handle.leave, or nil if it is closed or g is none.
func (g *Guard) enter() cGuard {
	if g == nil || g.g == nil {
		return nil
	}
	return g.g.handle.enter()
}

// orReleased is how a guard ended whose C guard is closed. The Release that closed it may not have recorded the end yet.
func orReleased(end error) error {
	if end == nil {
		return ErrReleased
	}
	return end
}

// absent is the error of a call that found the lock gone.
func absent(end error) error {
	err := &Error{Code: Absent, Message: "the lock is no longer held", cause: orReleased(end)}
	if lost, ok := end.(*Error); ok {
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
