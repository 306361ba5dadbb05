package syncguard_test

// What becomes of the warnings of a check.

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

func init() {
	stages["checks"] = func(args []string) { checks(args[0]) }
}

// checks is a program that opens, checks, closes and ends.
func checks(url string) {
	client, err := syncguard.Open(url)
	ok(err)
	ok(client.Check(background))
	ok(client.Close())
}

// forgetful is a server that may forget locks and fences, and so has warnings.
func forgetful(t testing.TB) *redisServer {
	t.Helper()
	return startRedis(t, "--appendonly", "no", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
}

// A program that ends after a check has told all of its warnings, each in a whole line.
func TestWarningsOfAProgramThatEnds(t *testing.T) {
	server := forgetful(t)
	var wanted []string
	client := open(t, server.url(), syncguard.WithWarnings(func(text string) { wanted = append(wanted, "syncguard: warning: "+text) }))
	must(t, client.Check(background))
	if len(wanted) < 2 {
		t.Fatal("there is too little to tell", wanted)
	}
	// A program with the race detector sleeps a second before it ends, which would hide what is late.
	atOnce := []string{"GORACE=atexit_sleep_ms=0"}
	for run := 1; run <= 40; run++ {
		if said := playWith(t, atOnce, "checks", server.url()); said != strings.Join(wanted, "\n") {
			t.Fatalf("run %d: %q, wanted %q", run, said, wanted)
		}
	}
}

// The hook has returned from every warning when Check does; no atomics, for the race detector to see that.
func TestWarningsAreTold(t *testing.T) {
	server := forgetful(t)
	returned := 0
	client := open(t, server.url(), syncguard.WithWarnings(func(string) {
		time.Sleep(20 * time.Millisecond)
		returned++
	}))
	report, err := client.CheckReport(background)
	must(t, err)
	if report.Warnings == 0 || report.Undelivered != 0 || returned != report.Warnings {
		t.Fatalf("%+v, %d", report, returned)
	}
	must(t, client.Check(background))
	if returned != 2*report.Warnings {
		t.Fatal(returned)
	}
	must(t, client.Close())
	_, err = client.CheckReport(background)
	is(t, err, syncguard.ErrClosed)
}

// A hook that hangs delays Check by the operation timeout, or until its context ends, and gets the rest later.
func TestWarningsThatAreNotTaken(t *testing.T) {
	const limit = 2 * time.Second
	server := forgetful(t)
	for _, cancelled := range []bool{false, true} {
		ctx, cancel := context.WithCancel(background)
		hold := make(chan struct{})
		var returned atomic.Int32
		hook := syncguard.WithWarnings(func(string) {
			if cancelled {
				cancel()
			}
			<-hold
			returned.Add(1)
		})
		timeout := limit
		if cancelled {
			timeout = 2 * testLimit
		}
		client := open(t, server.url(), hook, syncguard.WithOperationTimeout(timeout))
		begun := time.Now()
		report, err := client.CheckReport(ctx)
		took := time.Since(begun)
		must(t, err)
		if report.Warnings == 0 || report.Undelivered != report.Warnings || took < limit && !cancelled || took > testLimit {
			t.Fatalf("%+v after %v", report, took)
		}
		if returned.Load() != 0 {
			t.Fatal(returned.Load())
		}
		close(hold)
		eventually(t, "the rest", func() bool { return int(returned.Load()) == report.Warnings })
		cancel()
	}
}
