package syncguard_test

// Tests that need a process of their own.

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// stages are what this binary does as a process of its own.
var stages = map[string]func(args []string){
	"waiters":  func(args []string) { waiters(args[0], args[1]) },
	"rush":     func(args []string) { rush(args[0]) },
	"crowded":  func(args []string) { crowded(args[0]) },
	"profiled": func(args []string) { traffic(args[0], 64) },
	"clock":    func(args []string) { hold(args[0], args[1]) },
	"years":    func(args []string) { otherYears(args[0], args[1]) },
	"resolver": func(args []string) { resolve(args[0]) },
	"threads":  func(args []string) { noThreads(args[0]) },
	"files":    func(args []string) { noDescriptors(args[0]) },
}

// ok ends a stage that failed.
func ok(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
}

// play runs a stage and gives what it printed.
func play(t testing.TB, stage string, args ...string) string {
	t.Helper()
	return playWith(t, nil, stage, args...)
}

func playWith(t testing.TB, env []string, stage string, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), "SYNCGUARD_GO_STAGE="+stage), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, start(cmd))
	select {
	case <-ended(cmd):
		if !cmd.ProcessState.Success() {
			t.Fatalf("%s: %v\n%s", stage, cmd.ProcessState, out.String())
		}
	case <-time.After(4 * time.Minute):
		kill(cmd)
		t.Fatalf("%s does not end: %s", stage, out.String())
	}
	return strings.TrimSpace(out.String())
}
