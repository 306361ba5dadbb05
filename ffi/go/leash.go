//go:build cgo

package syncguard

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// leash is what a guard holds its C guard by, and what the collector finds when the guard was forgotten: nothing but its guard refers
// to one that is in use, and it must not refer to that. Used again and again, because a finalizer is dear to set and to take back;
// a guard that has had its turn lets go of it, and who still has it in hand no longer gets in.
type leash struct {
	handle handle
	loss   *loss
	id     uintptr
	giving *slots
}

var leashes = sync.Pool{New: func() any {
	l := &leash{handle: handle{state: isClosed}}
	runtime.SetFinalizer(l, (*leash).collected)
	return l
}}

// leave is for who entered.
func (l *leash) leave() { l.free(l.handle.leave()) }

// close is for who has had the turn, and may have lost it.
func (l *leash) close(turn uint64, background bool) { l.free(l.handle.close(turn, background)) }

// collected releases, in the background, what nobody will release any more. One that holds nothing is closed.
func (l *leash) collected() {
	if turn, open := l.handle.current(); open {
		l.loss.end(ErrReleased)
		l.loss.over()
		l.close(turn, true)
	}
}

func (l *leash) free(last gone) {
	switch {
	case last.ptr == nil:
	case last.background:
		go func() {
			l.giving.enter(context.Background(), time.Time{}, Forever)
			defer l.giving.leave()
			l.dispose(cGuard(last.ptr))
		}()
	default:
		l.dispose(cGuard(last.ptr))
	}
}

// dispose gives the C guard back. One that was released sends nothing; else its release is bounded by the dispose timeout.
func (l *leash) dispose(p cGuard) {
	cGuardFree(p)
	l.forget()
}

// forget gives up the id of a guard that was freed. With a hook of its own the library does that.
func (l *leash) forget() {
	if l.loss.releaseError == nil {
		registry.remove(l.id)
	}
}

// again is for the only one inside, whose C guard is closed and freed.
func (l *leash) again() {
	l.forget()
	l.loss, l.giving = nil, nil
	l.handle.again()
	leashes.Put(l)
}
