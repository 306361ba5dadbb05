//go:build cgo

package syncguard

// The five verbs and the lookups: one attempt each. Uses call.go and client.go.

import (
	"context"
	"errors"
	"time"
)

// Acquired is what Acquire was granted.
type Acquired struct {
	// LockID is for Release and Extend, from any process or language.
	LockID string
	// Fence is the fencing token, 15 digits: larger, as a number and as a text, than that of every earlier grant of the key.
	Fence string
	// ExpiresAt is when the lease ends, on the store's clock.
	ExpiresAt time.Time
}

// FenceNumber is the fencing token as a number, which fits a BIGINT; 0, which is no fence, if nothing was granted.
func (a Acquired) FenceNumber() uint64 { return fenceNumber(a.Fence) }

// LockInfo is a live lock without its secrets.
type LockInfo struct {
	KeyHash    string
	LockIDHash string
	Fence      string
	// ExpiresAt and AcquiredAt are of the store's clock.
	ExpiresAt  time.Time
	AcquiredAt time.Time
}

// FenceNumber is the fencing token as a number, which fits a BIGINT; 0, which is no fence, for a zero value.
func (i LockInfo) FenceNumber() uint64 { return fenceNumber(i.Fence) }

// LockInfoRaw is a live lock with its raw key and lock id, which are enough to release it.
type LockInfoRaw struct {
	LockInfo
	Key    string
	LockID string
	// Holder is what the holder says of itself ([WithHolder]); empty if it says nothing. Any program that can write to the store can
	// write any text.
	Holder string
}

// EventType is what an event is about.
type EventType int32

// What events are about. The numbers are those of the C header and never change; a later version may have more.
const (
	// EventAcquire is an attempt to take a lock.
	EventAcquire EventType = 0
	// EventRelease is a release.
	EventRelease EventType = 1
	// EventExtend is an extend, or a renewal of a guard.
	EventExtend EventType = 2
	// EventIsLocked is a call of IsLocked.
	EventIsLocked EventType = 3
	// EventLookup is a lookup.
	EventLookup EventType = 4
	// EventWait is the end of a wait of Lock or Do, with the lock or without it.
	EventWait EventType = 5
	// EventLoss is the loss of a guard: once per guard.
	EventLoss EventType = 6
)

// String gives a short name for labels, such as "is_locked".
func (t EventType) String() string {
	names := [...]string{"acquire", "release", "extend", "is_locked", "lookup", "wait", "loss"}
	if t < 0 || int(t) >= len(names) {
		return "unknown"
	}
	return names[t]
}

// EventReason is why an operation did not do what was asked, although the store answered it. A later version may have more.
type EventReason string

// The reasons.
const (
	// ReasonLocked: another holder has the lock; of a wait: another holder had it to the end.
	ReasonLocked EventReason = "locked"
	// ReasonExpired: the lock was there, and its time was over.
	ReasonExpired EventReason = "expired"
	// ReasonNotFound: there was no such lock, or it has another owner.
	ReasonNotFound EventReason = "not-found"
)

// Event is one operation, one wait or one loss, and how it went.
type Event struct {
	Type EventType
	OK   bool
	// Reason is why it did not do what was asked, where the store answered; empty for trouble.
	Reason EventReason
	// KeyHash is the hash of the key where the key is known: a release or an extend of a guard has it, one by a lock id alone has not.
	KeyHash    string
	LockIDHash string
	// Key and LockID are there only with [WithRawEvents].
	Key    string
	LockID string
	// Holder is what the holder says of itself, only with [WithRawEvents]: of an acquire that was refused, a wait that gave up because the
	// lock was held, and a lookup.
	Holder string
	// Duration is how long it took: the operation, or the wait. 0 for a loss.
	Duration time.Duration
	// Code is that of the error that it ended with; 0 if there was none.
	Code Code
	// Loss is why the guard was lost, of an EventLoss; else LossNone.
	Loss LossReason
	// Backend is the name of the store: "redis", "postgres" or "sqlite".
	Backend string
	// Fence is that of the grant: of an acquire or a wait that was granted, of an extend, a release or a loss of a guard. Else 0, which
	// is no fence.
	Fence uint64
	// Attempts is how many attempts the wait made, of an EventWait; else 0.
	Attempts int
	// Waited is how long the wait took, of an EventWait; else 0.
	Waited time.Duration
	// Held is how long a guard had held the lock when its release was sent, or when it was lost; else 0.
	Held time.Duration
}

// Acquire takes the lock of a key if it is free, ErrLocked if not, with the Holder in its [Error]: one attempt. Nothing is renewed and nothing is undone;
// [Client.Lock] does both.
//
// After an error other than ErrLocked and ErrInvalidArgument the lock may have been taken, under the LockID in the answer: the
// MayHaveApplied of the [Error] says so. Releasing that LockID is safe.
func (c *Client) Acquire(ctx context.Context, key string, ttl time.Duration) (Acquired, error) {
	ms, err := millis("ttl", ttl)
	if err != nil {
		return Acquired{}, err
	}
	inner, p := c.enter()
	if p == nil {
		return Acquired{}, ErrClosed
	}
	defer inner.leave()
	var grant Acquired
	failed := inner.taking.bounded(ctx, inner.operationTimeout, func(token cCancel) *Error {
		lockID, fence, expires, err := cAcquire(p, key, ms, token)
		grant = Acquired{LockID: lockID, Fence: fence}
		switch {
		case err == nil:
			grant.ExpiresAt = unixMilli(expires)
		case err.Code == Locked || err.Code == InvalidArgument:
			grant = Acquired{}
		}
		return err
	})
	return grant, asError(failed)
}

// Release releases the lock with this id, whichever process acquired it. ErrAbsent if there is no such live lock.
func (c *Client) Release(ctx context.Context, lockID string) error {
	return c.call(ctx, func(p cClient, token cCancel) *Error { return cRelease(p, lockID, token) })
}

// Extend sets the lease of the lock with this id to ttl from now, and says when it ends, on the store's clock. It replaces, never
// adds, never revives. ErrAbsent if there is no such live lock.
func (c *Client) Extend(ctx context.Context, lockID string, ttl time.Duration) (time.Time, error) {
	ms, err := millis("ttl", ttl)
	if err != nil {
		return time.Time{}, err
	}
	var expires time.Time
	err = c.call(ctx, func(p cClient, token cCancel) *Error {
		at, err := cExtend(p, lockID, ms, token)
		if err == nil {
			expires = unixMilli(at)
		}
		return err
	})
	return expires, err
}

// IsLocked tells whether a key is locked. Do not decide by it before a write: the lock may change hands between the two.
func (c *Client) IsLocked(ctx context.Context, key string) (bool, error) {
	var yes bool
	err := c.call(ctx, func(p cClient, token cCancel) (err *Error) {
		yes, err = cIsLocked(p, key, token)
		return err
	})
	return yes, err
}

// LookupByKey finds the live lock of a key, ErrAbsent if there is none. For people and dashboards: do not decide by it
// before a write.
func (c *Client) LookupByKey(ctx context.Context, key string) (LockInfo, error) {
	found, err := c.lookup(ctx, key, false, false)
	return found.LockInfo, err
}

// LookupByID finds the live lock with this id, ErrAbsent if there is none. For people and dashboards: do not decide by it
// before a write.
func (c *Client) LookupByID(ctx context.Context, lockID string) (LockInfo, error) {
	found, err := c.lookup(ctx, lockID, true, false)
	return found.LockInfo, err
}

// LookupByKeyRaw is LookupByKey with the raw key and lock id: keep them out of logs.
func (c *Client) LookupByKeyRaw(ctx context.Context, key string) (LockInfoRaw, error) {
	return c.lookup(ctx, key, false, true)
}

// LookupByIDRaw is LookupByID with the raw key and lock id: keep them out of logs.
func (c *Client) LookupByIDRaw(ctx context.Context, lockID string) (LockInfoRaw, error) {
	return c.lookup(ctx, lockID, true, true)
}

func (c *Client) lookup(ctx context.Context, what string, byID, raw bool) (found LockInfoRaw, err error) {
	err = c.call(ctx, func(p cClient, token cCancel) (err *Error) {
		found, err = cLookup(p, what, byID, raw, token)
		return err
	})
	return found, err
}

// Owns tells whether the lock with this id is alive. For diagnosis: do not decide by it before a write.
func (c *Client) Owns(ctx context.Context, lockID string) (bool, error) {
	_, err := c.lookup(ctx, lockID, true, false)
	if errors.Is(err, ErrAbsent) {
		return false, nil
	}
	return err == nil, err
}

func unixMilli(ms int64) time.Time { return time.UnixMilli(ms) }
