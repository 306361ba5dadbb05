package syncguard_test

// What every part of the package promises, on each store.

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

func TestLockAndRelease(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		if b := client.Backend(); !strings.HasPrefix(strings.Replace(url, "postgresql", "postgres", 1), b) {
			t.Fatalf("%s on %s", b, url)
		}
		must(t, client.Check(background))
		guard := lock(t, client, key)
		if guard.Fence() != "000000000000001" || guard.FenceNumber() != 1 || guard.Key() != key || syncguard.ValidateLockID(guard.LockID()) != nil {
			t.Fatalf("%q %q", guard.Fence(), guard.Key())
		}
		if left := guard.Remaining(); left <= 20*time.Second || left > 30*time.Second {
			t.Fatalf("%v left", left)
		}
		if until := time.Until(guard.ExpiresAt()); until < 20*time.Second || until > 40*time.Second {
			t.Fatalf("expires in %v", until)
		}
		if guard.Err() != nil || guard.Context().Err() != nil {
			t.Fatal(guard.Err())
		}
		_, err := client.TryLock(background, key)
		is(t, err, syncguard.ErrLocked)
		must(t, guard.Extend(background, time.Minute))
		if left := guard.Remaining(); left <= 40*time.Second {
			t.Fatalf("%v left", left)
		}
		must(t, guard.Release(background))
		closes(t, "Done is open after the release", guard.Done())
		closes(t, "the context goes on after the release", guard.Context().Done())
		is(t, guard.Err(), syncguard.ErrReleased)
		// 23: the second time says so, without I/O.
		is(t, guard.Release(background), syncguard.ErrAbsent, syncguard.ErrReleased)
		is(t, guard.Extend(background, time.Second), syncguard.ErrAbsent, syncguard.ErrReleased)
		if guard.Remaining() != 0 || guard.ExpiresAt().IsZero() || guard.Fence() == "" {
			t.Fatal("a released guard")
		}
		again, err := client.TryLock(background, key)
		must(t, err)
		if again.Fence() != "000000000000002" {
			t.Fatal(again.Fence())
		}
		must(t, again.Release(background))
	})
}

func TestVerbs(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		grant, err := client.Acquire(background, key, 10*time.Second)
		must(t, err)
		if grant.Fence != "000000000000001" || time.Until(grant.ExpiresAt) > 20*time.Second {
			t.Fatalf("%+v", grant)
		}
		if n := grant.FenceNumber(); n != 1 {
			t.Fatal(n)
		}
		second, err := client.Acquire(background, key, 10*time.Second)
		is(t, err, syncguard.ErrLocked)
		if second != (syncguard.Acquired{}) {
			t.Fatal(second)
		}
		if free(t, client, key) {
			t.Fatal("it is held")
		}
		info, err := client.LookupByKey(background, key)
		must(t, err)
		byID, err := client.LookupByID(background, grant.LockID)
		must(t, err)
		hash, err := syncguard.HashKey(key)
		must(t, err)
		if info != byID || info.KeyHash != hash || info.Fence != grant.Fence || !info.ExpiresAt.Equal(grant.ExpiresAt) || info.AcquiredAt.IsZero() {
			t.Fatalf("%+v %+v", info, byID)
		}
		raw, err := client.LookupByKeyRaw(background, key)
		must(t, err)
		rawByID, err := client.LookupByIDRaw(background, grant.LockID)
		must(t, err)
		if raw != rawByID || raw.Key != key || raw.LockID != grant.LockID || raw.LockInfo != info {
			t.Fatalf("%+v", raw)
		}
		owns, err := client.Owns(background, grant.LockID)
		must(t, err)
		if !owns {
			t.Fatal("it is alive")
		}
		until, err := client.Extend(background, grant.LockID, time.Minute)
		must(t, err)
		if !until.After(grant.ExpiresAt) {
			t.Fatalf("%v after %v", until, grant.ExpiresAt)
		}
		must(t, client.Release(background, grant.LockID))
		// 22: unknown, or released.
		is(t, client.Release(background, grant.LockID), syncguard.ErrAbsent)
		_, err = client.Extend(background, grant.LockID, time.Minute)
		is(t, err, syncguard.ErrAbsent)
		_, err = client.LookupByKey(background, key)
		is(t, err, syncguard.ErrAbsent)
		owns, err = client.Owns(background, grant.LockID)
		if owns || err != nil {
			t.Fatal(owns, err)
		}
		if !free(t, client, key) {
			t.Fatal("it was released")
		}
		_, err = client.PurgeExpired(background, 10)
		must(t, err)
	})
}

// A guard's lock can be released by its id, and then the guard is lost: its channel, its contexts and its errors say so.
func TestLoss(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		ctx := context.WithValue(background, valueKey{}, 7)
		guard, err := client.Lock(ctx, key, syncguard.WithTTL(5*time.Second), syncguard.WithHeartbeat(20*time.Millisecond))
		must(t, err)
		under := guard.Context()
		child, cancel := context.WithCancel(under)
		defer cancel()
		if under.Value(valueKey{}) != 7 {
			t.Fatal("the values are gone")
		}
		must(t, client.Release(background, guard.LockID()))
		closes(t, "the loss was not noticed", guard.Done())
		closes(t, "a context of the guard's goes on after the loss", child.Done())
		is(t, under.Err(), context.Canceled)
		is(t, cause(under), syncguard.ErrLost)
		is(t, guard.Err(), syncguard.ErrLost)
		if guard.Remaining() != 0 {
			t.Fatal("something remains")
		}
		is(t, guard.Extend(background, time.Second), syncguard.ErrAbsent, syncguard.ErrLost)
		is(t, guard.Release(background), syncguard.ErrAbsent, syncguard.ErrLost)
		is(t, guard.Err(), syncguard.ErrLost)

		// Taken away unnoticed, while others look at it.
		guard = lock(t, client, key)
		must(t, client.Release(background, guard.LockID()))
		looking := make(chan struct{})
		go func() {
			defer close(looking)
			for guard.Err() == nil {
				_ = guard.Remaining()
			}
		}()
		is(t, guard.Release(background), syncguard.ErrAbsent, syncguard.ErrLost)
		<-looking
		is(t, guard.Err(), syncguard.ErrLost)
		is(t, guard.Release(background), syncguard.ErrAbsent, syncguard.ErrLost)
	})
}

type valueKey struct{}

// The deadline is local: no I/O is needed to know that the lease is over.
func TestLossByTheClock(t *testing.T) {
	client := open(t, sqliteURL(t))
	guard := lock(t, client, name(t), syncguard.WithTTL(80*time.Millisecond), syncguard.WithoutHeartbeat())
	closes(t, "the loss was not noticed", guard.Done())
	is(t, guard.Err(), syncguard.ErrLost)
	quiet := lock(t, client, name(t), syncguard.WithTTL(30*time.Millisecond), syncguard.WithMaxHold(time.Millisecond))
	eventually(t, "it is not renewed for ever", func() bool { return errors.Is(quiet.Err(), syncguard.ErrLost) })
	for _, g := range []*syncguard.Guard{guard, quiet} {
		// SQLite keeps a lock for a second longer than its lease.
		if err := g.Release(background); err != nil {
			is(t, err, syncguard.ErrAbsent, syncguard.ErrLost)
		}
	}
}

func TestDo(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		sentinel := errors.New("the work's own")
		err := client.Do(background, key, func(ctx context.Context, guard *syncguard.Guard) error {
			if free(t, client, key) || ctx.Err() != nil || guard.Fence() == "" {
				t.Error("it is not held")
			}
			return sentinel
		})
		is(t, err, sentinel)
		if !free(t, client, key) {
			t.Fatal("it is still held")
		}

		must(t, client.Do(background, key, func(context.Context, *syncguard.Guard) error { return nil }))
		// The work may release it itself.
		must(t, client.Do(background, key, func(ctx context.Context, guard *syncguard.Guard) error { return guard.Release(ctx) }))
		guard := lock(t, client, key)
		must(t, guard.Release(guard.Context()))

		// Its context ends when the lock is lost, and the answer says so, whatever the work says.
		for _, answer := range []func(context.Context) error{
			func(context.Context) error { return nil },
			func(ctx context.Context) error { return ctx.Err() },
		} {
			err = client.Do(background, key, func(ctx context.Context, guard *syncguard.Guard) error {
				must(t, client.Release(background, guard.LockID()))
				select {
				case <-ctx.Done():
					is(t, cause(ctx), syncguard.ErrLost)
				case <-time.After(testLimit):
					t.Error("the loss was not noticed")
				}
				return answer(ctx)
			}, syncguard.WithTTL(5*time.Second), syncguard.WithHeartbeat(10*time.Millisecond))
			is(t, err, syncguard.ErrLost)
		}
		is(t, err, context.Canceled)

		// Taken away unnoticed.
		err = client.Do(background, key, func(_ context.Context, guard *syncguard.Guard) error {
			return client.Release(background, guard.LockID())
		})
		is(t, err, syncguard.ErrLost)

		// 57: cancelled after the grant: released all the same.
		ctx, cancel := context.WithCancel(background)
		err = client.Do(ctx, key, func(ctx context.Context, _ *syncguard.Guard) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		is(t, err, context.Canceled)
		if !free(t, client, key) {
			t.Fatal("it is still held")
		}

		func() {
			defer func() {
				if recover() != "planted" {
					t.Error("the panic is gone")
				}
			}()
			_ = client.Do(background, key, func(context.Context, *syncguard.Guard) error { panic("planted") })
		}()
		if !free(t, client, key) {
			t.Fatal("it is still held after a panic")
		}
		is(t, client.Do(background, key, nil), syncguard.ErrInvalidArgument)
	})
}

func TestEvents(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		events := make(chan syncguard.Event, 100)
		client, key := open(t, url, syncguard.WithEventChannel(events), syncguard.WithRawEvents()), name(t)
		guard := lock(t, client, key)
		_, err := client.TryLock(background, key)
		is(t, err, syncguard.ErrLocked)
		must(t, guard.Release(background))
		hash, err := syncguard.HashKey(key)
		must(t, err)
		for _, wanted := range []struct {
			kind   syncguard.EventType
			ok     bool
			reason syncguard.EventReason
		}{{syncguard.EventAcquire, true, ""}, {syncguard.EventWait, true, ""}, {syncguard.EventAcquire, false, syncguard.ReasonLocked}, {syncguard.EventRelease, true, ""}} {
			select {
			case e := <-events:
				if e.Type != wanted.kind || e.OK != wanted.ok || e.Reason != wanted.reason || e.Duration <= 0 {
					t.Fatalf("%+v, wanted %+v", e, wanted)
				}
				if e.Type == syncguard.EventAcquire && (e.KeyHash != hash || e.Key != key) {
					t.Fatalf("%+v", e)
				}
				if e.OK && e.LockID != guard.LockID() {
					t.Fatalf("%+v", e)
				}
			case <-time.After(testLimit):
				t.Fatal("no event")
			}
		}
	})
}

// A callback that is slow or panics neither delays nor fails an operation.
func TestCallbacksThatMisbehave(t *testing.T) {
	called := make(chan struct{}, 1000)
	hold := make(chan struct{})
	client := open(t, sqliteURL(t), syncguard.WithEvents(func(e syncguard.Event) {
		called <- struct{}{}
		<-hold
		panic("planted")
	}))
	for i := 0; i < 10; i++ {
		must(t, lock(t, client, name(t)).Release(background))
	}
	<-called
	close(hold)
	<-called
}

func TestReleaseErrorsAreReported(t *testing.T) {
	server := startRedis(t)
	failures := make(chan syncguard.ReleaseError, 10)
	report := func(e syncguard.ReleaseError) { failures <- e }
	client := open(t, server.url(), syncguard.WithReleaseErrors(report), syncguard.WithOperationTimeout(300*time.Millisecond),
		syncguard.WithDisposeTimeout(300*time.Millisecond))
	own := make(chan syncguard.ReleaseError, 10)
	key := name(t)
	guard := lock(t, client, key)
	hooked := lock(t, client, key+"/own", syncguard.WithGuardReleaseErrors(func(e syncguard.ReleaseError) { own <- e }))
	server.stop()
	is(t, guard.Release(background), syncguard.ErrServiceUnavailable)
	id, hookedID := guard.LockID(), hooked.LockID()
	guard, hooked = nil, nil
	for _, wanted := range []struct {
		from chan syncguard.ReleaseError
		id   string
	}{{failures, id}, {own, hookedID}} {
		for end := time.Now().Add(testLimit); ; collect() {
			select {
			case e := <-wanted.from:
				is(t, e.Err, syncguard.ErrServiceUnavailable)
				if e.LockID != wanted.id || e.Source != syncguard.ReleaseDrop || !strings.HasPrefix(e.Key, key) {
					t.Fatalf("%+v", e)
				}
			default:
				if time.Now().After(end) {
					t.Fatal("no report")
				}
				continue
			}
			break
		}
	}
}

func TestWarnings(t *testing.T) {
	warnings := make(chan string, 10)
	client := open(t, redis(t).url(), syncguard.WithWarnings(func(text string) { warnings <- text }))
	must(t, client.Check(background))
	select {
	case text := <-warnings:
		if !strings.Contains(text, "append") && !strings.Contains(text, "evict") {
			t.Fatal(text)
		}
	case <-time.After(testLimit):
		t.Fatal("no word about a server that saves nothing")
	}
}
