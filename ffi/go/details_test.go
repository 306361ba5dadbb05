package syncguard_test

// Tests what an error, a guard and a client know beyond a code: the holder, the time waited, whether a failed call may have been
// applied, and what the store is.

import (
	"context"
	"errors"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// detail finds the Error in an error.
func detail(t *testing.T, err error) *syncguard.Error {
	t.Helper()
	var found *syncguard.Error
	if !errors.As(err, &found) {
		t.Fatalf("no Error in %v", err)
	}
	return found
}

// isHeldBy checks what is told of the holder of a key.
func isHeldBy(t *testing.T, holder *syncguard.Holder, client *syncguard.Client, key, fence string) {
	t.Helper()
	info, err := client.LookupByKey(context.Background(), key)
	must(t, err)
	if holder == nil || holder.Fence != fence || holder.FenceNumber() != info.FenceNumber() || holder.FenceNumber() == 0 ||
		holder.LockIDHash != info.LockIDHash || holder.Remaining <= 0 || holder.Remaining > 30*time.Second {
		t.Fatalf("the holder is told as %+v, found as %+v", holder, info)
	}
}

func TestTheErrorOfAWaitNamesTheHolder(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, ctx := open(t, url), context.Background()
		key := name(t)
		held := lock(t, client, key)
		begun := time.Now()
		_, err := client.Lock(ctx, key, syncguard.WithAcquireTimeout(60*time.Millisecond))
		is(t, err, syncguard.ErrAcquisitionTimeout)
		e := detail(t, err)
		if e.Waited < 60*time.Millisecond || e.Waited > time.Since(begun)+time.Millisecond || e.MayHaveApplied {
			t.Fatalf("%+v after %v", e, time.Since(begun))
		}
		isHeldBy(t, e.Holder, client, key, held.Fence())

		// Without a wait.
		_, err = client.Lock(ctx, key, syncguard.WithAcquireTimeout(0))
		is(t, err, syncguard.ErrAcquisitionTimeout)
		e = detail(t, err)
		if e.Attempts != 1 || e.MayHaveApplied {
			t.Fatalf("%+v", e)
		}
		isHeldBy(t, e.Holder, client, key, held.Fence())

		// The verb.
		_, err = client.Acquire(ctx, key, 30*time.Second)
		is(t, err, syncguard.ErrLocked)
		isHeldBy(t, detail(t, err).Holder, client, key, held.Fence())

		must(t, held.Release(ctx))
		grant, err := client.Acquire(ctx, key, 30*time.Second)
		must(t, err)
		must(t, client.Release(ctx, grant.LockID))
	})
}

func TestAGuardKnowsHowLongItWasWaitedFor(t *testing.T) {
	client, ctx := open(t, sqliteURL(t)), context.Background()
	key := name(t)
	held := lock(t, client, key)
	const pause = 50 * time.Millisecond
	begun := time.Now()
	released := make(chan error, 1)
	go func() {
		time.Sleep(pause)
		released <- held.Release(ctx)
	}()
	asked := time.Now()
	guard := lock(t, client, key, syncguard.WithAcquireTimeout(testLimit))
	// Whole milliseconds; and on a busy machine it may be asked for late.
	if least := pause - asked.Sub(begun) - time.Millisecond; guard.Waited() < least || guard.Waited() > time.Since(asked) {
		t.Fatalf("waited %v, not %v", guard.Waited(), least)
	}
	must(t, <-released)
	waited := guard.Waited()
	must(t, guard.Release(ctx))
	var none *syncguard.Guard
	if guard.Waited() != waited || none.Waited() != 0 {
		t.Fatal("the time has changed")
	}
}

func TestAFailedCallSaysWhetherItMayHaveBeenApplied(t *testing.T) {
	server := startRedis(t)
	client, ctx := open(t, server.url(), syncguard.WithOperationTimeout(500*time.Millisecond)), context.Background()
	// Makes the connection. On a busy machine this may take longer than the limit.
	eventually(t, "a connection", func() bool {
		_, err := client.Acquire(ctx, "first", time.Minute)
		return err == nil
	})
	server.pause(t)
	sent, err := client.Acquire(ctx, "second", time.Minute)
	_, again := client.Acquire(ctx, "third", time.Minute)
	server.resume(t)
	is(t, err, syncguard.ErrNetworkTimeout)
	if e := detail(t, err); !e.MayHaveApplied || e.Waited != 0 || e.Holder != nil || sent.LockID == "" {
		t.Fatalf("the request was sent: %+v", e)
	}
	// The connection is not used again, and a new one was not answered.
	is(t, again, syncguard.ErrNetworkTimeout)
	if detail(t, again).MayHaveApplied {
		t.Fatal("the request was not sent")
	}
	// A context that ends the call in flight leaves the same doubt. Once more until the request was sent.
	eventually(t, "a request in flight", func() bool {
		if _, err := client.IsLocked(ctx, "first"); err != nil {
			return false
		}
		server.pause(t)
		defer server.resume(t)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := client.Acquire(short, "fourth", time.Minute)
		is(t, err, syncguard.ErrAborted, context.DeadlineExceeded)
		return detail(t, err).MayHaveApplied
	})
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.Acquire(ended, "fifth", time.Minute)
	is(t, err, syncguard.ErrAborted)
	if detail(t, err).MayHaveApplied {
		t.Fatal("nothing was sent")
	}
}

func TestCapabilities(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client := open(t, url)
		wanted := syncguard.Capabilities{Backend: client.Backend(), SupportsFencing: true, TimeAuthority: syncguard.TimeServer, FenceSource: syncguard.FencesCounter}
		if got := client.Capabilities(); got != wanted || got.TimeAuthority.String() != "server" {
			t.Fatalf("%+v", got)
		}
		must(t, client.Close())
		if got := client.Capabilities(); got != (syncguard.Capabilities{}) {
			t.Fatalf("%+v of a closed client", got)
		}
	})
}
