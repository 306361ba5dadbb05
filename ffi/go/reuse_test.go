package syncguard_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// What the module uses again must not let an earlier user in.

func TestAReleasedGuardDoesNotReachTheNext(t *testing.T) {
	client := open(t, sqliteURL(t))
	var old []*syncguard.Guard
	for i := 0; i < 100; i++ {
		key := "k" + strconv.Itoa(i)
		guard := lock(t, client, key)
		for _, earlier := range old {
			is(t, earlier.Release(background), syncguard.ErrAbsent, syncguard.ErrReleased)
			is(t, earlier.Extend(background, time.Minute), syncguard.ErrAbsent, syncguard.ErrReleased)
			is(t, earlier.Err(), syncguard.ErrReleased)
			if earlier.Remaining() != 0 || earlier.Key() == key || earlier.Fence() == "" || earlier.ExpiresAt().Unix() == 0 {
				t.Fatalf("an earlier guard is now %s with %s left", earlier.Key(), earlier.Remaining())
			}
		}
		must(t, guard.Err())
		if guard.Remaining() == 0 || free(t, client, key) {
			t.Fatal("an earlier guard ended this one")
		}
		must(t, guard.Release(background))
		if old = append(old, guard); len(old) > 5 {
			old = old[1:]
		}
	}
	// What served before is released too when it is forgotten.
	lock(t, client, "forgotten")
	eventually(t, "what was forgotten is released", func() bool {
		collect()
		return free(t, client, "forgotten")
	})
}

// Of many who release one guard at once exactly one does, and the others learn it; meanwhile others get guards of their own.
func TestManyReleaseOne(t *testing.T) {
	client := open(t, sqliteURL(t))
	for i := 0; i < 50; i++ {
		guard, other := lock(t, client, "k"), lock(t, client, "other")
		var group sync.WaitGroup
		var done atomic.Int32
		for j := 0; j < 8; j++ {
			group.Add(1)
			go func(j int) {
				defer group.Done()
				switch err := guard.Release(background); {
				case err == nil:
					done.Add(1)
				case !errors.Is(err, syncguard.ErrAbsent):
					t.Error(err)
				}
				_, _ = guard.Remaining(), guard.ExpiresAt()
				next, err := client.Lock(background, "next"+strconv.Itoa(j))
				if err != nil {
					t.Error(err)
					return
				}
				if err := next.Release(background); err != nil {
					t.Error(err)
				}
			}(j)
		}
		group.Wait()
		must(t, other.Err())
		must(t, other.Release(background))
		if done.Load() != 1 {
			t.Fatalf("%d released it", done.Load())
		}
	}
}

// A context that ends just after its call must not end the call of another.
func TestALateCancelHitsNobodyElse(t *testing.T) {
	client := open(t, sqliteURL(t))
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	for i := 0; i < 100; i++ {
		stop, trigger := syncguard.Watch(ctx)
		stop()
		trigger()
	}
	for i := 0; i < 100; i++ {
		_, err := client.IsLocked(ctx, "k")
		must(t, err)
	}
	for i := 0; i < 200; i++ {
		short, end := context.WithCancel(background)
		go end()
		if _, err := client.IsLocked(short, "k"); err != nil {
			is(t, err, syncguard.ErrAborted, context.Canceled)
		}
		_, err := client.IsLocked(ctx, "k")
		must(t, err)
	}
}
