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
}

// EventType is what an operation was.
type EventType int32

// The operations.
const (
	EventAcquire  EventType = 0
	EventRelease  EventType = 1
	EventExtend   EventType = 2
	EventIsLocked EventType = 3
	EventLookup   EventType = 4
)

// Event is one operation and how it went.
type Event struct {
	Type EventType
	OK   bool
	// Reason is "locked", "expired" or "not-found" where the store answered so; empty for trouble.
	Reason     string
	KeyHash    string
	LockIDHash string
	// Key and LockID are there only with [WithRawEvents].
	Key      string
	LockID   string
	Duration time.Duration
}

// Acquire takes the lock of a key if it is free, ErrLocked if not: one attempt. Nothing is renewed and nothing is undone;
// [Client.Lock] does both.
//
// After an error other than ErrLocked and ErrInvalidArgument the lock may have been taken, under the LockID in the answer:
// releasing that is safe.
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
