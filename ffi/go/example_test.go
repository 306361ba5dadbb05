package syncguard_test

// The examples of the documentation.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// store is a lock file of the example's own. Yours is a URL such as redis://127.0.0.1/ or postgres://user@host/db.
func store() (url string, remove func()) {
	dir, err := os.MkdirTemp("", "syncguard")
	if err != nil {
		log.Fatal(err)
	}
	return "sqlite:" + filepath.Join(dir, "locks.db"), func() { os.RemoveAll(dir) }
}

// opened is a client, and what closes it.
func opened() (*syncguard.Client, func()) {
	url, remove := store()
	client, err := syncguard.Open(url)
	if err != nil {
		log.Fatal(err)
	}
	return client, func() {
		client.Close()
		remove()
	}
}

func Example() {
	url, remove := store()
	defer remove()
	ctx := context.Background()

	client, err := syncguard.Open(url) // redis:// rediss:// postgres:// sqlite:PATH
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.Do(ctx, "invoice:42", func(ctx context.Context, guard *syncguard.Guard) error {
		fmt.Println("write with fence", guard.Fence())
		return ctx.Err() // ends when the lock is lost
	})
	fmt.Println(err)
	// Output:
	// write with fence 000000000000001
	// <nil>
}

func ExampleOpen() {
	client, err := syncguard.Open("redis://127.0.0.1/2",
		syncguard.WithKeyPrefix("billing"),
		syncguard.WithPoolSize(8),
		syncguard.WithConnectTimeout(time.Second),
		syncguard.WithOperationTimeout(2*time.Second),
		syncguard.WithWarnings(func(text string) { log.Print(text) }),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println(client.Backend())

	_, err = syncguard.Open("redis://:secret@host:port/")
	fmt.Println(errors.Is(err, syncguard.ErrInvalidArgument))
	// Output:
	// redis
	// true
}

func ExampleClient_Lock() {
	client, done := opened()
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	guard, err := client.Lock(ctx, "nightly",
		syncguard.WithTTL(10*time.Second),
		syncguard.WithAcquireTimeout(syncguard.Forever)) // until ctx ends
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(ctx) // also if ctx has ended by then
	fmt.Println(guard.Key(), guard.Fence(), guard.Remaining() > 0)
	// Output:
	// nightly 000000000000001 true
}

func ExampleClient_Lock_timeout() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	held, err := client.Lock(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release(ctx)

	_, err = client.Lock(ctx, "nightly", syncguard.WithAcquireTimeout(50*time.Millisecond))
	fmt.Println(errors.Is(err, syncguard.ErrAcquisitionTimeout))
	var detail *syncguard.Error
	if errors.As(err, &detail) && detail.Holder != nil {
		fmt.Println("held with fence", detail.Holder.FenceNumber(), "and nothing taken:", !detail.MayHaveApplied)
	}

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = client.Lock(short, "nightly")
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// true
	// held with fence 1 and nothing taken: true
	// true
}

func ExampleClient_TryLock() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	guard, err := client.TryLock(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.TryLock(ctx, "nightly"); errors.Is(err, syncguard.ErrLocked) {
		fmt.Println("another holder has it")
	}
	fmt.Println(guard.Release(ctx))
	// Output:
	// another holder has it
	// <nil>
}

func ExampleGuard_Done() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	guard, err := client.Lock(ctx, "nightly", syncguard.WithHeartbeat(10*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(ctx)
	go client.Release(ctx, guard.LockID()) // an operator takes it away

	select {
	case <-guard.Done():
		fmt.Println(errors.Is(guard.Err(), syncguard.ErrLost))
	case <-time.After(30 * time.Second):
		fmt.Println("the work is done")
	}
	// Output:
	// true
}

func ExampleGuard_Context() {
	client, done := opened()
	defer done()
	guard, err := client.Lock(context.Background(), "nightly")
	if err != nil {
		log.Fatal(err)
	}
	ctx := guard.Context() // for everything that must stop when the lock is gone
	fmt.Println(ctx.Err())
	guard.Release(context.Background())
	fmt.Println(ctx.Err())
	// Output:
	// <nil>
	// context canceled
}

func ExampleGuard_Extend() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	guard, err := client.Lock(ctx, "nightly", syncguard.WithTTL(time.Second), syncguard.WithoutHeartbeat())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(guard.Extend(ctx, time.Minute), guard.Remaining() > 30*time.Second)
	guard.Release(ctx)
	fmt.Println(errors.Is(guard.Extend(ctx, time.Minute), syncguard.ErrAbsent))
	// Output:
	// <nil> true
	// true
}

func ExampleGuard_Release() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	guard, err := client.Lock(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(guard.Release(ctx))
	fmt.Println(errors.Is(guard.Release(ctx), syncguard.ErrReleased))
	// Output:
	// <nil>
	// true
}

// The five verbs: one attempt each, for programs that keep the lock id elsewhere.
func ExampleClient_Acquire() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	grant, err := client.Acquire(ctx, "job:7", time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	locked, err := client.IsLocked(ctx, "job:7")
	fmt.Println(grant.Fence, locked, err)

	// Any process that knows the id can go on from here, in any language.
	until, err := client.Extend(ctx, grant.LockID, time.Hour)
	fmt.Println(time.Until(until) > 30*time.Minute, err)
	fmt.Println(client.Release(ctx, grant.LockID))
	fmt.Println(errors.Is(client.Release(ctx, grant.LockID), syncguard.ErrAbsent))
	// Output:
	// 000000000000001 true <nil>
	// true <nil>
	// <nil>
	// true
}

// For people and dashboards.
func ExampleClient_LookupByKey() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	guard, err := client.Lock(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(ctx)
	info, err := client.LookupByKey(ctx, "nightly")
	fmt.Println(info.KeyHash, info.Fence, err)
	raw, err := client.LookupByIDRaw(ctx, guard.LockID()) // with its secrets
	fmt.Println(raw.Key, err)
	owns, err := client.Owns(ctx, guard.LockID())
	fmt.Println(owns, err)
	_, err = client.LookupByKey(ctx, "another")
	fmt.Println(errors.Is(err, syncguard.ErrAbsent))
	hash, _ := syncguard.HashKey("nightly")
	fmt.Println(hash == info.KeyHash)
	// Output:
	// 73f6cba5203c670ffc317ba3 000000000000001 <nil>
	// nightly <nil>
	// true <nil>
	// true
	// true
}

func ExampleClient_SetupSchema() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	fmt.Println(client.SetupSchema(ctx)) // once, by a role that may create tables
	fmt.Println(client.Check(ctx))       // reachable, allowed, set up
	purged, err := client.PurgeExpired(ctx, 1000)
	fmt.Println(purged, err)
	// Output:
	// <nil>
	// <nil>
	// 0 <nil>
}

func ExampleWithEvents() {
	url, remove := store()
	defer remove()
	events := make(chan syncguard.Event, 16)
	client, err := syncguard.Open(url, syncguard.WithEventChannel(events))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	guard, err := client.Lock(context.Background(), "nightly")
	if err != nil {
		log.Fatal(err)
	}
	guard.Release(context.Background())
	for i := 0; i < 3; i++ {
		e := <-events
		fmt.Println(e.Type, e.OK, e.Backend, e.Fence)
	}
	// Output:
	// acquire true sqlite 1
	// wait true sqlite 1
	// release true sqlite 1
}

func ExampleWithLosses() {
	url, remove := store()
	defer remove()
	losses := make(chan syncguard.LostLock, 1)
	client, err := syncguard.Open(url, syncguard.WithLosses(func(l syncguard.LostLock) { losses <- l }))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	guard, err := client.Lock(context.Background(), "nightly", syncguard.WithTTL(50*time.Millisecond), syncguard.WithoutHeartbeat())
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(context.Background())
	l := <-losses
	fmt.Println(l.Key, l.Fence, errors.Is(l.Err, syncguard.ErrLost))
	// Output:
	// nightly 1 true
}

func ExampleClient_Capabilities() {
	client, done := opened()
	defer done()
	store := client.Capabilities()
	fmt.Println(store.Backend, store.SupportsFencing, store.TimeAuthority, store.FenceSource)
	// Output:
	// sqlite true server counter
}

func ExampleError() {
	client, done := opened()
	defer done()
	_, err := client.Lock(context.Background(), "")
	var detail *syncguard.Error
	if errors.As(err, &detail) {
		fmt.Println(detail.Code, detail.Code == syncguard.InvalidArgument)
	}
	// Output:
	// invalid argument true
}

// The gate at the data: a holder that is late is refused, also long after it was paused.
func ExampleClient_SetupFenceGate() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	if err := client.SetupFenceGate(ctx); err != nil { // once, in the database that has your data
		log.Fatal(err)
	}
	guard, err := client.Lock(ctx, "account:7")
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(ctx)
	// In the transaction of your write, with your own driver: db.Exec(syncguard.SQLitePass(), "account:7", guard.FenceNumber())
	_, err = client.NewestFence(ctx, "account:7")
	fmt.Println(errors.Is(err, syncguard.ErrAbsent)) // no write has passed yet
	// Output:
	// true
}

// Redis keeps the value and its gate together.
func ExampleClient_FencedSet() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	guard, err := client.Lock(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(ctx)
	switch err := client.FencedSet(ctx, "report:text", []byte("final"), guard.FenceNumber()); {
	case errors.Is(err, syncguard.ErrRefused):
		fmt.Println("a newer holder has written: stop")
	case errors.Is(err, syncguard.ErrInvalidArgument):
		fmt.Println("not in this store: pass the gate in your own transaction")
	}
	// Output:
	// not in this store: pass the gate in your own transaction
}

func ExampleClient_CheckReport() {
	client, done := opened()
	defer done()
	report, err := client.CheckReport(context.Background())
	if err != nil {
		log.Fatal(err) // locks do not work; the message says what to do
	}
	fmt.Println(report.Undelivered)
	// Output:
	// 0
}

func ExampleClient_Report() {
	client, done := opened()
	defer done()
	report, err := client.Report(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, finding := range report.Findings {
		if finding.Level == syncguard.CheckError {
			fmt.Println(finding.Subject, finding.Text, finding.Advice)
		}
	}
	fmt.Println(report.Findings[0].Subject, report.Findings[0].Level)
	// Output:
	// reachable ok
}

func ExampleWithWarnings() {
	url, remove := store()
	defer remove()
	client, err := syncguard.Open(url, syncguard.WithWarnings(func(message string) { log.Print("locks: ", message) }))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println(client.Check(context.Background())) // the hook has returned from every warning
	// Output:
	// <nil>
}

func ExampleWithReleaseErrors() {
	url, remove := store()
	defer remove()
	client, err := syncguard.Open(url, syncguard.WithReleaseErrors(func(failed syncguard.ReleaseError) {
		if failed.Source == syncguard.ReleaseDrop {
			log.Print("a lock is held until its ttl has passed: ", failed.Err)
		}
	}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.Close())
	// Output:
	// <nil>
}

func ExampleClient_List() {
	client, done := opened()
	defer done()
	ctx := context.Background()
	guard, err := client.Lock(ctx, "invoice:42", syncguard.WithHolder("the nightly run"))
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(ctx)
	options := syncguard.ListOptions{Prefix: "invoice:"}
	for {
		page, err := client.ListRaw(ctx, options)
		if err != nil {
			log.Fatal(err)
		}
		for _, lock := range page.Locks {
			fmt.Println(lock.Key, lock.Fence, lock.Holder)
		}
		if options.After = page.Next; page.Next == "" {
			break
		}
	}
	// Output:
	// invoice:42 000000000000001 the nightly run
}
