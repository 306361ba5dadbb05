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

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = client.Lock(short, "nightly")
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// true
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
	for _, what := range []string{"acquired", "released"} {
		e := <-events
		fmt.Println(what, e.OK, e.Duration > 0)
	}
	// Output:
	// acquired true true
	// released true true
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
