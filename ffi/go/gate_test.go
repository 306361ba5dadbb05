package syncguard_test

// Gates, and fences that come from the store's clock.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

func TestFencedSet(t *testing.T) {
	client := open(t, redis(t).url())
	must(t, client.SetupFenceGate(background))
	if _, err := client.NewestFence(background, "gate_test"); !errors.Is(err, syncguard.ErrAbsent) {
		t.Fatal(err)
	}
	must(t, client.FencedSet(background, "gate_test", []byte("one"), 33))
	must(t, client.FencedSet(background, "gate_test", nil, 33))
	must(t, client.FencedSet(background, "gate_test", []byte{0, 255}, 34))
	if err := client.FencedSet(background, "gate_test", []byte("late"), 33); !errors.Is(err, syncguard.ErrRefused) {
		t.Fatal(err)
	}
	newest, err := client.NewestFence(background, "gate_test")
	must(t, err)
	if newest != 34 {
		t.Fatal(newest)
	}
	if err := client.ResetFenceGate(background, "gate_test", 33); !errors.Is(err, syncguard.ErrAbsent) {
		t.Fatal(err)
	}
	must(t, client.ResetFenceGate(background, "gate_test", 34))
	must(t, client.FencedSet(background, "gate_test", []byte("two"), 2))
}

func TestBadInputOfGates(t *testing.T) {
	client := open(t, redis(t).url())
	for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 10000)} {
		if err := client.FencedSet(background, name, nil, 1); !errors.Is(err, syncguard.ErrInvalidArgument) {
			t.Fatalf("%q: %v", name, err)
		}
		if _, err := client.NewestFence(background, name); !errors.Is(err, syncguard.ErrInvalidArgument) {
			t.Fatalf("%q: %v", name, err)
		}
		if err := client.ResetFenceGate(background, name, 1); !errors.Is(err, syncguard.ErrInvalidArgument) {
			t.Fatalf("%q: %v", name, err)
		}
	}
	negative := int64(-1)
	for _, fence := range []uint64{0, 900000000000001, 1 << 63, uint64(negative)} {
		if err := client.FencedSet(background, "r", nil, fence); !errors.Is(err, syncguard.ErrInvalidArgument) {
			t.Fatal(fence, err)
		}
	}
	ended, end := context.WithCancel(background)
	end()
	if err := client.FencedSet(ended, "r", nil, 1); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestGatesThatAreNotSetUp(t *testing.T) {
	for _, client := range []*syncguard.Client{
		open(t, "sqlite:"+filepath.Join(t.TempDir(), "locks.db")),
		// Each run has a schema of its own in a server that tests share.
		open(t, postgres(t).url(), syncguard.WithSchema(fmt.Sprintf("gate_test_%d", time.Now().UnixNano()))),
	} {
		_, err := client.NewestFence(background, "r")
		if !errors.Is(err, syncguard.ErrInvalidArgument) || !strings.Contains(err.Error(), "setup_fence_gate()") {
			t.Fatal(err)
		}
		err = client.ResetFenceGate(background, "r", 1)
		if !errors.Is(err, syncguard.ErrInvalidArgument) || !strings.Contains(err.Error(), "setup_fence_gate()") {
			t.Fatal(err)
		}
		must(t, client.SetupFenceGate(background))
		if _, err := client.NewestFence(background, "r"); !errors.Is(err, syncguard.ErrAbsent) {
			t.Fatal(err)
		}
	}
}

func TestTextsOfGates(t *testing.T) {
	for text, word := range map[string]string{
		syncguard.RedisGated("return 1"): "SYNCGUARD_STALE",
		syncguard.PostgresPass():         "syncguard_pass($1::",
		syncguard.PostgresShare():        "FOR SHARE",
		syncguard.SQLiteGateSetup():      "CREATE TRIGGER",
		syncguard.SQLitePass():           "ON CONFLICT",
		syncguard.SQLiteNewestFence():    "SELECT fence",
		syncguard.SQLiteResetGate():      "DELETE",
	} {
		if !strings.Contains(text, word) {
			t.Fatalf("%q is not in %q", word, text)
		}
	}
	if !strings.HasSuffix(syncguard.RedisGated("return 1"), "return 1") || syncguard.RedisGateKey("a") != "a:fence" {
		t.Fatal("the script is not behind the check")
	}
}

func TestTextsOfAGateInASchema(t *testing.T) {
	gate, err := syncguard.NewPostgresGate("app", "other_fences")
	must(t, err)
	for text, word := range map[string]string{
		gate.Setup:  `CREATE TABLE "app"."syncguard_fence_gates"`,
		gate.Pass:   `"app"."syncguard_pass"(`,
		gate.Share:  `"app"."other_fences"`,
		gate.Newest: `"app"."syncguard_fence_gates"`,
		gate.Reset:  "DELETE",
	} {
		if !strings.Contains(text, word) {
			t.Fatalf("%q is not in %q", word, text)
		}
	}
	for _, bad := range [][2]string{{"", ""}, {"no name", ""}, {"app", "no name"}, {"app", "syncguard_locks"}} {
		if _, err := syncguard.NewPostgresGate(bad[0], bad[1]); !errors.Is(err, syncguard.ErrInvalidArgument) {
			t.Fatal(bad, err)
		}
	}
	if gate, err := syncguard.NewPostgresGate("app", ""); err != nil || !strings.Contains(gate.Share, "syncguard_fence_counters") {
		t.Fatal(gate.Share, err)
	}
}

func TestClockFences(t *testing.T) {
	client := open(t, redis(t).url(), syncguard.WithClockFences())
	guard, err := client.Lock(background, "gate_test by clock")
	must(t, err)
	if guard.FenceNumber() < 1700000000000 {
		t.Fatal(guard.Fence())
	}
	must(t, guard.Release(background))
}
