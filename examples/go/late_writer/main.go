// A holder that may be paused past its lease, and then writes: late_writer URL. The gate at the data, which is in Redis here, refuses it.
//
// It says "holding" with its fence and waits for a line. Stop it now (kill -STOP), wait until the lease of two seconds is over, start
// another one and let it write, then let the first one go on (kill -CONT) and write: it says "refused".
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

func main() {
	url := "redis://127.0.0.1/"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	client, err := syncguard.Open(url)
	if err != nil {
		return err
	}
	defer client.Close()
	guard, err := client.Lock(ctx, "report", syncguard.WithTTL(2*time.Second), syncguard.WithAcquireTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer guard.Release(ctx)
	fmt.Println("holding", guard.Fence())
	input := bufio.NewScanner(os.Stdin)
	input.Scan()
	// The pause was here. No check of the lock itself could help: another pause may come right after it.
	err = client.FencedSet(ctx, "report:text", input.Bytes(), guard.FenceNumber())
	switch {
	case err == nil:
		fmt.Println("written")
	case errors.Is(err, syncguard.ErrRefused):
		fmt.Println("refused")
	default:
		return err
	}
	return nil
}
