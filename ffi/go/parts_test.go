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

// A closed handle admits no user, and the last user frees it, in the way that the first close named.
func TestHandle(t *testing.T) {
	var target int
	h := handle{ptr: unsafe.Pointer(&target)}
	if h.isClosed() || h.enter() != h.ptr || h.enter() != h.ptr {
		t.Fatal("it is open")
	}
	if h.close(true) != (lastUse{}) || h.close(false) != (lastUse{}) {
		t.Fatal("it was freed under its users")
	}
	if !h.isClosed() || h.enter() != nil {
		t.Fatal("it is closed")
	}
	if h.leave() != (lastUse{}) {
		t.Fatal("one user is left")
	}
	if last := h.leave(); last != (lastUse{unsafe.Pointer(&target), true}) {
		t.Fatal("the last user frees, as the first close said")
	}
}

// Many users enter and leave while one closes: exactly one of them frees, after all have left.
func TestHandleIsFreedOnce(t *testing.T) {
	for round := 0; round < 200; round++ {
		var target int
		h := handle{ptr: unsafe.Pointer(&target)}
		var inside, freed atomic.Int32
		free := func(last lastUse) {
			if last.ptr == nil {
				return
			}
			if inside.Load() != 0 {
				t.Error("freed under a user")
			}
			freed.Add(1)
		}
		var group sync.WaitGroup
		for i := 0; i < 4; i++ {
			group.Add(1)
			go func(i int) {
				defer group.Done()
				for j := 0; j < 20; j++ {
					if h.enter() == nil {
						return
					}
					inside.Add(1)
					if i == 0 && j == 10 {
						free(h.close(false))
					}
					inside.Add(-1)
					free(h.leave())
				}
			}(i)
		}
		group.Wait()
		if freed.Load() != 1 {
			t.Fatalf("freed %d times", freed.Load())
		}
	}
}

// Another Release has freed the C guard and has not yet recorded the end.
func TestReleasedThisMoment(t *testing.T) {
	g := &Guard{&guardState{handle: new(guardHandle), end: new(guardEnd)}}
	g.g.handle.close(false)
	for _, err := range []error{g.Err(), g.Release(context.Background()), g.Extend(context.Background(), time.Second)} {
		if !errors.Is(err, ErrReleased) {
			t.Error(err)
		}
	}
}

// Never more calls inside than slots; a call that gives up leaves its slot to others.
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

// A call gives up at the moment when a slot is handed to it.
func TestASlotHandedToACallThatGivesUp(t *testing.T) {
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
