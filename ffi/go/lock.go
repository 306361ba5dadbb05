//go:build cgo

package syncguard

// Lock, TryLock and Do. Uses wait.go and guard.go.

import (
	"context"
	"errors"
)

// Lock takes the lock of key, waiting for it up to 5 s and ten retries unless options say otherwise, and keeps it renewed until
// the guard is released or lost. The default lease is 30 s, renewed every 10 s.
//
// Keys are 1 to 512 bytes of UTF-8 after NFC, without U+0000. A waiting goroutine holds no thread of the system. Waiters of one
// client are served in the order in which they came, and one of them asks the store for all.
//
// It returns within the larger of the acquire timeout and the operation timeout, whatever becomes of the store.
//
// The errors: ErrAcquisitionTimeout if another holder had it to the end, and the [Error] says how long that was, and which holder;
// ErrAborted, with the context's error, if ctx ended first;
// ErrInvalidArgument for a bad key or option; ErrClosed; the store's trouble, if it outlasted the wait. What an attempt of unknown
// outcome may have left is taken back in the background: an error never leaves a lock behind.
func (c *Client) Lock(ctx context.Context, key string, options ...LockOption) (*Guard, error) {
	inner, p := c.enter()
	if p == nil {
		return nil, ErrClosed
	}
	defer inner.leave()
	o, err := newLockOptions(options)
	if err != nil {
		return nil, err
	}
	w, err := newWait(ctx, inner, p, key, o)
	if err != nil {
		return nil, err
	}
	if o.single() {
		return w.once()
	}
	return w.run()
}

// TryLock takes the lock of key if it is free, ErrLocked if not: one attempt, whatever the options say of waiting. The other errors
// are as for Lock.
func (c *Client) TryLock(ctx context.Context, key string, options ...LockOption) (*Guard, error) {
	inner, p := c.enter()
	if p == nil {
		return nil, ErrClosed
	}
	defer inner.leave()
	o, err := newLockOptions(options)
	if err != nil {
		return nil, err
	}
	w, err := newWait(ctx, inner, p, key, o)
	if err != nil {
		return nil, err
	}
	g, failed := w.tryOutsideLine(false)
	return g, asError(failed)
}

// Do runs work under the lock of key and releases it afterwards, also if work panics. The context given to work ends with ctx, and
// when the lock is lost; from Go 1.20 on context.Cause then gives ErrLost, with the reason.
//
// The error is Lock's, and then work was not run; or work's. If the lock was lost meanwhile, errors.Is finds ErrLost in it, and
// errors.As an [Error] with the reason, beside what work gave; also if work gave nil: another holder may have worked at the same time.
// A release that fails goes to [WithReleaseErrors]: the work is done by then.
func (c *Client) Do(ctx context.Context, key string, work func(ctx context.Context, guard *Guard) error, options ...LockOption) (err error) {
	if work == nil {
		return invalid("there is no work to do")
	}
	if ctx == nil {
		ctx = context.Background()
	}
	guard, err := c.Lock(ctx, key, options...)
	if err != nil {
		return err
	}
	under, endContext := guard.g.end.context(ctx)
	defer func() {
		endContext()
		// Err compares the clock. A guard that is being released no longer does.
		_ = guard.Err()
		released := guard.Release(context.Background())
		// Also if the release failed: without its store a lock is lost and cannot be released.
		if lost, ok := guard.Err().(*Error); ok && lost.Code == Lost {
			err = lostDuring(lost, err)
		}
		if released != nil && !errors.Is(released, ErrAbsent) {
			// Freeing it tries once more and reports.
			guard.g.abandon()
		}
	}()
	return work(under, guard)
}
