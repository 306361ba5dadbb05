package syncguard_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// The end of a guard, and of a token that serves several calls: neither reaches the next one.

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
}

// A forgotten guard is released also while the program keeps earlier guards of the client.
func TestAKeptGuardKeepsNoOther(t *testing.T) {
	client := open(t, sqliteURL(t))
	var kept []*syncguard.Guard
	for i := 0; i < 20; i++ {
		guard := lock(t, client, "k")
		must(t, guard.Release(background))
		kept = append(kept, guard)
	}
	lock(t, client, "forgotten")
	eventually(t, "what was forgotten is released", func() bool {
		collect()
		return free(t, client, "forgotten")
	})
	runtime.KeepAlive(kept)
}

// Of many goroutines that release one guard at once exactly one does, and the others are told; meanwhile each locks another key.
func TestManyReleaseOne(t *testing.T) {
	client := open(t, sqliteURL(t))
	for i := 0; i < 50; i++ {
		guard, other := lock(t, client, "k"), lock(t, client, "other")
		granted := guard.ExpiresAt()
		var group sync.WaitGroup
		var done atomic.Int32
		for j := 0; j < 8; j++ {
			group.Add(1)
			go func(j int) {
				defer group.Done()
				switch err := guard.Release(background); {
				case err == nil:
					done.Add(1)
				case !errors.Is(err, syncguard.ErrAbsent) || !errors.Is(err, syncguard.ErrReleased):
					t.Error(err)
				}
				if err := guard.Err(); !errors.Is(err, syncguard.ErrReleased) {
					t.Error(err)
				}
				if at := guard.ExpiresAt(); guard.Remaining() != 0 || at.Before(granted) {
					t.Errorf("it ended at %s, and has %s left", at, guard.Remaining())
				}
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
func TestALateCancelEndsNoOtherCall(t *testing.T) {
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

// A Release that found no slot has not ended the renewal: it is made in the background.
func TestAReleaseWithoutASlot(t *testing.T) {
	client := open(t, sqliteURL(t))
	guard := lock(t, client, "k")
	granted := guard.ExpiresAt()
	end := guard.TakeAllSlots()
	is(t, guard.Release(background), syncguard.ErrRateLimited)
	is(t, guard.Err(), syncguard.ErrReleased)
	if at := guard.ExpiresAt(); at.Before(granted) {
		t.Errorf("its lease ends at %s", at)
	}
	end()
	eventually(t, "it is released", func() bool { return free(t, client, "k") })
	is(t, guard.Release(background), syncguard.ErrAbsent, syncguard.ErrReleased)
}
