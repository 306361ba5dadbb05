// One of several programs that contend for a key: contend URL KEY MILLISECONDS. It prints for each time it held the key the fence
// and when it entered and left, on the machine's monotonic clock.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

const callers = 4

func main() {
	if len(os.Args) < 4 {
		os.Exit(2)
	}
	ms, err := strconv.Atoi(os.Args[3])
	must(err)
	ctx := context.Background()
	client, err := syncguard.Open(os.Args[1])
	must(err)
	defer client.Close()
	must(client.SetupSchema(ctx))
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	until := time.Now().Add(time.Duration(ms) * time.Millisecond)
	var all sync.WaitGroup
	for i := 0; i < callers; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(until) {
				guard, err := client.Lock(ctx, os.Args[2], syncguard.WithAcquireTimeout(time.Minute),
					syncguard.WithRetryDelay(time.Millisecond), syncguard.WithBackoff(syncguard.Fixed), syncguard.WithJitter(syncguard.FullJitter))
				must(err)
				// The lock is also what keeps the writer to one goroutine.
				entered := monotonic()
				time.Sleep(time.Millisecond)
				fmt.Fprintln(out, guard.Fence(), entered, monotonic())
				must(guard.Release(ctx))
			}
		}()
	}
	all.Wait()
}

// monotonic is CLOCK_MONOTONIC in nanoseconds, as the other programs read it.
func monotonic() int64 {
	var t syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		must(errno)
	}
	return t.Nano()
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
