// The contender of the benches: benchcycle URL [CYCLES]. It answers lines on its input.
//
//	(an empty line)                         CYCLES cycles of lock and release: nanoseconds per cycle
//	round <n>                               n cycles: nanoseconds for all of them
//	cycles <callers> <ms>                   ok <cycles> <ns> <p50 ns> <p99 ns>
//	beside <n>                              ok <p50 ns of C> <of Go> <of Go with a context that can end>
//	contend <callers> <hold µs> <ms> <wait> ok <grants> <ns> <handoffs> <p50 ns> <p99 ns> <fewest> <most> <gave up>
//	handoff …                               the same, with callers that let others go first
//	burst <callers> <hold µs> <wait>        ok <ns until drained> <gave up>
//	wait <callers> <wait>                   ok, while all of them wait for a lock that is held
//
// Without CYCLES it says "ready <version>" first. A wait is default, tuned or patient.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

var ctx = context.Background()

type caller struct {
	client  *syncguard.Client
	key     string
	options []syncguard.LockOption
	guard   *syncguard.Guard
}

func (c *caller) acquire() (bool, error) {
	guard, err := c.client.Lock(ctx, c.key, c.options...)
	if errors.Is(err, syncguard.ErrAcquisitionTimeout) {
		return false, nil
	}
	c.guard = guard
	return err == nil, err
}

func (c *caller) release() error { return c.guard.Release(ctx) }

func waiting(word string) []syncguard.LockOption {
	patient := syncguard.WithAcquireTimeout(10 * time.Minute)
	switch word {
	case "tuned":
		return []syncguard.LockOption{patient, syncguard.WithRetryDelay(2 * time.Millisecond), syncguard.WithBackoff(syncguard.Fixed),
			syncguard.WithJitter(syncguard.FullJitter)}
	case "patient":
		return []syncguard.LockOption{patient}
	}
	return nil
}

// rivals share one client, as the goroutines of a program do.
func rivals(url string, count int, key, wait string) ([]*caller, error) {
	client, err := syncguard.Open(url, syncguard.WithPoolSize(count+1))
	if err != nil {
		return nil, err
	}
	var all []*caller
	for i := 0; i < count; i++ {
		all = append(all, &caller{client: client, key: key, options: waiting(wait)})
	}
	return all, nil
}

// look makes and uses as many connections as there are callers, before anything is measured.
func look(callers []*caller) error {
	return each(callers, func(i int, c *caller) error {
		guard, err := c.client.TryLock(ctx, fmt.Sprintf("%s-before-%d", c.key, i))
		if err != nil {
			return err
		}
		return guard.Release(ctx)
	})
}

func at(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[int(math.Round(float64(len(sorted)-1)*part))]
}

func each(callers []*caller, work func(int, *caller) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(callers))
	for i, c := range callers {
		group.Add(1)
		go func(i int, c *caller) {
			defer group.Done()
			errs[i] = work(i, c)
		}(i, c)
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func cycles(callers []*caller, d time.Duration) ([]float64, error) {
	var mu sync.Mutex
	var times []float64
	begun := time.Now()
	err := each(callers, func(_ int, c *caller) error {
		own := make([]float64, 0, 1<<14)
		last := time.Now()
		for last.Sub(begun) < d {
			if err := cycle(c); err != nil {
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

func cycle(c *caller) error {
	granted, err := c.acquire()
	if err != nil {
		return err
	}
	if !granted {
		return errors.New("a lock that no other caller wants was taken")
	}
	return c.release()
}

// contend has every caller come back at once; with polite, a caller that has released comes back after another's grant.
func contend(callers []*caller, hold, d time.Duration, polite bool) ([]float64, error) {
	var mu sync.Mutex
	by := -1
	var released time.Time
	var handoffs []float64
	var gaveUp, total atomic.Int64
	grants := make([]float64, len(callers))
	end := time.Now().Add(d)
	err := each(callers, func(me int, c *caller) error {
		for time.Now().Before(end) {
			granted, err := c.acquire()
			if err != nil {
				return err
			}
			if !granted {
				gaveUp.Add(1)
				continue
			}
			now := time.Now()
			if !now.Before(end) {
				return c.release()
			}
			mu.Lock()
			if by >= 0 && by != me {
				handoffs = append(handoffs, float64(now.Sub(released)))
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
	sum, fewest, most := 0.0, math.Inf(1), 0.0
	for _, g := range grants {
		sum += g
		fewest, most = math.Min(fewest, g), math.Max(most, g)
	}
	return []float64{sum, float64(d), float64(len(handoffs)), at(handoffs, 0.5), at(handoffs, 0.99), fewest, most, float64(gaveUp.Load())}, err
}

func burst(callers []*caller, hold time.Duration) ([]float64, error) {
	begun := time.Now()
	var gaveUp atomic.Int64
	err := each(callers, func(_ int, c *caller) error {
		for {
			granted, err := c.acquire()
			if err != nil {
				return err
			}
			if granted {
				break
			}
			gaveUp.Add(1)
		}
		time.Sleep(hold)
		return c.release()
	})
	return []float64{float64(time.Since(begun)), float64(gaveUp.Load())}, err
}

type worker struct {
	url    string
	shared *syncguard.Client
	alone  *caller
	beyond *cClient
}

// rounds is how long n cycles take.
func (w *worker) rounds(n int) (time.Duration, error) {
	begun := time.Now()
	for i := 0; i < n; i++ {
		if err := cycle(w.alone); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

func (w *worker) answer(words []string) ([]float64, error) {
	n := func(i int) int {
		if i >= len(words) {
			return 0
		}
		v, _ := strconv.Atoi(words[i])
		return v
	}
	wait := words[len(words)-1]
	switch words[0] {
	case "cycles":
		var callers []*caller
		for i := 0; i < n(1); i++ {
			callers = append(callers, &caller{client: w.shared, key: fmt.Sprintf("bench-%08d", i)})
		}
		return cycles(callers, time.Duration(n(2))*time.Millisecond)
	case "beside":
		return w.beside(n(1))
	case "contend", "handoff", "burst", "wait":
		count := n(1)
		if words[0] == "wait" {
			count++
		}
		callers, err := rivals(w.url, count, "bench-contended", wait)
		if err != nil {
			return nil, err
		}
		if words[0] != "wait" {
			if err := look(callers); err != nil {
				return nil, err
			}
		}
		hold := time.Duration(n(2)) * time.Microsecond
		switch words[0] {
		case "contend", "handoff":
			defer callers[0].client.Close()
			return contend(callers, hold, time.Duration(n(3))*time.Millisecond, words[0] == "handoff")
		case "burst":
			defer callers[0].client.Close()
			return burst(callers, hold)
		}
		if granted, err := callers[0].acquire(); !granted {
			return nil, fmt.Errorf("the holder was not granted its lock: %v", err)
		}
		for _, c := range callers[1:] {
			go c.acquire()
		}
		return nil, nil
	}
	return nil, fmt.Errorf("no such request: %v", words)
}

func main() {
	if len(os.Args) < 2 {
		fmt.Println("error usage: benchcycle URL [CYCLES]")
		return
	}
	w := &worker{url: os.Args[1]}
	var err error
	if w.shared, err = syncguard.Open(w.url, syncguard.WithPoolSize(64)); err == nil {
		err = w.shared.SetupSchema(ctx)
	}
	if err != nil {
		fmt.Println("error", err)
		return
	}
	w.alone = &caller{client: w.shared, key: "bench"}
	perRound := 0
	if len(os.Args) > 2 {
		perRound, _ = strconv.Atoi(os.Args[2])
	} else {
		fmt.Println("ready", syncguard.Version(), "("+runtime.Version()+")")
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		if len(words) == 0 || words[0] == "round" {
			count := perRound
			if len(words) > 1 {
				count, _ = strconv.Atoi(words[1])
			}
			took, err := w.rounds(count)
			switch {
			case err != nil:
				fmt.Println("error", err)
			case len(words) == 0 && count > 0:
				fmt.Println(int64(took) / int64(count))
			default:
				fmt.Println(int64(took))
			}
			continue
		}
		numbers, err := w.answer(words)
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
