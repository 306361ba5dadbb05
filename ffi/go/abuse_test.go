package syncguard_test

// Misuse, and the environment of a program: zero values, copies, collection, children, signals, clocks, and what is left behind.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// 56: nil receivers and zero values.
func TestNilAndZero(t *testing.T) {
	var none *syncguard.Client
	for _, client := range []*syncguard.Client{none, {}} {
		_, err := client.Lock(background, "k")
		is(t, err, syncguard.ErrClosed)
		_, err = client.TryLock(background, "k")
		is(t, err, syncguard.ErrClosed)
		is(t, client.Do(background, "k", func(context.Context, *syncguard.Guard) error { return nil }), syncguard.ErrClosed)
		_, err = client.Acquire(background, "k", time.Second)
		is(t, err, syncguard.ErrClosed)
		is(t, client.Release(background, strings.Repeat("a", 22)), syncguard.ErrClosed)
		_, err = client.Extend(background, strings.Repeat("a", 22), time.Second)
		is(t, err, syncguard.ErrClosed)
		_, err = client.IsLocked(background, "k")
		is(t, err, syncguard.ErrClosed)
		_, err = client.LookupByKey(background, "k")
		is(t, err, syncguard.ErrClosed)
		_, err = client.Owns(background, strings.Repeat("a", 22))
		is(t, err, syncguard.ErrClosed)
		_, err = client.PurgeExpired(background, 1)
		is(t, err, syncguard.ErrClosed)
		is(t, client.SetupSchema(background), syncguard.ErrClosed)
		is(t, client.Check(background), syncguard.ErrClosed)
		if client.Backend() != "" || client.Close() != nil || client.Close() != nil {
			t.Fatal("a client that is none")
		}
	}
	var noGuard *syncguard.Guard
	for _, guard := range []*syncguard.Guard{noGuard, {}} {
		is(t, guard.Release(background), syncguard.ErrInvalidArgument)
		is(t, guard.Extend(background, time.Second), syncguard.ErrInvalidArgument)
		is(t, guard.Err(), syncguard.ErrInvalidArgument)
		closes(t, "Done of a guard that is none is open", guard.Done())
		closes(t, "the context of a guard that is none goes on", guard.Context().Done())
		if guard.Fence()+guard.Key()+guard.LockID() != "" || guard.FenceNumber() != 0 || guard.Remaining() != 0 || !guard.ExpiresAt().IsZero() {
			t.Fatal("a guard that is none")
		}
	}
	var detail *syncguard.Error
	_, err := syncguard.Open("")
	if !errors.As(err, &detail) || detail.Code != syncguard.InvalidArgument {
		t.Fatal(err)
	}
	client := open(t, sqliteURL(t), nil, syncguard.WithEvents(nil))
	//lint:ignore SA1012 a nil context is what this is about.
	guard, err := client.Lock(nil, "k", nil)
	must(t, err)
	//lint:ignore SA1012 as above.
	must(t, guard.Release(nil))
}

// Close ends what runs under a lock, and returns when it is released.
func TestCloseWaitsForReleases(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, other, key := open(t, url, syncguard.WithDisposeTimeout(testLimit)), open(t, url), name(t)
		released := make(chan error, 1)
		go func() {
			released <- client.Do(background, key, func(ctx context.Context, _ *syncguard.Guard) error {
				<-ctx.Done()
				// It tidies up. Only Close, which waits, keeps the client there meanwhile.
				time.Sleep(50 * time.Millisecond)
				return nil
			})
		}()
		eventually(t, "it is held", func() bool { return !free(t, other, key) })
		begun := time.Now()
		must(t, client.Close())
		if time.Since(begun) > testLimit/2 {
			t.Fatal("it waited without a reason")
		}
		if !free(t, other, key) {
			t.Fatal("Close did not wait for the release")
		}
		must(t, <-released)
	})
}

// 56: closed twice, used after, copied.
func TestCloseAndCopy(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, other, key := open(t, url, syncguard.WithDisposeTimeout(100*time.Millisecond)), open(t, url), name(t)
		same := *client
		guard := lock(t, &same, key, syncguard.WithTTL(3*time.Second), syncguard.WithHeartbeat(30*time.Millisecond))
		ctx := guard.Context()
		must(t, client.Close())
		if ctx.Err() == nil {
			t.Fatal("the work under the lock was not told")
		}
		must(t, client.Close())
		must(t, same.Close())
		_, err := same.Lock(background, key)
		is(t, err, syncguard.ErrClosed)
		// Its work may still run: the lock is not deleted, can be released, and is no longer renewed.
		if isFree := free(t, other, key); isFree && guard.Remaining() > 0 {
			t.Fatal("it was deleted under its work")
		}
		eventually(t, "its lease runs out", func() bool { return free(t, other, key) })
		twin := *guard
		is(t, twin.Release(background), syncguard.ErrAbsent)
		is(t, guard.Release(background), syncguard.ErrAbsent)
	})
}

// 56: a guard that is forgotten is released; one whose context is in use is not; a client that is forgotten is closed.
func TestForgotten(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		func() {
			own, err := syncguard.Open(url)
			must(t, err)
			lock(t, own, key)
			lock(t, own, key+"/watched").Done()
			// Its context has values that refer to it.
			task := new(struct{ guard *syncguard.Guard })
			task.guard, err = own.Lock(context.WithValue(background, valueKey{}, task), key+"/values")
			must(t, err)
			if task.guard.Context().Value(valueKey{}) != task {
				t.Fatal("the values are gone")
			}
		}()
		under := lock(t, client, key+"/context").Context()
		child, cancel := context.WithCancel(under)
		eventually(t, "what was forgotten is released", func() bool {
			collect()
			return free(t, client, key) && free(t, client, key+"/watched") && free(t, client, key+"/values")
		})
		if child.Err() != nil || free(t, client, key+"/context") {
			t.Fatal("work goes on under that lock")
		}
		runtime.KeepAlive(under)
		cancel()
		under, child = nil, nil
		eventually(t, "that one too", func() bool { collect(); return free(t, client, key+"/context") })
	})
}

// 62: one release succeeds; no loss is reported after it.
func TestExtendAndReleaseAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client := open(t, url)
		for round := 0; round < 5; round++ {
			guard := lock(t, client, name(t))
			var won int
			var mu sync.Mutex
			var all sync.WaitGroup
			for i := 0; i < 8; i++ {
				all.Add(1)
				go func(i int) {
					defer all.Done()
					var err error
					if i%2 == 0 {
						err = guard.Extend(background, time.Minute)
					} else if err = guard.Release(background); err == nil {
						mu.Lock()
						won++
						mu.Unlock()
					}
					// An extend in flight is ended by the release.
					if err != nil && !errors.Is(err, syncguard.ErrAbsent) && !errors.Is(err, syncguard.ErrAborted) {
						t.Error(err)
					}
					_, _, _ = guard.Remaining(), guard.ExpiresAt(), guard.Err()
				}(i)
			}
			all.Wait()
			if won != 1 {
				t.Fatalf("%d released it", won)
			}
			is(t, guard.Err(), syncguard.ErrReleased)
		}
	})
}

// 49: a program that Go starts inherits no connection and no lock file, and the lock stays the parent's.
func TestAChildInheritsNothing(t *testing.T) {
	// What a child inherits from the process that started this test does not count.
	inherited := func() string {
		out, err := exec.Command("sh", "-c", "for fd in /proc/self/fd/*; do readlink $fd; done; true").CombinedOutput()
		must(t, err)
		return string(out)
	}
	onEach(t, func(t *testing.T, url string) {
		before := inherited()
		client := open(t, url)
		guard := lock(t, client, name(t))
		for _, file := range strings.Split(inherited(), "\n") {
			if (strings.Contains(file, "socket:") || strings.Contains(file, "locks.db")) && !strings.Contains(before, file) {
				t.Fatalf("a child inherits %s", file)
			}
		}
		must(t, guard.Err())
		must(t, guard.Release(background))
	})
}

// 51: a thousand guards need no thousand threads.
func TestAThousandGuards(t *testing.T) {
	t.Log(play(t, "crowded", sqliteURL(t)))
}

func crowded(url string) {
	client, err := syncguard.Open(url)
	ok(err)
	var guards []*syncguard.Guard
	for i := 0; i < 1000; i++ {
		// However long all of this takes, no renewal is due.
		guard, err := client.Lock(background, fmt.Sprint("many:", i), syncguard.WithTTL(time.Hour))
		ok(err)
		guards = append(guards, guard)
	}
	if n := threads(); n >= 64 {
		ok(fmt.Errorf("%d threads", n))
	}
	for _, guard := range guards {
		ok(guard.Err())
		ok(guard.Release(background))
	}
	fmt.Printf("%d threads for 1000 guards", threads())
}

// 52: the profiler's, the scheduler's and an alarm's signals disturb nothing.
func TestSignals(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		open(t, url)
		playWith(t, []string{"GOMAXPROCS=64"}, "profiled", url)
	})
}

// The collector at work all the time, and every pointer that goes to C checked.
func TestUnderTheCollector(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		open(t, url)
		playWith(t, []string{"GOGC=1", "GODEBUG=cgocheck=1"}, "profiled", url)
	})
}

func traffic(url string, goroutines int) {
	profile, err := os.CreateTemp("", "profile")
	ok(err)
	defer os.Remove(profile.Name())
	runtime.SetCPUProfileRate(1000)
	ok(pprof.StartCPUProfile(profile))
	defer pprof.StopCPUProfile()
	client, err := syncguard.Open(url)
	ok(err)
	alarms := make(chan os.Signal, 1)
	signal.Notify(alarms, syscall.SIGALRM)
	every := syscall.Timeval{Usec: 1000}
	timer := [2]syscall.Timeval{every, every}
	if _, _, failed := syscall.Syscall(syscall.SYS_SETITIMER, 0, uintptr(unsafe.Pointer(&timer)), 0); failed != 0 {
		ok(failed)
	}
	defer func() {
		if len(alarms) == 0 {
			ok(errors.New("no alarm came"))
		}
	}()
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-over:
				return
			default:
				_ = syscall.Kill(os.Getpid(), syscall.SIGURG)
				time.Sleep(100 * time.Microsecond)
			}
		}
	}()
	end := time.Now().Add(time.Second)
	var all sync.WaitGroup
	for i := 0; i < goroutines; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			for n := 0; time.Now().Before(end); n++ {
				// Some keys are contended, some are not, some contexts can end.
				ctx, cancel := context.WithCancel(background)
				if n%3 == 0 {
					ctx = background
				}
				key := []byte(fmt.Sprint("traffic:", os.Getpid(), ":", i%16))
				guard, err := client.Lock(ctx, string(key), syncguard.WithAcquireTimeout(time.Minute), syncguard.WithRetryDelay(5*time.Millisecond))
				// 58: the key was copied.
				key[0] = 'x'
				ok(err)
				ok(guard.Extend(ctx, time.Minute))
				ok(guard.Release(ctx))
				cancel()
			}
		}(i)
	}
	all.Wait()
	close(over)
	ok(client.Close())
}

// 59: the wall clock of the client steps by an hour while a lock is held.
func TestTheClockSteps(t *testing.T) {
	shim := preload(t, wallClock)
	onEach(t, func(t *testing.T, url string) {
		open(t, url)
		clock := filepath.Join(t.TempDir(), "clock")
		playWith(t, clockEnv(shim, clock), "clock", url, clock)
	})
}

var wallClock = filepath.Join("..", "..", "tests", "support", "wall_clock.c")

// preload makes a library of a C file, readable for servers of another user.
func preload(t *testing.T, source string) string {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "c-")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	shim := filepath.Join(dir, "shim.so")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return shim
}

func clockEnv(shim, clock string) []string {
	_ = os.WriteFile(clock, make([]byte, 8), 0o644)
	return []string{"LD_PRELOAD=" + shim, "WALL_CLOCK_OFFSET=" + clock}
}

func hold(url, clock string) {
	client, err := syncguard.Open(url)
	ok(err)
	key := fmt.Sprint("clock:", os.Getpid())
	guard, err := client.Lock(background, key, syncguard.WithTTL(10*time.Second), syncguard.WithHeartbeat(20*time.Millisecond))
	ok(err)
	file, err := os.OpenFile(clock, os.O_WRONLY, 0)
	ok(err)
	for _, hours := range []int64{1, -1, 0} {
		ok(setClock(file, hours*3600))
		time.Sleep(100 * time.Millisecond)
		ok(guard.Err())
		if _, err := client.TryLock(background, key); !errors.Is(err, syncguard.ErrLocked) {
			ok(fmt.Errorf("with a step of %d hours: %v", hours, err))
		}
	}
	ok(guard.Release(background))
	guard, err = client.TryLock(background, key)
	ok(err)
	ok(guard.Release(background))
}

func setClock(file *os.File, seconds int64) error {
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], uint64(seconds))
	_, err := file.WriteAt(bytes[:], 0)
	return err
}

// However the locks ended, nothing is left of them: no callback, no goroutine, no descriptor, no thread for each.
func TestNothingIsLeft(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		eventually(t, "earlier tests end", func() bool { collect(); return syncguard.Registered() == 0 })
		client, err := syncguard.Open(url, syncguard.WithEvents(func(syncguard.Event) {}), syncguard.WithWarnings(func(string) {}))
		must(t, err)
		key := name(t)
		must(t, client.SetupSchema(background))
		hook := syncguard.WithGuardReleaseErrors(func(syncguard.ReleaseError) {})
		round := func() {
			guard := lock(t, client, key, hook)
			_, _ = guard.Context(), guard.Done()
			_, err := client.TryLock(background, key, hook)
			is(t, err, syncguard.ErrLocked)
			_, err = client.Lock(background, key, syncguard.WithAcquireTimeout(time.Millisecond))
			is(t, err, syncguard.ErrAcquisitionTimeout)
			ctx, cancel := context.WithTimeout(background, time.Millisecond)
			_, err = client.Lock(ctx, key, hook)
			is(t, err, context.DeadlineExceeded)
			cancel()
			_, err = client.Lock(background, "", hook)
			is(t, err, syncguard.ErrInvalidArgument)
			must(t, guard.Release(background))
			must(t, client.Do(background, key, func(context.Context, *syncguard.Guard) error { return nil }))
		}
		for i := 0; i < 20; i++ {
			round()
		}
		goroutines, files := runtime.NumGoroutine(), descriptors()
		for i := 0; i < 100; i++ {
			round()
		}
		eventually(t, "only the client's callbacks are left", func() bool { return syncguard.Registered() == 1 })
		eventually(t, "no goroutines are left", func() bool { return runtime.NumGoroutine() <= goroutines })
		eventually(t, "no descriptors are left", func() bool { return descriptors() <= files })
		_, err = syncguard.Open("nonsense", syncguard.WithEvents(func(syncguard.Event) {}))
		is(t, err, syncguard.ErrInvalidArgument)
		must(t, client.Close())
		eventually(t, "nothing is left", func() bool { return syncguard.Registered() == 0 })
	})
}

func descriptors() int {
	open, err := os.ReadDir("/proc/self/fd")
	ok(err)
	return len(open)
}
