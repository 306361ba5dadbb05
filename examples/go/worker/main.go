// A worker of which only one may run: worker [URL [STEPS]].
//
// It works under the lock with Do. The context that its work gets ends on SIGTERM, SIGINT and when the lock is lost, so all it
// needs is what every Go program does anyway: stop when the context is done. The fence goes with every write, for a resource that refuses an
// older one than it has seen.
//
// It ends with 0 when the work is done or it was told to stop, 2 if another worker runs, 3 if the lock was lost, 1 otherwise.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

func main() {
	url, steps := "sqlite:locks.db", 5
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if len(os.Args) > 2 {
		var err error
		if steps, err = strconv.Atoi(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "usage: worker [URL [STEPS]]")
			os.Exit(1)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err := run(ctx, url, steps)
	switch {
	case err == nil:
	case errors.Is(err, syncguard.ErrAcquisitionTimeout):
		fmt.Println("another worker runs")
		os.Exit(2)
	case errors.Is(err, syncguard.ErrLost):
		fmt.Println("stopped:", err)
		os.Exit(3)
	case errors.Is(err, context.Canceled):
		fmt.Println("told to stop")
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, steps int) error {
	client, err := syncguard.Open(url)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.SetupSchema(ctx); err != nil {
		return err
	}
	return client.Do(ctx, "nightly-report", func(ctx context.Context, guard *syncguard.Guard) error {
		fmt.Println("working with fence", guard.Fence())
		for step := 1; step <= steps; step++ {
			if err := work(ctx, guard.Fence(), step); err != nil {
				return err
			}
		}
		fmt.Println("done")
		return nil
	}, syncguard.WithTTL(3*time.Second), syncguard.WithHeartbeat(100*time.Millisecond), syncguard.WithAcquireTimeout(time.Second))
}

// work stands for a write that carries the fence.
func work(ctx context.Context, fence string, step int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		fmt.Printf("step %d, fence %s\n", step, fence)
		return nil
	}
}
