package syncguard_test

// How goroutines wait for a lock.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// A release wakes a waiter, long before a delay of an hour has passed.
func TestAReleaseWakesTheWaiter(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		// Two clients: the word comes through the store.
		holder, client, key := open(t, url), open(t, url), name(t)
		held := lock(t, holder, key)
		got := make(chan *syncguard.Guard)
		go func() {
			guard, err := client.Lock(background, key, syncguard.WithAcquireTimeout(syncguard.Forever), slow(url))
			if err != nil {
				t.Error(err)
			}
			got <- guard
		}()
		time.Sleep(100 * time.Millisecond)
		must(t, held.Release(background))
		select {
		case guard := <-got:
			if guard.Fence() != "000000000000002" {
				t.Fatal(guard.Fence())
			}
			must(t, guard.Release(background))
		case <-time.After(testLimit):
			t.Fatal("it still sleeps")
		}
	})
}

// slow makes polling too slow for a test, where the store can call.
func slow(url string) syncguard.LockOption {
	if url[:5] == "postg" {
		// Not every version of the backend is called by the server; polling is the fall-back.
		return syncguard.WithRetryDelay(50 * time.Millisecond)
	}
	return syncguard.WithRetryDelay(time.Hour)
}

// 24, 26: exactly one attempt.
func TestOneAttempt(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		var attempts atomic.Int32
		client, key := open(t, url, syncguard.WithEvents(func(e syncguard.Event) {
			if e.Type == syncguard.EventAcquire && !e.OK {
				attempts.Add(1)
			}
		})), name(t)
		held := lock(t, client, key)
		for i, option := range []syncguard.LockOption{syncguard.WithAcquireTimeout(0), syncguard.WithMaxRetries(0)} {
			_, err := client.Lock(background, key, option)
			is(t, err, syncguard.ErrAcquisitionTimeout)
			var detail *syncguard.Error
			if !errors.As(err, &detail) || detail.Attempts != 1 || detail.KeyHash == "" {
				t.Fatalf("%+v", detail)
			}
			eventually(t, "one attempt", func() bool { return attempts.Load() == int32(i+1) })
		}
		must(t, held.Release(background))
		must(t, lock(t, client, key, syncguard.WithAcquireTimeout(0)).Release(background))
	})
}

// The retries are counted and end the wait; the time ends it too.
func TestTheWaitEnds(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		holder, client, key := open(t, url), open(t, url), name(t)
		held := lock(t, holder, key)
		_, err := client.Lock(background, key, syncguard.WithMaxRetries(3), syncguard.WithRetryDelay(time.Millisecond),
			syncguard.WithBackoff(syncguard.Fixed), syncguard.WithJitter(syncguard.NoJitter))
		is(t, err, syncguard.ErrAcquisitionTimeout)
		var detail *syncguard.Error
		// Being called is no retry, so there may be more.
		if !errors.As(err, &detail) || detail.Attempts < 4 {
			t.Fatalf("%+v", detail)
		}
		begun := time.Now()
		_, err = client.Lock(background, key, syncguard.WithAcquireTimeout(200*time.Millisecond))
		is(t, err, syncguard.ErrAcquisitionTimeout)
		if took := time.Since(begun); took < 190*time.Millisecond || took > testLimit {
			t.Fatal(took)
		}
		must(t, held.Release(background))
	})
}

// 57: cancelled before: nothing is sent; while waiting: it returns by 100 ms; no lock is left behind.
func TestCancel(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		gone, cancel := context.WithCancel(background)
		cancel()
		_, err := client.Lock(gone, key)
		is(t, err, syncguard.ErrAborted, context.Canceled)
		_, err = client.TryLock(gone, key)
		is(t, err, syncguard.ErrAborted, context.Canceled)
		_, err = client.Acquire(gone, key, time.Second)
		is(t, err, syncguard.ErrAborted, context.Canceled)
		is(t, client.Do(gone, key, func(context.Context, *syncguard.Guard) error { t.Error("it ran"); return nil }), context.Canceled)
		is(t, client.Check(gone), context.Canceled)
		if !free(t, client, key) {
			t.Fatal("a lock was left behind")
		}

		held := lock(t, client, key)
		const soon = 50 * time.Millisecond
		if took := slowest(t, soon, func() {
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(soon, cancel)
			_, err := client.Lock(ctx, key, syncguard.WithAcquireTimeout(syncguard.Forever))
			is(t, err, syncguard.ErrAborted, context.Canceled)
		}); took > 100*time.Millisecond {
			t.Fatalf("it took %v to notice", took)
		}
		ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
		defer cancel()
		_, err = client.Lock(ctx, key, syncguard.WithAcquireTimeout(syncguard.Forever))
		is(t, err, syncguard.ErrAborted, context.DeadlineExceeded)
		must(t, held.Release(background))

		// A deadline before the lease's end is no matter once the lock is held.
		short, cancel := context.WithTimeout(background, 5*time.Second)
		guard, err := client.Lock(short, key, syncguard.WithTTL(time.Minute))
		must(t, err)
		cancel()
		if guard.Err() != nil || guard.Context().Err() != nil {
			t.Fatal("the context was for the wait")
		}
		// It ended, and the release runs all the same.
		must(t, guard.Release(short))
		if !free(t, client, key) {
			t.Fatal("it is still held")
		}
	})
}

// Contexts that end at any moment of a lock leave nothing behind.
func TestCancelledLocksLeaveNothingBehind(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		var held int
		for i := 0; i < 150; i++ {
			ctx, cancel := context.WithCancel(background)
			go func(i int) {
				time.Sleep(time.Duration(i*7%400) * time.Microsecond)
				cancel()
			}(i)
			guard, err := client.Lock(ctx, key, syncguard.WithAcquireTimeout(5*time.Second), syncguard.WithRetryDelay(time.Millisecond),
				syncguard.WithTTL(10*time.Minute))
			if err != nil {
				is(t, err, syncguard.ErrAborted, context.Canceled)
				continue
			}
			held++
			// Its context ends meanwhile, before or after.
			if err := guard.Release(ctx); err != nil {
				is(t, err, syncguard.ErrAborted, context.Canceled)
			}
		}
		// The undoing runs in the background, and looks again for what the server began to work on after it.
		begun := time.Now()
		guard, err := client.Lock(background, key, syncguard.WithAcquireTimeout(testLimit))
		must(t, err)
		must(t, guard.Release(background))
		t.Logf("held %d times of 150, free after %v", held, time.Since(begun))
	})
}

// A server that hangs: the call ends with its context, with its time, and the library takes back what it was granted.
func TestAHangingServer(t *testing.T) {
	server := startRedis(t)
	client, key := open(t, server.url(), syncguard.WithOperationTimeout(20*time.Second)), name(t)
	guard := lock(t, client, key+"/held")
	server.pause(t)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := client.Lock(ctx, key); return err },
		func(ctx context.Context) error { _, err := client.IsLocked(ctx, key); return err },
		func(ctx context.Context) error { return guard.Extend(ctx, time.Minute) },
		func(ctx context.Context) error { return guard.Release(ctx) },
	} {
		ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
		begun := time.Now()
		is(t, call(ctx), syncguard.ErrAborted, context.DeadlineExceeded)
		if took := time.Since(begun); took > 10*time.Second {
			t.Fatalf("it took %v", took)
		}
		cancel()
	}
	// Released in the background meanwhile.
	is(t, guard.Release(background), syncguard.ErrAbsent, syncguard.ErrReleased)
	server.resume(t)
	eventually(t, "both are free again", func() bool { return free(t, client, key) && free(t, client, key+"/held") })
}

// Trouble during a wait is retried within it.
func TestTroubleIsRetried(t *testing.T) {
	server := startRedis(t)
	client, key := open(t, server.url()), name(t)
	server.stop()
	begun := time.Now()
	_, err := client.Lock(background, key, syncguard.WithAcquireTimeout(150*time.Millisecond), syncguard.WithRetryDelay(10*time.Millisecond))
	is(t, err, syncguard.ErrServiceUnavailable)
	var detail *syncguard.Error
	if !errors.As(err, &detail) || detail.Attempts < 2 || time.Since(begun) < 140*time.Millisecond {
		t.Fatalf("%+v after %v", detail, time.Since(begun))
	}
	_, err = client.TryLock(background, key)
	is(t, err, syncguard.ErrServiceUnavailable)
}

// Goroutines that wait hold no threads; all get the lock or time out as asked. In a process of its own: Go never gives threads back.
func TestTwoThousandWaiters(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		open(t, url)
		t.Log(play(t, "waiters", url, "2000"))
	})
}

// 58.
func TestTenThousandWaiters(t *testing.T) {
	t.Log(play(t, "waiters", redis(t).url(), "10000"))
}

func waiters(url, number string) {
	count, err := strconv.Atoi(number)
	ok(err)
	client, err := syncguard.Open(url)
	ok(err)
	const key = "waited for by thousands"
	held, err := client.Lock(background, key, syncguard.WithAcquireTimeout(syncguard.Forever))
	ok(err)
	var granted, timedOut atomic.Int32
	var mu sync.Mutex
	var last string
	var all sync.WaitGroup
	begun := time.Now()
	for i := 0; i < count; i++ {
		all.Add(1)
		timeout := syncguard.Forever
		if i%2 == 1 {
			timeout = time.Second
		}
		go func() {
			defer all.Done()
			guard, err := client.Lock(background, key, syncguard.WithAcquireTimeout(timeout))
			if errors.Is(err, syncguard.ErrAcquisitionTimeout) && timeout != syncguard.Forever {
				timedOut.Add(1)
				return
			}
			ok(err)
			mu.Lock()
			if guard.Fence() <= last {
				ok(fmt.Errorf("fence %s after %s", guard.Fence(), last))
			}
			last = guard.Fence()
			mu.Unlock()
			granted.Add(1)
			ok(guard.Release(background))
		}()
	}
	for int(timedOut.Load()) < count/2 {
		if time.Since(begun) > 2*time.Minute {
			ok(fmt.Errorf("%d timed out", timedOut.Load()))
		}
		time.Sleep(5 * time.Millisecond)
	}
	waiting := threads()
	ok(held.Release(background))
	all.Wait()
	if n := threads(); n >= 64 || int(granted.Load()) != count/2 {
		ok(fmt.Errorf("%d threads, %d granted, %d timed out", n, granted.Load(), timedOut.Load()))
	}
	fmt.Printf("%d threads for %d waiters, %d at the end", waiting, count, threads())
}

// The first to come is served first.
func TestWaitersAreServedInOrder(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		held := lock(t, client, key)
		var order []int
		var all sync.WaitGroup
		for i := 0; i < 8; i++ {
			all.Add(1)
			go func(i int) {
				defer all.Done()
				err := client.Do(background, key, func(context.Context, *syncguard.Guard) error {
					order = append(order, i)
					return nil
				}, syncguard.WithAcquireTimeout(syncguard.Forever))
				if err != nil {
					t.Error(err)
				}
			}(i)
			eventually(t, "it stands in line before the next one comes", func() bool { return client.InLine() == i+1 })
		}
		must(t, held.Release(background))
		all.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4 5 6 7]" {
			t.Fatal(order)
		}
	})
}

// Of two thousand callers that come at once one asks the store.
func TestARushForOneKey(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		const count = 2000
		var refused, granted atomic.Int32
		client, key := open(t, url, syncguard.WithEvents(func(e syncguard.Event) {
			switch {
			case e.Type == syncguard.EventAcquire && e.OK:
				granted.Add(1)
			case e.Type == syncguard.EventAcquire:
				refused.Add(1)
			}
		})), name(t)
		held := lock(t, client, key)
		ctx, cancel := context.WithCancel(background)
		var all sync.WaitGroup
		for i := 0; i < count; i++ {
			all.Add(1)
			go func() {
				defer all.Done()
				_, err := client.Lock(ctx, key, syncguard.WithAcquireTimeout(syncguard.Forever), syncguard.WithRetryDelay(time.Hour))
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
		}
		eventually(t, "all stand in line", func() bool { return client.InLine() == count })
		cancel()
		all.Wait()
		must(t, held.Release(background))
		// Events come one after the other: what was asked before is counted by then.
		must(t, lock(t, client, key+"/last").Release(background))
		eventually(t, "the last event", func() bool { return granted.Load() >= 2 })
		// One finds it held, and looks again when the store has begun to call.
		if n := refused.Load(); n > 8 {
			t.Fatalf("%d requests for %d callers", n, count)
		}
	})
}

// No signal comes when a holder dies: the first in line knows when its lease is over, and does not sleep for its own delay.
func TestADeadHolderIsNotWaitedFor(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		for i := 0; i < 3; i++ {
			_, err := client.Acquire(background, key, 300*time.Millisecond)
			must(t, err)
			ctx, cancel := context.WithTimeout(background, testLimit)
			defer cancel()
			guard, err := client.Lock(ctx, key, syncguard.WithAcquireTimeout(syncguard.Forever), syncguard.WithRetryDelay(time.Hour))
			must(t, err)
			must(t, guard.Release(background))
		}
	})
}

// A closed client ends the waits of its own.
func TestCloseEndsWaits(t *testing.T) {
	url := sqliteURL(t)
	client, other, key := open(t, url), open(t, url), name(t)
	held := lock(t, other, key)
	done := make(chan error)
	go func() {
		_, err := client.Lock(background, key, syncguard.WithAcquireTimeout(syncguard.Forever))
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	must(t, client.Close())
	select {
	case err := <-done:
		is(t, err, syncguard.ErrClosed)
	case <-time.After(testLimit):
		t.Fatal("it still waits")
	}
	must(t, held.Release(background))
}

// Nor do goroutines that want different keys.
func TestARushForManyKeys(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		open(t, url)
		t.Log(play(t, "rush", url))
	})
}

func rush(url string) {
	client, err := syncguard.Open(url, syncguard.WithOperationTimeout(time.Minute))
	ok(err)
	var all sync.WaitGroup
	for i := 0; i < 2000; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			ctx := background
			if i%2 == 0 {
				var cancel func()
				ctx, cancel = context.WithCancel(background)
				defer cancel()
			}
			guard, err := client.Lock(ctx, fmt.Sprint("rush:", i))
			ok(err)
			ok(guard.Err())
			ok(guard.Release(ctx))
		}(i)
	}
	all.Wait()
	if n := threads(); n >= 64 {
		ok(fmt.Errorf("%d threads", n))
	}
	fmt.Printf("%d threads", threads())
}
