// How long calls take while their store is in trouble: overshoot URL CALL CALLERS ACQUIRE_MS OPERATION_MS. It opens a client, prepares
// the calls while the store is well, and says "ready". After a line on stdin it makes the calls at once, each in a goroutine, and prints
// for each what it took and how long it did not get to run, in microseconds.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
	"github.com/syncguard/syncguard/ffi/go/internal/stopwatch"
)

var ctx = context.Background()

func main() {
	if len(os.Args) < 6 {
		os.Exit(2)
	}
	url, call := os.Args[1], os.Args[2]
	many, acquire, operation := number(os.Args[3]), millis(os.Args[4]), millis(os.Args[5])
	well, err := syncguard.Open(url, syncguard.WithOperationTimeout(time.Minute), syncguard.WithConnectTimeout(time.Minute))
	must(err)
	must(well.SetupSchema(ctx))
	client, err := syncguard.Open(url, syncguard.WithOperationTimeout(operation), syncguard.WithDisposeTimeout(operation),
		syncguard.WithWarnings(func(string) {}))
	must(err)
	guards := make([]*syncguard.Guard, many)
	for i := range guards {
		for end := time.Now().Add(time.Minute); call == "guard.Release" || call == "guard.Extend"; {
			if guards[i], err = client.Lock(ctx, fmt.Sprint("g", os.Getpid(), "-", i)); err == nil {
				break
			}
			if time.Now().After(end) {
				must(err)
			}
		}
	}
	// A connection that was good a moment ago.
	for end := time.Now().Add(time.Minute); ; {
		if _, err = client.IsLocked(ctx, "k"); err == nil {
			break
		}
		if time.Now().After(end) {
			must(err)
		}
	}
	must(well.Close())
	waits := syncguard.WithAcquireTimeout(acquire)
	id := "AAAAAAAAAAAAAAAAAAAAAA"
	bound := operation
	if (call == "Lock" || call == "Lock, a key each" || call == "Do") && acquire > operation {
		bound = acquire
	}
	make := func(i int) error {
		switch call {
		case "Lock":
			_, err := client.Lock(ctx, "k", waits)
			return err
		case "Lock, a key each":
			_, err := client.Lock(ctx, fmt.Sprint("k", i), waits)
			return err
		case "Do":
			return client.Do(ctx, "k", func(context.Context, *syncguard.Guard) error { return nil }, waits)
		case "TryLock":
			_, err := client.TryLock(ctx, "k", waits)
			return err
		case "Acquire":
			_, err := client.Acquire(ctx, "k", 30*time.Second)
			return err
		case "Release":
			return client.Release(ctx, id)
		case "Extend":
			_, err := client.Extend(ctx, id, 30*time.Second)
			return err
		case "IsLocked":
			_, err := client.IsLocked(ctx, "k")
			return err
		case "Check":
			return client.Check(ctx)
		case "SetupSchema":
			return client.SetupSchema(ctx)
		case "guard.Release":
			return guards[i].Release(ctx)
		case "guard.Extend":
			return guards[i].Extend(ctx, 30*time.Second)
		}
		fmt.Fprintln(os.Stderr, "there is no call", call)
		os.Exit(2)
		return nil
	}
	stopwatch.Begin()
	fmt.Println("ready")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	type result struct{ took, lost time.Duration }
	results := [64]result{}
	var all sync.WaitGroup
	for i := 0; i < many; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			results[i].took, results[i].lost = stopwatch.Time(bound, func() { _ = make(i) })
		}(i)
	}
	all.Wait()
	for _, r := range results[:many] {
		fmt.Println(r.took.Microseconds(), r.lost.Microseconds())
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	must(err)
	return n
}

func millis(text string) time.Duration { return time.Duration(number(text)) * time.Millisecond }

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
