// The line protocol of benches/performance/worker.rs for redsync.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

const held = 30 * time.Second

type caller struct{ mutex *redsync.Mutex }

func (c caller) acquire() (bool, error) {
	err := c.mutex.Lock()
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return false, nil
	}
	return err == nil, err
}

func (c caller) release() error {
	ok, err := c.mutex.Unlock()
	if err == nil && !ok {
		err = errors.New("the lock was lost")
	}
	return err
}

func client(socket string) (*goredislib.Client, error) {
	c := goredislib.NewClient(&goredislib.Options{Network: "unix", Addr: socket, PoolSize: 64})
	return c, c.Ping(context.Background()).Err()
}

// Defaults of the module: 32 tries, 50 to 250 ms apart.
func mutex(c *goredislib.Client, key, wait string) caller {
	options := []redsync.Option{redsync.WithExpiry(held)}
	switch wait {
	case "tuned":
		options = append(options, redsync.WithTries(math.MaxInt32), redsync.WithRetryDelay(2*time.Millisecond))
	case "patient":
		options = append(options, redsync.WithTries(math.MaxInt32))
	}
	return caller{redsync.New(goredis.NewPool(c)).NewMutex(key, options...)}
}

func rivals(socket string, count int, key, wait string) ([]caller, func(), error) {
	var all []caller
	var clients []*goredislib.Client
	for range count {
		c, err := client(socket)
		if err != nil {
			return nil, nil, err
		}
		clients = append(clients, c)
		all = append(all, mutex(c, key, wait))
	}
	return all, func() {
		for _, c := range clients {
			c.Close()
		}
	}, nil
}

func at(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[int(math.Round(float64(len(sorted)-1)*part))]
}

// Runs work for every caller at once.
func each(callers []caller, work func(int, caller) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(callers))
	for i, c := range callers {
		group.Add(1)
		go func() {
			defer group.Done()
			errs[i] = work(i, c)
		}()
	}
	group.Wait()
	return errors.Join(errs...)
}

func cycles(callers []caller, d time.Duration) ([]float64, error) {
	var mu sync.Mutex
	var times []float64
	begun := time.Now()
	err := each(callers, func(_ int, c caller) error {
		var own []float64
		last := time.Now()
		for last.Sub(begun) < d {
			ok, err := c.acquire()
			if err != nil {
				return err
			}
			if !ok {
				return errors.New("a lock that no other caller wants was taken")
			}
			if err := c.release(); err != nil {
				return err
			}
			now := time.Now()
			own = append(own, float64(now.Sub(last)))
			last = now
		}
		mu.Lock()
		times = append(times, own...)
		mu.Unlock()
		return nil
	})
	span := time.Since(begun)
	sort.Float64s(times)
	return []float64{float64(len(times)), float64(span), at(times, 0.5), at(times, 0.99)}, err
}

func contend(callers []caller, hold, d time.Duration, polite bool) ([]float64, error) {
	var mu sync.Mutex
	var by = -1
	var released time.Time
	var handoffs []float64
	var over atomic.Bool
	var gaveUp, total atomic.Int64
	grants := make([]float64, len(callers))
	end := time.Now().Add(d)
	err := each(callers, func(me int, c caller) error {
		defer over.Store(true)
		for time.Now().Before(end) && !over.Load() {
			ok, err := c.acquire()
			if err != nil {
				return err
			}
			if !ok {
				gaveUp.Add(1)
				continue
			}
			granted := time.Now()
			if !granted.Before(end) {
				return c.release()
			}
			mu.Lock()
			if by >= 0 && by != me {
				handoffs = append(handoffs, float64(granted.Sub(released)))
			}
			mu.Unlock()
			grants[me]++
			mine := total.Add(1)
			time.Sleep(hold)
			mu.Lock()
			by, released = me, time.Now()
			mu.Unlock()
			if err := c.release(); err != nil {
				return err
			}
			for polite && total.Load() == mine && time.Now().Before(end) {
				time.Sleep(50 * time.Microsecond)
			}
		}
		return nil
	})
	sort.Float64s(handoffs)
	all, fewest, most := 0.0, math.Inf(1), 0.0
	for _, g := range grants {
		all += g
		fewest, most = math.Min(fewest, g), math.Max(most, g)
	}
	return []float64{all, float64(d), float64(len(handoffs)), at(handoffs, 0.5), at(handoffs, 0.99), fewest, most, float64(gaveUp.Load())}, err
}

func burst(callers []caller, hold time.Duration) ([]float64, error) {
	begun := time.Now()
	var gaveUp atomic.Int64
	err := each(callers, func(_ int, c caller) error {
		for {
			ok, err := c.acquire()
			if err != nil {
				return err
			}
			if ok {
				break
			}
			gaveUp.Add(1)
		}
		time.Sleep(hold)
		return c.release()
	})
	return []float64{float64(time.Since(begun)), float64(gaveUp.Load())}, err
}

func answer(socket string, shared *goredislib.Client, words []string) ([]float64, error) {
	n := func(i int) int { v, _ := strconv.Atoi(words[i]); return v }
	switch words[0] {
	case "cycles":
		var callers []caller
		for i := range n(1) {
			callers = append(callers, mutex(shared, fmt.Sprintf("bench-%08d", i), "default"))
		}
		return cycles(callers, time.Duration(n(2))*time.Millisecond)
	case "contend", "handoff":
		callers, done, err := rivals(socket, n(1), "bench-contended", words[4])
		if err != nil {
			return nil, err
		}
		defer done()
		return contend(callers, time.Duration(n(2))*time.Microsecond, time.Duration(n(3))*time.Millisecond, words[0] == "handoff")
	case "burst":
		callers, done, err := rivals(socket, n(1), "bench-contended", words[3])
		if err != nil {
			return nil, err
		}
		defer done()
		return burst(callers, time.Duration(n(2))*time.Microsecond)
	case "wait":
		callers, _, err := rivals(socket, n(1)+1, "bench-waited", words[2])
		if err != nil {
			return nil, err
		}
		if ok, err := callers[0].acquire(); !ok {
			return nil, fmt.Errorf("the holder was not granted its lock: %w", err)
		}
		for _, c := range callers[1:] {
			go c.acquire()
		}
		return nil, nil
	}
	return nil, fmt.Errorf("no such request: %v", words)
}

func main() {
	socket := os.Args[1]
	shared, err := client(socket)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	version := "redsync"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if strings.Contains(d.Path, "redsync") {
				version = "redsync " + d.Version + " (" + runtime.Version() + ")"
			}
		}
	}
	fmt.Println("ready", version)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		numbers, err := answer(socket, shared, strings.Fields(in.Text()))
		if err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		out := []string{"ok"}
		for _, v := range numbers {
			out = append(out, strconv.FormatFloat(v, 'f', -1, 64))
		}
		fmt.Println(strings.Join(out, " "))
	}
}
