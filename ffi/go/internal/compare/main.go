//go:build linux

// Compares two builds of the Go module: compare URL SERVER BASE NEW, where SERVER is the process id of the store's server, and BASE and NEW
// are programs built from internal/benchcycle.
//
// It runs BASE, NEW and BASE again as processes of their own and asks them in turn for rounds of lock and release on one store. It measures
// the processor time that the program and the server use for a cycle, so other processes on the machine do not count. It prints the medians
// and quartiles of the rounds' ratios: NEW ÷ BASE, and BASE ÷ BASE, which shows what the method cannot tell apart. `make go-compare` builds
// the programs, starts a Redis server and pins all of it to one core.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const (
	rounds = 501
	cycles = 100
	warmUp = 30
)

type build struct {
	process int
	in      io.Writer
	out     *bufio.Scanner
}

func start(program, url string) (*build, error) {
	command := exec.Command(program, url, strconv.Itoa(cycles))
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	return &build{command.Process.Pid, in, bufio.NewScanner(out)}, nil
}

// processorTime is what all threads of a process have used, in nanoseconds.
func processorTime(process int) (float64, error) {
	// As clock_getcpuclockid(3) makes it.
	clock := uintptr(int32(^process<<3 | 2))
	var time syscall.Timespec
	if _, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&time)), 0); failed != 0 {
		return 0, fmt.Errorf("the processor time of process %d: %w", process, failed)
	}
	return float64(time.Nano()), nil
}

// round is the processor time of one cycle.
func (b *build) round(server int) (float64, error) {
	var used float64
	for _, after := range []bool{false, true} {
		sign := -1.0
		if after {
			sign = 1
			if err := b.ask(); err != nil {
				return 0, err
			}
		}
		for _, process := range []int{b.process, server} {
			time, err := processorTime(process)
			if err != nil {
				return 0, err
			}
			used += sign * time
		}
	}
	return used / cycles, nil
}

// ask has the program make its cycles.
func (b *build) ask() error {
	if _, err := fmt.Fprintln(b.in); err != nil {
		return err
	}
	if !b.out.Scan() {
		return fmt.Errorf("a program ended: %v", b.out.Err())
	}
	if text := b.out.Text(); strings.HasPrefix(text, "error") {
		return fmt.Errorf("a program answered %q", text)
	}
	return nil
}

func quantile(of []float64, part float64) float64 {
	sorted := append([]float64(nil), of...)
	sort.Float64s(sorted)
	return sorted[int(part*float64(len(sorted)-1))]
}

func compare(url string, server int, base, changed string) error {
	var builds []*build
	for _, program := range []string{base, changed, base} {
		b, err := start(program, url)
		if err != nil {
			return err
		}
		builds = append(builds, b)
	}
	var times [3][]float64
	for i := -warmUp; i < rounds; i++ {
		// Each time in another order.
		for j := range builds {
			which := (i + warmUp + j) % len(builds)
			used, err := builds[which].round(server)
			if err != nil {
				return err
			}
			if i >= 0 {
				times[which] = append(times[which], used)
			}
		}
	}
	fmt.Printf("%d rounds of %d cycles each; processor time of a cycle: base %.0f ns, new %.0f ns, base again %.0f ns\n",
		rounds, cycles, quantile(times[0], 0.5), quantile(times[1], 0.5), quantile(times[2], 0.5))
	for _, line := range []struct {
		name string
		over []float64
	}{{"new ÷ base", times[1]}, {"base ÷ base", times[2]}} {
		var ratios []float64
		for i, used := range line.over {
			ratios = append(ratios, used/times[0][i])
		}
		fmt.Printf("%-11s %.3f [%.3f–%.3f]\n", line.name, quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75))
	}
	return nil
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: compare URL SERVER BASE NEW")
		os.Exit(2)
	}
	server, err := strconv.Atoi(os.Args[2])
	if err == nil {
		// The programs end when their input does, with this one.
		err = compare(os.Args[1], server, os.Args[3], os.Args[4])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
