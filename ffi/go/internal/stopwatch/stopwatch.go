// Package stopwatch tells what a call takes, and how much of that the machine did not let it run, for tests.
package stopwatch

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

const tick = 2 * time.Millisecond

// stalls are the times in which the process did not run: a goroutine that sleeps for a tick woke up late.
var (
	mu     sync.Mutex
	stalls [][2]time.Time
	once   sync.Once
)

func metronome() {
	for last := time.Now(); ; {
		time.Sleep(tick)
		now := time.Now()
		if now.Sub(last) > 2*tick {
			mu.Lock()
			stalls = append(stalls, [2]time.Time{last.Add(tick), now})
			mu.Unlock()
		}
		last = now
	}
}

func stalled(from, to time.Time) (sum time.Duration) {
	time.Sleep(2 * tick) // the metronome may not have noticed yet
	mu.Lock()
	defer mu.Unlock()
	for _, stall := range stalls {
		begin, end := stall[0], stall[1]
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if end.After(begin) {
			sum += end.Sub(begin)
		}
	}
	return sum
}

// delayed is how long the goroutine's thread was ready to run and did not.
func delayed() time.Duration {
	var ran, waited int64
	if stat, err := os.ReadFile("/proc/thread-self/schedstat"); err == nil {
		_, _ = fmt.Sscan(string(stat), &ran, &waited)
	}
	return time.Duration(waited)
}

// Begin starts what tells that the process does not run.
func Begin() { once.Do(func() { go metronome() }) }

// Time makes the call, on one thread. It tells what that took, and what was lost of the time after the bound: only that can excuse
// a call for coming late.
func Time(bound time.Duration, call func()) (took, lost time.Duration) {
	Begin()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, begun := delayed(), time.Now()
	call()
	ended := time.Now()
	lost = delayed() - before
	if s := stalled(begun.Add(bound), ended); s > lost {
		lost = s
	}
	return ended.Sub(begun), lost
}
