//go:build cgo

package syncguard

// Lets other goroutines run between calls of C. Uses the standard library only.

import (
	"runtime"
	"sync/atomic"
	"time"
)

// yieldInterval is how long calls of C may follow each other before other goroutines get a turn.
//
// To Go's scheduler a goroutine that makes one call of C after the other never stops. After ten milliseconds the runtime's monitor takes
// the processor away in the middle of a call, and from then on looks every 20 µs. That cost more than the whole module. Yielding more often
// costs time too: another thread wakes up to look for work.
const yieldInterval = 5 * time.Millisecond

// callsPerClockRead keeps most calls from reading the clock.
const callsPerClockRead = 8

var (
	yieldCalls atomic.Uint32
	yieldedAt  atomic.Int64
	yieldEpoch = time.Now()
)

// yieldAfterCall lets other goroutines run, once per yieldInterval. Every call of C that takes a slot ends with it.
func yieldAfterCall() {
	if yieldCalls.Add(1)%callsPerClockRead != 0 {
		return
	}
	if now := time.Since(yieldEpoch); now-time.Duration(yieldedAt.Load()) > yieldInterval {
		yieldedAt.Store(int64(now))
		runtime.Gosched()
	}
}
