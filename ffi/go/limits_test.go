package syncguard_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// Rows 51, 64 and 65: what the machine lacks, and clocks and names that are not as they should be.

// openDir is a directory in which also a process without rights can work.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "o-")
	must(t, err)
	must(t, os.Chmod(dir, 0o777))
	return dir
}

// 51: no free thread is an error, and what is held stays held.
func TestNoThreadsLeft(t *testing.T) {
	t.Log(play(t, "threads", "sqlite:"+filepath.Join(openDir(t), "locks.db")))
}

func noThreads(url string) {
	// Root has no limit.
	if os.Getuid() == 0 {
		ok(syscall.Setgid(65534))
		ok(syscall.Setuid(65534))
	}
	// Go itself ends the program if it cannot have a thread: it gets what it may want before.
	var all sync.WaitGroup
	for i := 0; i < 50; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			time.Sleep(200 * time.Millisecond)
		}()
	}
	all.Wait()
	client, err := syncguard.Open(url)
	ok(err)
	grant, err := client.Acquire(background, "held", time.Minute)
	ok(err)
	var limit syscall.Rlimit
	const nproc = 6
	ok(syscall.Getrlimit(nproc, &limit))
	ok(syscall.Setrlimit(nproc, &syscall.Rlimit{Cur: 0, Max: limit.Max}))
	// The first guard needs the library's timer.
	_, err = client.TryLock(background, "first")
	if !errors.Is(err, syncguard.ErrRateLimited) {
		ok(fmt.Errorf("without threads: %v", err))
	}
	for key, wanted := range map[string]bool{"first": false, "held": true} {
		locked, err := client.IsLocked(background, key)
		ok(err)
		if locked != wanted {
			ok(fmt.Errorf("%s: locked is %v", key, locked))
		}
	}
	ok(syscall.Setrlimit(nproc, &limit))
	guard, err := client.Lock(background, "first")
	ok(err)
	ok(guard.Release(background))
	ok(client.Release(background, grant.LockID))
}

// 51: no free descriptor is an error, and the locks that are held stay valid.
func TestNoDescriptorsLeft(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		open(t, url)
		play(t, "files", url)
	})
}

func noDescriptors(url string) {
	client, err := syncguard.Open(url)
	ok(err)
	key := fmt.Sprint("files:", os.Getpid())
	guard, err := client.Lock(background, key)
	ok(err)
	// What there is stays; nothing can be added.
	var limit syscall.Rlimit
	ok(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	ok(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}))
	other, err := syncguard.Open(url)
	ok(err)
	_, err = other.TryLock(background, key+"/other")
	if !errors.Is(err, syncguard.ErrRateLimited) && !errors.Is(err, syncguard.ErrServiceUnavailable) {
		ok(fmt.Errorf("without descriptors: %v", err))
	}
	ok(guard.Err())
	ok(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	ok(guard.Extend(background, time.Minute))
	more, err := other.Lock(background, key+"/other")
	ok(err)
	ok(more.Release(background))
	ok(guard.Release(background))
}

// 64: the store's clock is in another age. What is shown is the store's time; what counts is how long.
func TestAStoreFromAnotherAge(t *testing.T) {
	shim := preload(t, wallClock)
	for name, year := range map[string]time.Time{"1970": time.Unix(3600, 0), "2100": time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)} {
		dir := openDir(t)
		clock := filepath.Join(dir, "clock")
		env := clockEnv(shim, clock)
		file, err := os.OpenFile(clock, os.O_WRONLY, 0)
		must(t, err)
		must(t, setClock(file, year.Unix()-time.Now().Unix()))
		must(t, file.Close())
		at := fmt.Sprint(year.Unix())
		t.Run(name+"/redis", func(t *testing.T) { play(t, "years", startRedisIn(t, dir, env).url(), at) })
		t.Run(name+"/postgres", func(t *testing.T) { play(t, "years", startPostgres(t, env...).url(), at) })
		t.Run(name+"/sqlite", func(t *testing.T) { playWith(t, env, "years", "sqlite:"+filepath.Join(dir, "locks.db"), at) })
	}
}

func otherYears(url, at string) {
	client, err := syncguard.Open(url, syncguard.WithOperationTimeout(testLimit))
	ok(err)
	defer client.Close()
	ok(client.SetupSchema(background))
	guard, err := client.Lock(background, "k", syncguard.WithTTL(10*time.Minute))
	ok(err)
	var year int64
	_, err = fmt.Sscan(at, &year)
	ok(err)
	if shown := guard.ExpiresAt().Sub(time.Unix(year, 0)); shown < 10*time.Minute-time.Second || shown > 20*time.Minute {
		ok(fmt.Errorf("it ends at %v, %v after the store's time", guard.ExpiresAt(), shown))
	}
	if left := guard.Remaining(); left <= 5*time.Minute || left > 10*time.Minute {
		ok(fmt.Errorf("%v left", left))
	}
	ok(guard.Extend(background, 10*time.Minute))
	if _, err := client.TryLock(background, "k"); !errors.Is(err, syncguard.ErrLocked) {
		ok(fmt.Errorf("it is held: %v", err))
	}
	ok(guard.Err())
	ok(guard.Release(background))
}

// 65: a name with two addresses of which the first is dead; a resolver that hangs.
func TestNamesAndAddresses(t *testing.T) {
	shim := preload(t, filepath.Join("testdata", "resolver.c"))
	_, port := startRedisTCP(t, func(int) []string { return []string{"--bind", "127.0.0.1"} })
	playWith(t, []string{"LD_PRELOAD=" + shim}, "resolver", fmt.Sprint(port))
	unknown, err := syncguard.Open("redis://no-such-host.invalid/")
	must(t, err)
	defer unknown.Close()
	if _, err = unknown.TryLock(background, "k"); err == nil || strings.Contains(err.Error(), "no-such-host.invalid/") {
		t.Fatal(err)
	}
}

func resolve(port string) {
	client, err := syncguard.Open("redis://"+net.JoinHostPort("two.test", port)+"/", syncguard.WithOperationTimeout(testLimit))
	ok(err)
	guard, err := client.Lock(background, "k")
	ok(err)
	ok(guard.Release(background))
	hanging, err := syncguard.Open("redis://"+net.JoinHostPort("hang.test", port)+"/", syncguard.WithOperationTimeout(500*time.Millisecond))
	ok(err)
	begun := time.Now()
	_, err = hanging.TryLock(background, "k")
	if !errors.Is(err, syncguard.ErrNetworkTimeout) && !errors.Is(err, syncguard.ErrServiceUnavailable) {
		ok(fmt.Errorf("a resolver that hangs: %v", err))
	}
	// The resolver comes back after 30 s.
	if took := time.Since(begun); took > 20*time.Second {
		ok(fmt.Errorf("it took %v", took))
	}
}
