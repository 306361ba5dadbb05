package syncguard_test

import (
	"errors"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

func nextEvent(t *testing.T, events <-chan syncguard.Event, kind syncguard.EventType) syncguard.Event {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e.Type == kind {
				return e
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event %v", kind)
		}
	}
}

func TestEventsOfAGuard(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		events := make(chan syncguard.Event, 100)
		client, key := open(t, url, syncguard.WithEventChannel(events)), name(t)
		guard := lock(t, client, key)
		fence := guard.FenceNumber()
		hash, err := syncguard.HashKey(key)
		must(t, err)
		id, err := syncguard.HashKey(guard.LockID())
		must(t, err)
		must(t, guard.Extend(background, time.Minute))
		_, err = client.Lock(background, key, syncguard.WithAcquireTimeout(time.Millisecond))
		if !errors.Is(err, syncguard.ErrAcquisitionTimeout) {
			t.Fatal(err)
		}
		must(t, guard.Release(background))

		for _, kind := range []syncguard.EventType{syncguard.EventAcquire, syncguard.EventWait, syncguard.EventExtend} {
			e := nextEvent(t, events, kind)
			if !e.OK || e.Code != 0 || e.Fence != fence || e.KeyHash != hash || e.LockIDHash != id || e.Backend != client.Backend() {
				t.Errorf("%v: %+v", kind, e)
			}
			if isWait := kind == syncguard.EventWait; (e.Attempts == 1) != isWait || (e.Waited > 0) != isWait || e.Held != 0 {
				t.Errorf("%v: %+v", kind, e)
			}
		}
		e := nextEvent(t, events, syncguard.EventWait)
		if e.OK || e.Code != syncguard.AcquisitionTimeout || e.Reason != syncguard.ReasonLocked || e.Attempts < 1 || e.Waited <= 0 || e.Fence != 0 {
			t.Errorf("a wait without the lock: %+v", e)
		}
		e = nextEvent(t, events, syncguard.EventRelease)
		if !e.OK || e.Fence != fence || e.KeyHash != hash || e.Held <= 0 || e.Loss != syncguard.LossNone {
			t.Errorf("a release: %+v", e)
		}
		if client.EventsDropped() != 0 {
			t.Error("events were dropped")
		}
	})
}

// TestLossesOfAClient: every lost guard is told to the client's callback, beside its own signs, and is an event.
func TestLossesOfAClient(t *testing.T) {
	events, losses := make(chan syncguard.Event, 100), make(chan syncguard.LostLock, 100)
	client := open(t, sqliteURL(t), syncguard.WithEventChannel(events), syncguard.WithLosses(func(l syncguard.LostLock) {
		losses <- l
		panic("a callback that panics")
	}))
	kept := lock(t, client, "kept")
	guard := lock(t, client, "lost", syncguard.WithTTL(100*time.Millisecond), syncguard.WithoutHeartbeat())
	closes(t, "the loss was not noticed", guard.Done())
	select {
	case l := <-losses:
		var why *syncguard.Error
		if !errors.Is(l.Err, syncguard.ErrLost) || !errors.As(l.Err, &why) || why.Reason != syncguard.LossNotRenewed {
			t.Error(l.Err)
		}
		if l.Key != "lost" || l.LockID != guard.LockID() || l.Fence != guard.FenceNumber() || l.Held < 90*time.Millisecond {
			t.Errorf("%+v", l)
		}
	case <-time.After(time.Minute):
		t.Fatal("the client's callback was not called")
	}
	e := nextEvent(t, events, syncguard.EventLoss)
	if e.OK || e.Code != syncguard.Lost || e.Loss != syncguard.LossNotRenewed || e.Fence != guard.FenceNumber() || e.Held <= 0 {
		t.Errorf("%+v", e)
	}
	must(t, kept.Release(background))
	_ = guard.Release(background)
	_ = client.Close()
	if len(losses) != 0 {
		t.Errorf("another loss: %+v", <-losses)
	}
}

func TestDroppedEventsAreCounted(t *testing.T) {
	block := make(chan struct{})
	client := open(t, sqliteURL(t), syncguard.WithEvents(func(syncguard.Event) { <-block }))
	const calls = 1100
	for i := 0; i < calls; i++ {
		_ = free(t, client, "k")
	}
	if n := client.EventsDropped(); n == 0 || n >= calls {
		t.Error(n)
	}
	close(block)
	_ = client.Close()
	if n := client.EventsDropped(); n != 0 {
		t.Errorf("%d once closed", n)
	}
}

func TestNamesOfEvents(t *testing.T) {
	for kind, want := range map[syncguard.EventType]string{syncguard.EventAcquire: "acquire", syncguard.EventLoss: "loss", -1: "unknown", 99: "unknown"} {
		if kind.String() != want {
			t.Errorf("%d: %v", kind, kind)
		}
	}
}
