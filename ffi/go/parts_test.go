package syncguard

import (
	"context"
	"errors"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// The parts that users do not see, one by one.

// Who had an earlier turn neither gets in nor closes.
func TestHandleTurns(t *testing.T) {
	var a, b int
	h := handle{state: isClosed}
	first := h.open(unsafe.Pointer(&a))
	if h.enter(first) != unsafe.Pointer(&a) {
		t.Fatal("it is open")
	}
	// As C does when the only one inside frees it.
	atomic.StoreUint64(&h.state, first*oneTurn+oneInside|isClosed)
	if h.enter(first) != nil {
		t.Fatal("it is closed")
	}
	h.again()
	if _, open := h.current(); open {
		t.Fatal("it is open for nobody")
	}
	second := h.open(unsafe.Pointer(&b))
	if h.enter(first) != nil || h.close(first, false) != (gone{}) || h.enter(second) != unsafe.Pointer(&b) {
		t.Fatal("an earlier turn got in")
	}
	if h.close(second, true) != (gone{}) || h.close(second, false) != (gone{}) {
		t.Fatal("somebody is inside")
	}
	if last := h.leave(); last != (gone{unsafe.Pointer(&b), true}) {
		t.Fatal("the last one out frees, as the first one to close said")
	}
}

// Another one has freed the C guard and not yet come to say so.
func TestReleasedThisMoment(t *testing.T) {
	g := &Guard{&guard{loss: new(loss)}}
	g.g.leash.Store(&leash{handle: handle{state: isClosed}})
	for _, err := range []error{g.Err(), g.Release(context.Background()), g.Extend(context.Background(), time.Second)} {
		if !errors.Is(err, ErrReleased) {
			t.Error(err)
		}
	}
}

// Never more inside than there are slots; those who give up leave theirs to others.
func TestSlots(t *testing.T) {
	const size = 3
	slots := newSlots(size)
	var inside atomic.Int32
	var group sync.WaitGroup
	for i := 0; i < 24; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			dice := rand.New(rand.NewSource(int64(i)))
			some := func(n int) time.Duration { return time.Duration(dice.Intn(n)) * time.Microsecond }
			for j := 0; j < 200; j++ {
				ctx, cancel := context.WithTimeout(context.Background(), some(200))
				if _, ok := slots.enter(ctx, time.Time{}, some(200)); ok {
					if inside.Add(1) > size {
						t.Error("more inside than slots")
					}
					time.Sleep(some(20))
					inside.Add(-1)
					slots.leave()
				}
				cancel()
			}
		}(i)
	}
	group.Wait()
	full(t, slots)
}

// One gives up at the moment when a slot is handed to it.
func TestASlotHandedToOneWhoGivesUp(t *testing.T) {
	slots := newSlots(1)
	slots.enter(context.Background(), time.Time{}, time.Minute)
	slots.taken.Add(1)
	slots.leave()
	slots.giveUp()
	full(t, slots)
}

// full takes all of them: none was lost and none was made.
func full(t *testing.T, slots *slots) {
	t.Helper()
	for i := int32(0); i < slots.size; i++ {
		if _, ok := slots.enter(context.Background(), time.Time{}, time.Minute); !ok {
			t.Fatal("a slot was lost")
		}
	}
	if _, ok := slots.enter(context.Background(), time.Time{}, time.Millisecond); ok {
		t.Fatal("a slot was made")
	}
}
