package syncguard_test

// What a program is told when a lock is lost.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// lostBy fails unless err tells of a loss for this reason, and of no other trouble, in a text that says both once.
func lostBy(t testing.TB, err error, reason syncguard.LossReason) {
	t.Helper()
	is(t, err, syncguard.ErrLost)
	for _, other := range []error{syncguard.ErrInternal, syncguard.ErrNetworkTimeout, syncguard.ErrReleased} {
		if errors.Is(err, other) {
			t.Fatalf("%v is %v", err, other)
		}
	}
	detail := &syncguard.Error{}
	if !errors.As(err, &detail) || detail.Reason != reason {
		t.Fatalf("%v is for %v, wanted %v", err, detail.Reason, reason)
	}
	for _, once := range []string{"syncguard:", "the lock was lost", reason.String()} {
		if strings.Count(err.Error(), once) != 1 {
			t.Fatalf("%q holds %q %d times", err, once, strings.Count(err.Error(), once))
		}
	}
}

// sameEnd fails unless the context ends soon, with this very error. Contexts end after Done is closed.
func sameEnd(t testing.TB, ctx context.Context, err error) {
	t.Helper()
	closes(t, "the context did not end", ctx.Done())
	same(t, ctx, err)
}

// ends waits for the guard's end without asking: its library has told it by itself.
func ends(t testing.TB, guard *syncguard.Guard) {
	t.Helper()
	closes(t, "the loss was not noticed", guard.Done())
}

func TestLossReasons(t *testing.T) {
	unrenewed := []syncguard.LockOption{syncguard.WithTTL(150 * time.Millisecond), syncguard.WithoutHeartbeat()}
	tooLong := []syncguard.LockOption{syncguard.WithTTL(300 * time.Millisecond), syncguard.WithMaxHold(time.Millisecond)}
	watched := []syncguard.LockOption{syncguard.WithTTL(time.Minute), syncguard.WithHeartbeat(20 * time.Millisecond)}
	onEach(t, func(t *testing.T, url string) {
		client := open(t, url)
		for _, c := range []struct {
			reason  syncguard.LossReason
			options []syncguard.LockOption
		}{
			{syncguard.LossNotRenewed, unrenewed},
			{syncguard.LossMaxHold, tooLong},
			{syncguard.LossRemoved, watched},
		} {
			key := name(t)
			guard := lock(t, client, key, c.options...)
			ctx := guard.Context()
			if c.reason == syncguard.LossRemoved {
				must(t, client.Release(background, guard.LockID()))
			}
			ends(t, guard)
			lostAs(t, guard, ctx, key, c.reason)
		}
	})
}

func TestLossOfAStoreThatIsGone(t *testing.T) {
	server := startRedis(t)
	client := open(t, server.url(), syncguard.WithReleaseErrors(func(syncguard.ReleaseError) {}))
	guard := lock(t, client, "k", syncguard.WithTTL(3*time.Second))
	ctx := guard.Context()
	server.stop()
	ends(t, guard)
	lostBy(t, guard.Err(), syncguard.LossUnconfirmed)
	sameEnd(t, ctx, guard.Err())
	var detail *syncguard.Error
	if err := guard.Release(background); !errors.As(err, &detail) || detail.Code != syncguard.ServiceUnavailable {
		t.Fatal(err)
	}
	lostBy(t, guard.Err(), syncguard.LossUnconfirmed)
}

// lostAs looks at everything that a guard says after its loss.
func lostAs(t *testing.T, guard *syncguard.Guard, ctx context.Context, key string, reason syncguard.LossReason) {
	t.Helper()
	lost := guard.Err()
	lostBy(t, lost, reason)
	hash, err := syncguard.HashKey(key)
	must(t, err)
	if e := lost.(*syncguard.Error); e.Code != syncguard.Lost || e.KeyHash != hash {
		t.Fatalf("%#v", e)
	}
	// The library's text, and that of a guard that finds it out when it is asked.
	if own := syncguard.LostBecause(reason, key); own.Error() != lost.Error() || own.(*syncguard.Error).KeyHash != hash {
		t.Fatalf("%q and %q", own, lost)
	}
	sameEnd(t, ctx, lost)
	err = guard.Extend(background, time.Second)
	is(t, err, syncguard.ErrAbsent)
	lostBy(t, err, reason)
	// Postgres and SQLite keep a lock for a second longer than its lease.
	if err := guard.Release(background); err != nil {
		is(t, err, syncguard.ErrAbsent)
		lostBy(t, err, reason)
	}
	if guard.Err() != lost {
		t.Fatal(guard.Err())
	}
}

// A guard finds its loss out, also if the library has not told it.
func TestLossThatIsFoundOut(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		guard := lock(t, client, key)
		must(t, client.Release(background, guard.LockID()))
		lostBy(t, guard.Release(background), syncguard.LossRemoved)
		lostBy(t, guard.Err(), syncguard.LossRemoved)

		guard = lock(t, client, key, syncguard.WithTTL(50*time.Millisecond), syncguard.WithoutHeartbeat())
		eventually(t, "the end of the lease", func() bool { return guard.Err() != nil })
		lostBy(t, guard.Err(), syncguard.LossNotRenewed)
	})
}

// Whatever the work says of a loss, the reason is found beside it.
func TestDoKeepsTheReason(t *testing.T) {
	client := open(t, sqliteURL(t))
	own := errors.New("the work's own")
	for i, c := range []struct {
		answer func(context.Context, *syncguard.Guard) error
		found  []error
	}{
		{func(context.Context, *syncguard.Guard) error { return nil }, nil},
		{func(ctx context.Context, _ *syncguard.Guard) error { return ctx.Err() }, []error{context.Canceled}},
		{func(context.Context, *syncguard.Guard) error { return own }, []error{own}},
		{func(context.Context, *syncguard.Guard) error { return syncguard.ErrLost }, nil},
		{func(ctx context.Context, _ *syncguard.Guard) error { return cause(ctx) }, nil},
		{func(_ context.Context, g *syncguard.Guard) error { return fmt.Errorf("step 3: %w", g.Err()) }, nil},
		{func(_ context.Context, g *syncguard.Guard) error { return g.Extend(background, time.Second) }, []error{syncguard.ErrAbsent}},
		{func(_ context.Context, g *syncguard.Guard) error { return g.Release(background) }, []error{syncguard.ErrAbsent}},
	} {
		err := client.Do(background, name(t), func(ctx context.Context, guard *syncguard.Guard) error {
			must(t, client.Release(background, guard.LockID()))
			ends(t, guard)
			sameEnd(t, ctx, guard.Err())
			return c.answer(ctx, guard)
		}, syncguard.WithTTL(time.Minute), syncguard.WithHeartbeat(10*time.Millisecond))
		t.Logf("%d: %v", i, err)
		lostBy(t, err, syncguard.LossRemoved)
		is(t, err, c.found...)
	}

	// A work that loses another lock has not lost its own.
	other := lock(t, client, name(t), syncguard.WithTTL(time.Millisecond), syncguard.WithoutHeartbeat())
	ends(t, other)
	err := client.Do(background, name(t), func(context.Context, *syncguard.Guard) error { return other.Err() })
	if err != other.Err() {
		t.Fatal(err)
	}
}

// Work that goes on after Close may lose its lock, and must be told.
func TestLossAfterClose(t *testing.T) {
	client := open(t, sqliteURL(t), syncguard.WithDisposeTimeout(20*time.Millisecond))
	err := client.Do(background, name(t), func(ctx context.Context, guard *syncguard.Guard) error {
		must(t, client.Close())
		closes(t, "the loss was not noticed", ctx.Done())
		eventually(t, "the end of the lease", func() bool { return guard.Remaining() == 0 })
		// Remaining counts whole milliseconds.
		time.Sleep(5 * time.Millisecond)
		return nil
	}, syncguard.WithTTL(300*time.Millisecond))
	lostBy(t, err, syncguard.LossNotRenewed)
}

func TestTextsOfLosses(t *testing.T) {
	seen := make(map[string]bool)
	for r := syncguard.LossNone; r <= syncguard.LossOther; r++ {
		if text := r.String(); seen[text] || strings.Contains(text, "syncguard") {
			t.Fatalf("%d: %q", r, text)
		}
		seen[r.String()] = true
	}
	if syncguard.LossReason(99).String() != syncguard.LossOther.String() || syncguard.Lost.String() != "lost" {
		t.Fatal(syncguard.LossReason(99), syncguard.Lost)
	}
	// A guard that was released is not lost, and its texts do not stutter either.
	client := open(t, sqliteURL(t))
	guard := lock(t, client, name(t))
	must(t, guard.Release(background))
	err := guard.Release(background)
	is(t, err, syncguard.ErrAbsent, syncguard.ErrReleased)
	if errors.Is(err, syncguard.ErrLost) || strings.Count(err.Error(), "syncguard:") != 1 {
		t.Fatal(err)
	}
}
