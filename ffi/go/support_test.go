package syncguard_test

// What the tests share.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
	"github.com/syncguard/syncguard/ffi/go/internal/stopwatch"
)

var background = context.Background()

// closes fails the test if the channel is still open after testLimit.
func closes(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testLimit):
		t.Fatal(what)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is fails unless errors.Is finds all of the targets.
func is(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("got %v, wanted %v", err, target)
		}
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(testLimit); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long for: %s", what)
		}
	}
}

// slowest is how late the last of three calls ends after the bound, each without the time in which the process did not run.
func slowest(t testing.TB, bound time.Duration, call func()) time.Duration {
	t.Helper()
	var best, worst time.Duration
	for i := 0; i < 3; i++ {
		took, lost := stopwatch.Time(bound, call)
		over := took - bound - lost
		if i == 0 || over < best {
			best = over
		}
		if i == 0 || over > worst {
			worst = over
		}
	}
	t.Logf("best %v, worst %v", best, worst)
	return worst
}

func sqliteURL(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "locks.db") }

// onEach runs a test on every backend, each with a URL of its own.
func onEach(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, sqliteURL(t)) })
	t.Run("redis", func(t *testing.T) { test(t, redis(t).url()) })
	t.Run("postgres", func(t *testing.T) { test(t, postgres(t).url()) })
}

func open(t testing.TB, url string, options ...syncguard.Option) *syncguard.Client {
	t.Helper()
	client, err := syncguard.Open(url, options...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	must(t, client.SetupSchema(background))
	return client
}

// name is a key that no other test has.
func name(t testing.TB) string {
	return t.Name() + "/" + strconv.FormatInt(time.Now().UnixNano(), 36)
}

func lock(t testing.TB, client *syncguard.Client, key string, options ...syncguard.LockOption) *syncguard.Guard {
	t.Helper()
	guard, err := client.Lock(background, key, options...)
	must(t, err)
	return guard
}

func free(t testing.TB, client *syncguard.Client, key string) bool {
	t.Helper()
	locked, err := client.IsLocked(background, key)
	must(t, err)
	return !locked
}

// threads counts the threads of this process.
func threads() int {
	tasks, err := os.ReadDir("/proc/self/task")
	ok(err)
	return len(tasks)
}

// collect has the collector find what is forgotten.
func collect() {
	for i := 0; i < 3; i++ {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}
