package syncguard_test

// Live locks page by page, what a check found line by line, and what a holder says of itself.

import (
	"context"
	"strings"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

func TestEveryLockIsOnAPage(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, prefix := open(t, url), name(t)+":"
		held := map[string]*syncguard.Guard{}
		for _, key := range []string{"1", "2", "3", "4", "5"} {
			held[prefix+key] = lock(t, client, prefix+key, syncguard.WithHolder("a list of Go"))
		}
		found := map[string]bool{}
		options := syncguard.ListOptions{Prefix: prefix, Examine: 2}
		for pages := 0; ; pages++ {
			page, err := client.ListRaw(background, options)
			must(t, err)
			for _, l := range page.Locks {
				guard := held[l.Key]
				if guard == nil || l.LockID != guard.LockID() || l.FenceNumber() != guard.FenceNumber() || l.Holder != "a list of Go" {
					t.Fatalf("%+v", l)
				}
				found[l.KeyHash] = true
			}
			if options.After = page.Next; page.Next == "" {
				break
			}
			if pages > 100000 {
				t.Fatal("the list does not end")
			}
		}
		if len(found) != len(held) {
			t.Fatal(found)
		}
		options = syncguard.ListOptions{Prefix: prefix + "3", Examine: 10000}
		for {
			page, err := client.List(background, options)
			must(t, err)
			if len(page.Locks) == 1 && page.Locks[0].Fence == held[prefix+"3"].Fence() {
				break
			}
			if options.After = page.Next; page.Next == "" || len(page.Locks) != 0 {
				t.Fatalf("%+v", page)
			}
		}
	})
}

func TestBadInputOfLists(t *testing.T) {
	client := open(t, sqliteURL(t))
	for _, options := range []syncguard.ListOptions{
		{Examine: -1}, {Examine: 10001}, {Examine: 1 << 40}, {After: "not a cursor"}, {After: "a\x00b"}, {Prefix: "a\x00b"}, {Prefix: "\xff"},
	} {
		_, err := client.List(background, options)
		is(t, err, syncguard.ErrInvalidArgument)
		_, err = client.ListRaw(background, options)
		is(t, err, syncguard.ErrInvalidArgument)
	}
	ended, end := context.WithCancel(background)
	end()
	_, err := client.List(ended, syncguard.ListOptions{})
	is(t, err, syncguard.ErrAborted, context.Canceled)
	_, err = client.Report(ended)
	is(t, err, syncguard.ErrAborted, context.Canceled)
	_, err = client.IsWaitedFor("")
	is(t, err, syncguard.ErrInvalidArgument)
	must(t, client.Close())
	_, err = client.List(background, syncguard.ListOptions{})
	is(t, err, syncguard.ErrClosed)
	_, err = client.Report(background)
	is(t, err, syncguard.ErrClosed)
	_, err = client.IsWaitedFor("k")
	is(t, err, syncguard.ErrClosed)
	if client.Capabilities().FenceSource != syncguard.FencesUnknown {
		t.Error("a closed client has fences")
	}
}

func TestAReport(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		report, err := open(t, url).Report(background)
		must(t, err)
		if report.Code != 0 || report.Level >= syncguard.CheckError || len(report.Findings) < 4 {
			t.Fatalf("%+v", report)
		}
		first := report.Findings[0]
		if first.Subject != syncguard.CheckReachable || first.Level != syncguard.CheckOK || first.Text == "" || first.Advice != "" {
			t.Errorf("%+v", first)
		}
	})
	report, err := open(t, "redis+unix:///nosuch/socket").Report(background)
	must(t, err)
	last := report.Findings[len(report.Findings)-1]
	if report.Code != syncguard.ServiceUnavailable || report.Level != syncguard.CheckError || last.Level != syncguard.CheckError || last.Advice == "" {
		t.Errorf("%+v", report)
	}
	if last.Level.String() != "error" || syncguard.CheckSetUp.String() != "set-up" || syncguard.CheckLevel(9).String() != "unknown" ||
		syncguard.CheckSubject(-1).String() != "unknown" || syncguard.CheckLatency.String() != "latency" ||
		syncguard.CheckEvicting.String() != "evicting" {
		t.Error("the names of levels and subjects")
	}
}

func TestCallersThatWait(t *testing.T) {
	client := open(t, sqliteURL(t))
	held := lock(t, client, "k")
	waited := func() bool {
		yes, err := client.IsWaitedFor("k")
		must(t, err)
		return yes
	}
	if waited() {
		t.Fatal("a caller waits")
	}
	done := make(chan error)
	go func() {
		guard, err := client.Lock(background, "k", syncguard.WithAcquireTimeout(syncguard.Forever))
		if err == nil {
			err = guard.Release(background)
		}
		done <- err
	}()
	eventually(t, "a caller that waits", waited)
	must(t, held.Release(background))
	must(t, <-done)
	if waited() {
		t.Fatal("a caller waits still")
	}
}

func TestWhatAHolderSays(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		events := make(chan syncguard.Event, 1000)
		client, key := open(t, url, syncguard.WithEventChannel(events), syncguard.WithRawEvents()), name(t)
		guard := lock(t, client, key, syncguard.WithHolder("build-7/nightly"), syncguard.WithGuardDisposeTimeout(time.Minute))
		_, err := client.Lock(background, key, syncguard.WithAcquireTimeout(time.Millisecond), syncguard.WithHolder(""))
		if found := detail(t, err); found.HolderText != "build-7/nightly" || strings.Contains(err.Error(), "build-7") {
			t.Fatalf("%+v", found)
		}
		_, err = client.Lock(background, key, syncguard.WithAcquireTimeout(0))
		if found := detail(t, err); found.HolderText != "build-7/nightly" {
			t.Fatalf("one attempt: %+v", found)
		}
		for e := nextEvent(t, events, syncguard.EventAcquire); e.Reason != syncguard.ReasonLocked || e.Holder != "build-7/nightly"; {
			if !e.OK || e.Holder != "" {
				t.Fatalf("%+v", e)
			}
			e = nextEvent(t, events, syncguard.EventAcquire)
		}
		raw, err := client.LookupByKeyRaw(background, key)
		must(t, err)
		if raw.Holder != "build-7/nightly" {
			t.Fatalf("%+v", raw)
		}
		raw, err = client.LookupByIDRaw(background, guard.LockID())
		must(t, err)
		if raw.Holder != "build-7/nightly" || raw.Key != key {
			t.Fatalf("%+v", raw)
		}
		must(t, guard.Release(background))
		// One of the longest, one that says nothing, and the default.
		longest := strings.Repeat("é", 100)
		for _, text := range []string{longest, ""} {
			guard = lock(t, client, key, syncguard.WithHolder(text))
			raw, err = client.LookupByKeyRaw(background, key)
			must(t, err)
			if raw.Holder != text {
				t.Fatalf("%q is told as %q", text, raw.Holder)
			}
			must(t, guard.Release(background))
		}
		guard = lock(t, client, key)
		raw, err = client.LookupByKeyRaw(background, key)
		must(t, err)
		if strings.Count(raw.Holder, "/") < 2 {
			t.Fatalf("by default %q", raw.Holder)
		}
		must(t, guard.Release(background))
		for _, bad := range []syncguard.LockOption{
			syncguard.WithHolder("two\nlines"), syncguard.WithHolder("a\x00b"), syncguard.WithHolder(longest + "x"), syncguard.WithHolder("\xff"),
			syncguard.WithGuardDisposeTimeout(0), syncguard.WithGuardDisposeTimeout(-1), syncguard.WithGuardDisposeTimeout(1 << 62),
		} {
			_, err := client.Lock(background, key, bad)
			is(t, err, syncguard.ErrInvalidArgument)
		}
	})
}

func TestTheSourceOfFences(t *testing.T) {
	counted, byClock := open(t, sqliteURL(t)), open(t, sqliteURL(t), syncguard.WithClockFences())
	if source := counted.Capabilities().FenceSource; source != syncguard.FencesCounter || source.String() != "counter" {
		t.Error(source)
	}
	if source := byClock.Capabilities().FenceSource; source != syncguard.FencesClock || source.String() != "clock" {
		t.Error(source)
	}
	if syncguard.FencesUnknown.String() != "unknown" {
		t.Error("no source")
	}
}
