// A worker in Go of the torture run: torture URL LOG IDS GATE SEED INCARNATION SLOT END. It does what the worker in Rust does
// (torture/src/worker), but for forks, and writes the same records (torture/src/record.rs).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

const (
	callers         = 3
	operation       = 800 * time.Millisecond
	hotKeys         = 4
	shortKeys       = 7
	longKeys        = 2
	longTTL         = 4 * time.Second
	unknownTTL      = 120 * time.Second
	clockBoottime   = 7
	keptDescriptors = 4 // the files of the records and of the lock ids, and what the library keeps for the life of the process
	keptThreads     = 1 // what the library keeps for the life of the process
)

// The kinds of records.
const (
	grant = 1 + iota
	held
	lost
	releasing
	released
	ended
	told
	call
	stall
	unknown
	left
	_
	again
	exit
	absent
	grantBare
	_
	memory
	done
)

// The verbs.
const (
	verbLock = 1 + iota
	verbTryLock
	verbRelease
	_
	verbExtend
	verbAcquire
	verbBareRelease
	verbBareExtend
	verbIsLocked
	verbLookup
)

var (
	records     *os.File
	ids         *os.File
	incarnation int64
	holds       int64
	unknowns    int64
	endAt       int64
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func now() int64 {
	var t syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		must(errno)
	}
	return t.Nano()
}

func put(kind, id, key, at, a, b, c, d int64) {
	fields := [8]int64{kind, id, key, at, a, b, c, d}
	_, err := records.Write((*[64]byte)(unsafe.Pointer(&fields))[:])
	must(err)
}

func watchForStalls() {
	const tick = 5 * time.Millisecond
	for last := now(); ; {
		time.Sleep(tick)
		at := now()
		if at-last > 2*tick.Nanoseconds() {
			put(stall, 0, 0, at, last+tick.Nanoseconds(), 0, 0, 0)
		}
		last = at
	}
}

// noteID writes down a lock id, which no output may have.
func noteID(id string) {
	_, err := ids.WriteString(id + "\n")
	must(err)
}

// callbacks knows which hold a loss belongs to: it may be told before Lock has returned.
type callbacks struct {
	mu    sync.Mutex
	holds map[place]int64
	early map[place]toldAt
}

// place is a grant: no two of one key have the same fence.
type place struct {
	key, fence int64
}

type toldAt struct {
	at, reason int64
}

var losses = callbacks{holds: map[place]int64{}, early: map[place]toldAt{}}

// lost is the client's callback.
func (c *callbacks) lost(l syncguard.LostLock) {
	key, err := strconv.ParseInt(strings.TrimPrefix(l.Key, keyCanary), 10, 64)
	must(err)
	p, t := place{key, int64(l.Fence)}, toldAt{now(), reason(l.Err)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := c.holds[p]; ok {
		put(told, id, key, t.at, t.reason, 0, 0, 0)
	} else {
		c.early[p] = t
	}
}

// expect has the loss of a hold written down, also one that was told already.
func (c *callbacks) expect(h hold) {
	p := place{h.key, h.fence}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.early[p]; ok {
		put(told, h.id, h.key, t.at, t.reason, 0, 0, 0)
		delete(c.early, p)
	}
	c.holds[p] = h.id
}

// forget is for holds whose end is far enough in the past.
func (c *callbacks) forget(h hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds, place{h.key, h.fence})
}

// tell writes every text to stderr, where it is searched for secrets.
func tell(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v | %+v\n", err, err)
	}
}

type worker struct {
	client  *syncguard.Client
	state   uint64
	gate    net.Conn
	private int64
}

func (w *worker) next() uint64 {
	w.state += 0x9e3779b97f4a7c15
	z := w.state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func (w *worker) between(from, to int64) int64 { return from + int64(w.next()%uint64(to-from+1)) }

func (w *worker) ms(from, to int64) time.Duration {
	return time.Duration(w.between(from, to)) * time.Millisecond
}

func (w *worker) oneIn(n uint64) bool { return w.next()%n == 0 }

// timed makes a call, cancels it after a time if that is not negative, and writes down when it began and ended.
func timed(verb, key int64, bound, cancelAfter time.Duration, made func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var cancelled int64
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		if cancelAfter < 0 {
			return
		}
		timer := time.NewTimer(cancelAfter)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancelled = now()
			cancel()
		case <-over:
		}
	}()
	begun := now()
	made(ctx)
	end := now()
	close(over)
	<-gone
	cancel()
	if cancelled >= end {
		cancelled = 0
	}
	put(call, verb, key, end, begun, bound.Nanoseconds(), cancelled, 0)
}

// cancelAfter is a time within the longest, or negative for no cancel.
func (w *worker) cancelAfter(oneIn uint64, longestMs int64) time.Duration {
	if w.oneIn(oneIn) {
		return time.Duration(w.between(0, longestMs*1000)) * time.Microsecond
	}
	return -1
}

const keyCanary = "canary-key-"

func keyName(key int64) string { return keyCanary + strconv.FormatInt(key, 10) }

type hold struct {
	id, key, fence int64
	ttl            time.Duration
}

func newHold(key int64, ttl time.Duration) hold {
	return hold{id: incarnation*1_000_000_000 + atomic.AddInt64(&holds, 1), key: key, ttl: ttl}
}

func (w *worker) writeToResource(h hold) {
	words := [3]int64{h.key, h.fence, h.id}
	if _, err := w.gate.Write((*[24]byte)(unsafe.Pointer(&words))[:]); err != nil {
		os.Exit(0) // the coordinator has ended
	}
	var answer [1]byte
	if _, err := io.ReadFull(w.gate, answer[:]); err != nil {
		os.Exit(0)
	}
}

func reason(err error) int64 {
	var e *syncguard.Error
	if errors.As(err, &e) {
		return int64(e.Reason)
	}
	return 0
}

func look(guard *syncguard.Guard, h hold) bool {
	for i := 0; i < 3; i++ {
		at := now()
		// Read before, so that it is never of a later renewal than the belief.
		expires := guard.ExpiresAt().UnixMilli()
		remaining := guard.Remaining()
		if err := guard.Err(); err != nil {
			put(lost, h.id, h.key, at, reason(err), h.fence, 0, guard.ExpiresAt().UnixMilli())
			return false
		}
		if i == 2 || now()-at < int64(time.Millisecond) {
			put(held, h.id, h.key, at, 0, h.fence, at+remaining.Nanoseconds(), expires)
			break
		}
	}
	return true
}

// isRunner is whether this is the first caller, which mostly takes locks that change hands all the time.
func (w *worker) isRunner() bool { return w.private%10 == 0 }

// isKeeper is whether this is the last caller, which mostly holds its own key, through renewals: losses and deaths meet it.
func (w *worker) isKeeper() bool { return w.private%10 == callers-1 }

func (w *worker) holdTime(h hold) time.Duration {
	if h.key < hotKeys {
		return 0
	}
	ttl := h.ttl.Milliseconds()
	if h.key == w.private && w.isKeeper() {
		return w.ms(ttl, ttl*4)
	}
	switch n := w.between(0, 99); {
	case n < 80:
		return w.ms(0, 2)
	case n < 96:
		return w.ms(5, 100)
	default:
		return w.ms(ttl/2, ttl*5/2)
	}
}

func outcome(err error) int64 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, syncguard.ErrAbsent):
		return 1
	default:
		return -1
	}
}

// giveUp releases until the outcome is known, as a program does that must not leave a guard behind.
func giveUp(guard *syncguard.Guard) {
	// Longer than a server is away: a guard that is forgotten keeps its client until the collector finds it.
	until := now() + (15 * time.Second).Nanoseconds()
	for outcome(guard.Release(context.Background())) < 0 && now() < until {
		time.Sleep(100 * time.Millisecond)
	}
}

// keep holds the lock for a while and gives it back.
func (w *worker) keep(guard *syncguard.Guard, h hold, begun int64) {
	h.fence = int64(guard.FenceNumber())
	at := now()
	put(grant, h.id, h.key, at, begun, h.fence, at+guard.Remaining().Nanoseconds(), h.ttl.Nanoseconds())
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		<-guard.Done()
		if err := guard.Err(); errors.Is(err, syncguard.ErrLost) {
			put(done, h.id, h.key, now(), reason(err), 0, 0, 0)
		}
	}()
	noteID(guard.LockID())
	losses.expect(h)
	until := now() + w.holdTime(h).Nanoseconds()
	has := look(guard, h)
	for has {
		w.writeToResource(h)
		if now() >= until {
			break
		}
		time.Sleep(w.ms(1, 25))
		if w.oneIn(30) {
			sent := now()
			var err error
			timed(verbExtend, h.key, operation, w.cancelAfter(4, 20), func(ctx context.Context) { err = guard.Extend(ctx, h.ttl) })
			if outcome(err) == 1 {
				put(absent, h.id, h.key, now(), sent, h.fence, 0, 0)
			}
			tell(err)
		}
		has = look(guard, h)
	}
	if !has {
		w.writeToResource(h) // a former holder that did not look
	}
	began := now()
	put(releasing, h.id, h.key, began, 0, h.fence, 0, guard.ExpiresAt().UnixMilli())
	var err error
	timed(verbRelease, h.key, operation, w.cancelAfter(10, 5), func(ctx context.Context) { err = guard.Release(ctx) })
	put(released, h.id, h.key, now(), outcome(err), h.fence, 0, 0)
	tell(err)
	if outcome(err) < 0 {
		// A release that its context ended does not wait for a callback that runs.
		giveUp(guard)
	} else {
		put(ended, h.id, h.key, now(), 0, h.fence, 0, 0)
	}
	<-heard
	// A callback that came after the release would be written down until then.
	time.AfterFunc(2*time.Second, func() { losses.forget(h) })
	if w.oneIn(20) {
		timed(verbBareRelease, h.key, operation, -1, func(ctx context.Context) { err = w.client.Release(ctx, guard.LockID()) })
		put(again, h.id, h.key, now(), outcome(err), h.fence, 0, 0)
	}
	if w.oneIn(20) {
		time.Sleep(w.ms(1, 5))
		w.writeToResource(h) // a former holder that did not look, when the next one may have written
	}
}

// take waits for the lock if wait is positive.
func (w *worker) take(key int64, ttl, wait, cancelAfter time.Duration) {
	h := newHold(key, ttl)
	options := []syncguard.LockOption{syncguard.WithTTL(ttl), syncguard.WithRetryDelay(20 * time.Millisecond)}
	if w.oneIn(10) {
		options = append(options, syncguard.WithoutHeartbeat())
	}
	var guard *syncguard.Guard
	var err error
	begun := now()
	if wait > 0 {
		options = append(options, syncguard.WithAcquireTimeout(wait))
		bound := operation
		if wait > bound {
			bound = wait
		}
		timed(verbLock, key, bound, cancelAfter, func(ctx context.Context) { guard, err = w.client.Lock(ctx, keyName(key), options...) })
	} else {
		timed(verbTryLock, key, operation, cancelAfter, func(ctx context.Context) { guard, err = w.client.TryLock(ctx, keyName(key), options...) })
	}
	tell(err)
	if err != nil {
		time.Sleep(w.ms(1, 20))
		return
	}
	w.keep(guard, h, begun)
}

func (w *worker) contendedKey() (int64, time.Duration) {
	if w.oneIn(8) {
		return shortKeys + int64(w.next()%longKeys), longTTL
	}
	return int64(w.next() % shortKeys), w.ms(300, 1500)
}

// bareCycle uses the bare verbs; the belief is the caller's own arithmetic.
func (w *worker) bareCycle() {
	key, ttl := w.private, w.ms(300, 1500)
	if w.oneIn(2) {
		key, ttl = w.contendedKey()
	}
	lease := (ttl*99/100 - 2*time.Millisecond).Nanoseconds()
	var got syncguard.Acquired
	var err error
	begun := now()
	timed(verbAcquire, key, operation, w.cancelAfter(3, 20), func(ctx context.Context) { got, err = w.client.Acquire(ctx, keyName(key), ttl) })
	if err != nil {
		tell(err)
		time.Sleep(w.ms(1, 10))
		return
	}
	h := newHold(key, ttl)
	h.fence = int64(got.FenceNumber())
	noteID(got.LockID)
	until, at := begun+lease, now()
	if at < until {
		put(grantBare, h.id, key, at, begun, h.fence, until, ttl.Nanoseconds())
		w.writeToResource(h)
	}
	for n := w.between(0, 3); n > 0; n-- {
		time.Sleep(w.ms(1, ttl.Milliseconds()/3))
		sent := now()
		timed(verbBareExtend, key, operation, -1, func(ctx context.Context) { _, err = w.client.Extend(ctx, got.LockID, ttl) })
		tell(err)
		if err == nil {
			until = sent + lease
			put(held, h.id, key, sent, 0, h.fence, until, 0)
		} else if outcome(err) == 1 {
			put(absent, h.id, key, now(), sent, h.fence, 0, 0)
			break
		}
		if now() < until {
			w.writeToResource(h)
		}
	}
	put(releasing, h.id, key, now(), 0, h.fence, 0, 0)
	timed(verbBareRelease, key, operation, -1, func(ctx context.Context) { err = w.client.Release(ctx, got.LockID) })
	put(released, h.id, key, now(), outcome(err), h.fence, 0, 0)
	tell(err)
}

func (w *worker) lookAround() {
	key, _ := w.contendedKey()
	var err error
	if w.oneIn(2) {
		timed(verbIsLocked, key, operation, w.cancelAfter(2, 50), func(ctx context.Context) { _, err = w.client.IsLocked(ctx, keyName(key)) })
	} else {
		timed(verbLookup, key, operation, w.cancelAfter(2, 50), func(ctx context.Context) { _, err = w.client.LookupByKey(ctx, keyName(key)) })
	}
	tell(err)
}

// unknownAcquire acquires a key of its own with a long lease, and cancels that on its way: the library has to undo it.
func (w *worker) unknownAcquire() {
	key := (incarnation+1)*1_000_000 + atomic.AddInt64(&unknowns, 1)
	var guard *syncguard.Guard
	var err error
	begun := now()
	cancel := w.cancelAfter(1, 3)
	if w.oneIn(4) {
		cancel = -1
	}
	timed(verbLock, key, operation, cancel, func(ctx context.Context) {
		guard, err = w.client.Lock(ctx, keyName(key), syncguard.WithTTL(unknownTTL), syncguard.WithAcquireTimeout(100*time.Millisecond))
	})
	if err != nil {
		tell(err)
		var e *syncguard.Error
		applied := int64(0)
		if errors.As(err, &e) && e.MayHaveApplied {
			applied = 1
		}
		put(unknown, 0, key, now(), begun, applied, 0, 0)
	} else {
		noteID(guard.LockID())
		giveUp(guard)
	}
	time.Sleep(w.ms(0, 10))
}

func (w *worker) work() {
	for now() < endAt {
		switch n := w.between(0, 99); {
		case w.isKeeper() && !w.oneIn(8):
			w.take(w.private, w.ms(300, 800), 0, -1)
		case n < 5, w.isRunner() && !w.oneIn(8):
			for i := 0; i < 100 && now() < endAt; i++ {
				w.take(int64(w.next()%hotKeys), w.ms(300, 1500), w.ms(500, 2500), w.cancelAfter(12, 5))
			}
		case n < 40:
			key, ttl := w.contendedKey()
			wait := w.ms(100, 2500)
			w.take(key, ttl, wait, w.cancelAfter(3, wait.Milliseconds()/2))
		case n < 50:
			w.take(w.private, w.ms(300, 800), 0, -1)
		case n < 65:
			w.bareCycle()
		case n < 78:
			w.lookAround()
		default:
			w.unknownAcquire()
		}
	}
}

func entries(dir string) int64 {
	names, err := os.ReadDir(dir)
	must(err)
	return int64(len(names))
}

// libraryThreads counts the threads that the library has made; Go keeps those of its own.
func libraryThreads() int64 {
	names, err := filepath.Glob("/proc/self/task/*/comm")
	must(err)
	n := int64(0)
	for _, name := range names {
		if comm, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(comm), "syncguard") {
			n++
		}
	}
	return n
}

// residentKB is the memory in use once the collector has given back what it can.
func residentKB() int64 {
	debug.FreeOSMemory()
	stat, err := os.ReadFile("/proc/self/statm")
	must(err)
	fields := strings.Fields(string(stat))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	must(err)
	return pages * int64(os.Getpagesize()) / 1024
}

// noteMemory writes down the memory until the end of the work.
func noteMemory() {
	const every = 500 * time.Millisecond
	for now()+every.Nanoseconds() < endAt {
		time.Sleep(every)
		put(memory, 0, 0, now(), residentKB(), atomic.LoadInt64(&holds), 0, 0)
	}
}

// tooMany is how many more there are than are allowed.
func tooMany(n, allowed int64) int64 {
	if n > allowed {
		return n - allowed
	}
	return 0
}

// describe names the threads of the library and the descriptors that are left, on stderr.
func describe() {
	fmt.Fprintln(os.Stderr, "threads of the library:", libraryThreads())
	names, _ := os.ReadDir("/proc/self/fd")
	for _, name := range names {
		to, _ := os.Readlink("/proc/self/fd/" + name.Name())
		fmt.Fprintln(os.Stderr, "descriptor", to)
	}
}

func number(n int) int64 {
	value, err := strconv.ParseInt(os.Args[n], 10, 64)
	must(err)
	return value
}

func main() {
	if len(os.Args) < 9 {
		os.Exit(2)
	}
	var err error
	records, err = os.OpenFile(os.Args[2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(err)
	before := entries("/proc/self/fd")
	ids, err = os.Create(os.Args[3])
	must(err)
	seed, err := strconv.ParseUint(os.Args[5], 10, 64)
	must(err)
	incarnation, endAt = number(6), number(8)
	slot := number(7)
	go watchForStalls()
	client, err := syncguard.Open(os.Args[1], syncguard.WithConnectTimeout(500*time.Millisecond),
		syncguard.WithOperationTimeout(operation), syncguard.WithDisposeTimeout(operation),
		syncguard.WithLosses(losses.lost))
	must(err)
	var all sync.WaitGroup
	for i := int64(0); i < callers; i++ {
		gate, err := net.Dial("unix", os.Args[4])
		must(err)
		w := &worker{client: client, state: seed + uint64(i)<<40, gate: gate, private: 100 + slot*10 + i}
		all.Add(1)
		go func() {
			defer all.Done()
			defer w.gate.Close()
			w.work()
		}()
	}
	noteMemory()
	all.Wait()
	must(client.Close())
	// The undo of an acquire looks for the last time more than six seconds later.
	more, threads, until := int64(1), int64(0), now()+(10*time.Second).Nanoseconds()
	// Go's own poller has descriptors too.
	for (more > 0 || threads > 0) && now() < until {
		time.Sleep(20 * time.Millisecond)
		more = tooMany(entries("/proc/self/fd"), before+keptDescriptors+2)
		threads = tooMany(libraryThreads(), keptThreads)
	}
	if more > 0 || threads > 0 {
		describe()
	}
	put(left, 0, 0, now(), threads, more, 0, 0)
	put(exit, 0, 0, now(), 0, 0, 0, 0)
}
