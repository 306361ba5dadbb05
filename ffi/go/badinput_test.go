package syncguard_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// The rows of the list of bad inputs that concern Go, by number, and where they are tested:
//
//	 1, 2, 3, 5, 6, 7  TestRefusedKeys
//	 2, 8, 11, 12, 13  TestKeysThatAreData
//	 4, 63             TestTheSameKey
//	 9                 TestReservedKeys
//	10                 TestTruncatedKeys
//	16, 17, 19, 20, 61 TestTTL
//	18                 TestTinyTTL
//	21, 22             TestLockIDs, TestVerbs
//	23                 TestLockAndRelease
//	24, 26             TestOneAttempt
//	25, 26, 27         TestWaitLimits
//	29, 30             TestPrefixes
//	31, 32             TestTableNames
//	33                 TestForeignTables
//	34, 35             TestURLs
//	36                 TestCredentials
//	37, 38             TestServersThatAreNone
//	39                 TestRedisInTrouble, TestRedisThatLoads, TestRedisCluster
//	40                 TestPostgresRoles, TestPostgresStandby, TestPgBouncer, TestPostgresEncodings
//	41                 TestBrokenCounters
//	42                 TestForeignValues
//	49                 TestAChildInheritsNothing (Go programs do not fork without exec)
//	51                 TestAThousandGuards, TestNoThreadsLeft, TestNoDescriptorsLeft
//	52                 TestSignals
//	56                 TestNilAndZero, TestCloseAndCopy, TestForgotten
//	57                 TestCancel, TestCancelledLocksLeaveNothingBehind
//	58                 TestSignals (the key is changed after the call), TestTenThousandWaiters
//	59                 TestTheClockSteps
//	62                 TestExtendAndReleaseAtOnce
//	64                 TestAStoreFromAnotherAge
//	65                 TestNamesAndAddresses
//	66                 TestTLS
//	67                 TestBadInputOfGates, TestGatesThatAreNotSetUp

// refusedKeys are IA before any I/O.
var refusedKeys = map[string]string{
	"1 empty":             "",
	"2 too long":          strings.Repeat("k", 513),
	"3 too long in bytes": strings.Repeat("\u20ac", 200),
	"5 grows under NFC":   strings.Repeat("\U0001D160", 50), // 4 bytes each, 12 after NFC
	"6 NUL":               "a\x00b",
	"6 NUL at the end":    "a\x00",
	"7 not UTF-8":         "a\xffb",
	"7 overlong":          "\xc0\xaf",
	"7 surrogate":         "\xed\xa0\x80",
	"7 cut":               "\xe2\x82",
}

func TestRefusedKeys(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client := open(t, url)
		for row, key := range refusedKeys {
			_, err := client.Lock(background, key)
			is(t, err, syncguard.ErrInvalidArgument)
			_, err = client.TryLock(background, key)
			is(t, err, syncguard.ErrInvalidArgument)
			_, err = client.Acquire(background, key, time.Second)
			is(t, err, syncguard.ErrInvalidArgument)
			_, err = client.IsLocked(background, key)
			is(t, err, syncguard.ErrInvalidArgument)
			_, err = client.LookupByKey(background, key)
			is(t, err, syncguard.ErrInvalidArgument)
			_, err = syncguard.HashKey(key)
			is(t, err, syncguard.ErrInvalidArgument)
			if key != "" && strings.Contains(err.Error(), key) {
				t.Errorf("%s: the message repeats the key: %v", row, err)
			}
		}
	})
}

// 2, 8, 11, 12, 13: plain data, each a lock of its own, and the same bytes come back.
func TestKeysThatAreData(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, own := open(t, url), name(t)
		long := own + strings.Repeat("k", 512-len(own))
		keys := []string{
			long, own + "\r\n*1\r\n", own + "\n", own + "\x7f\x01", own + `"'\`, own + "🙂", own + "\u202eabc",
			own + "'; DROP TABLE x; --", own + "$1", own + "%s", own + "x", own + "X", own + "x ", own + "☺\ufe0f", own + "☺",
			own + "\u0378",
		}
		var guards []*syncguard.Guard
		for _, key := range keys {
			guard, err := client.TryLock(background, key)
			must(t, err)
			raw, err := client.LookupByIDRaw(background, guard.LockID())
			must(t, err)
			if raw.Key != key || guard.Key() != key || guard.Fence() != "000000000000001" {
				t.Fatalf("%q became %q, fence %s", key, raw.Key, guard.Fence())
			}
			guards = append(guards, guard)
		}
		for _, guard := range guards {
			must(t, guard.Release(background))
		}
	})
}

// 4, 63: equal after NFC, and the same key twice: one lock.
func TestTheSameKey(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		guard := lock(t, client, key+"e\u0301")
		if guard.Key() != key+"\u00e9" {
			t.Fatalf("%q", guard.Key())
		}
		for _, same := range []string{key + "\u00e9", key + "e\u0301"} {
			_, err := client.TryLock(background, same)
			is(t, err, syncguard.ErrLocked)
		}
		must(t, guard.Release(background))
	})
}

// 9: what would land on our own bookkeeping.
func TestReservedKeys(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client := open(t, url)
		foo := lock(t, client, "foo")
		for _, key := range []string{"fence:syncguard:foo", "id:" + strings.Repeat("a", 22)} {
			guard, err := client.TryLock(background, key)
			if client.Backend() == "redis" {
				is(t, err, syncguard.ErrInvalidArgument)
				continue
			}
			must(t, err)
			must(t, guard.Release(background))
		}
		must(t, foo.Err())
		must(t, foo.Release(background))
		must(t, lock(t, client, "id:42").Release(background))
	})
}

// 10: a key that is the truncated hash of another one is, in Redis, stored in the same place: never two holders.
func TestTruncatedKeys(t *testing.T) {
	prefix := strings.Repeat("p", 900)
	client := open(t, redis(t).url(), syncguard.WithKeyPrefix(prefix))
	long := strings.Repeat("k", 300)
	guard := lock(t, client, long)
	var stored string
	for _, line := range strings.Split(redis(t).cli(t, "KEYS", prefix+":*"), "\n") {
		if key := strings.TrimPrefix(line, prefix+":"); len(key) == 22 && redis(t).cli(t, "TYPE", line) == "string" &&
			strings.Contains(redis(t).cli(t, "GET", line), "lockId") {
			stored = key
		}
	}
	if stored == "" {
		t.Fatal("it was not truncated")
	}
	_, err := client.TryLock(background, stored)
	if err == nil {
		t.Fatal("two holders")
	}
	must(t, guard.Release(background))
}

// 16, 17, 19: a ttl that cannot be, with no fence burnt. 20: whole milliseconds, rounded up.
func TestTTL(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		id := strings.Repeat("a", 22)
		for _, ttl := range []time.Duration{0, -1, -time.Hour, math.MinInt64, math.MaxInt64, 11 * 365 * 24 * time.Hour} {
			_, err := client.Lock(background, key, syncguard.WithTTL(ttl))
			is(t, err, syncguard.ErrInvalidArgument)
			_, err = client.Acquire(background, key, ttl)
			is(t, err, syncguard.ErrInvalidArgument)
			_, err = client.Extend(background, id, ttl)
			is(t, err, syncguard.ErrInvalidArgument)
		}
		guard := lock(t, client, key)
		if guard.Fence() != "000000000000001" {
			t.Fatal("a fence was burnt")
		}
		for _, ttl := range []time.Duration{0, -1, math.MaxInt64} {
			is(t, guard.Extend(background, ttl), syncguard.ErrInvalidArgument)
		}
		// 61: shorter than what remains.
		must(t, guard.Extend(background, time.Second))
		if left := guard.Remaining(); left > time.Second {
			t.Fatal(left)
		}
		must(t, guard.Release(background))
		for _, ttl := range []time.Duration{400 * time.Microsecond, 1500 * time.Microsecond} {
			grant, err := client.Acquire(background, name(t), ttl)
			must(t, err)
			_ = grant
		}
	})
}

// 18: tiny leases with a heartbeat: no busy loop, no overflow.
func TestTinyTTL(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client := open(t, url)
		for _, ttl := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond} {
			guard := lock(t, client, name(t), syncguard.WithTTL(ttl))
			time.Sleep(20 * time.Millisecond)
			if err := guard.Release(background); err != nil {
				is(t, err, syncguard.ErrAbsent)
			}
		}
		_, err := client.Lock(background, name(t), syncguard.WithTTL(time.Second), syncguard.WithHeartbeat(time.Second))
		is(t, err, syncguard.ErrInvalidArgument)
	})
}

// 21: what is no lock id; the message does not repeat it. 22: of another key.
func TestLockIDs(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		client, key := open(t, url), name(t)
		for _, id := range []string{"", strings.Repeat("z", 21), strings.Repeat("z", 23), strings.Repeat("z", 21) + "+", strings.Repeat("z", 21) + "/",
			strings.Repeat("z", 21) + "=", strings.Repeat("z", 20) + "é", strings.Repeat("z", 21) + "\x00", "\xff" + strings.Repeat("z", 21)} {
			for _, err := range []error{
				client.Release(background, id),
				func() error { _, err := client.Extend(background, id, time.Second); return err }(),
				func() error { _, err := client.LookupByID(background, id); return err }(),
				func() error { _, err := client.LookupByIDRaw(background, id); return err }(),
				func() error { _, err := client.Owns(background, id); return err }(),
				syncguard.ValidateLockID(id),
			} {
				is(t, err, syncguard.ErrInvalidArgument)
				if id != "" && strings.Contains(err.Error(), id) {
					t.Fatal(err)
				}
			}
		}
		guard, other := lock(t, client, key), lock(t, client, key+"/other")
		must(t, client.Release(background, other.LockID()))
		is(t, client.Release(background, other.LockID()), syncguard.ErrAbsent)
		must(t, guard.Err())
		must(t, guard.Release(background))
	})
}

// 25, 26, 27: limits of the wait at their edges.
func TestWaitLimits(t *testing.T) {
	client, key := open(t, sqliteURL(t)), "k"
	for _, options := range [][]syncguard.LockOption{
		{syncguard.WithAcquireTimeout(-1)},
		{syncguard.WithMaxRetries(-1)},
		{syncguard.WithRetryDelay(-1)},
		{syncguard.WithHeartbeat(0)},
		{syncguard.WithMaxHold(0)},
		{syncguard.WithBackoff(99)},
		{syncguard.WithJitter(0)},
	} {
		_, err := client.Lock(background, key, options...)
		is(t, err, syncguard.ErrInvalidArgument)
		_, err = client.TryLock(background, key, options...)
		is(t, err, syncguard.ErrInvalidArgument)
	}
	held := lock(t, client, key)
	for _, options := range [][]syncguard.LockOption{
		{syncguard.WithAcquireTimeout(syncguard.Forever)},
		{syncguard.WithAcquireTimeout(syncguard.Forever - 1)},
		{syncguard.WithAcquireTimeout(syncguard.Forever), syncguard.WithMaxRetries(math.MaxInt32), syncguard.WithRetryDelay(time.Millisecond)},
		{syncguard.WithAcquireTimeout(syncguard.Forever), syncguard.WithMaxRetries(math.MaxUint32), syncguard.WithRetryDelay(time.Hour)},
		{syncguard.WithUnlimitedRetries(), syncguard.WithRetryDelay(math.MaxInt64)},
	} {
		ctx, cancel := context.WithTimeout(background, 30*time.Millisecond)
		_, err := client.Lock(ctx, key, options...)
		is(t, err, syncguard.ErrAborted, context.DeadlineExceeded)
		cancel()
	}
	_, err := client.Lock(background, key, syncguard.WithRetryDelay(0), syncguard.WithAcquireTimeout(50*time.Millisecond))
	is(t, err, syncguard.ErrAcquisitionTimeout)
	must(t, held.Release(background))
}

// 29: prefixes.
func TestPrefixes(t *testing.T) {
	url := redis(t).url()
	for _, prefix := range []string{"", ":::", "a:", "{app}", strings.Repeat("p", 900)} {
		client := open(t, url, syncguard.WithKeyPrefix(prefix))
		must(t, lock(t, client, name(t)).Release(background))
	}
	key := name(t)
	guard := lock(t, open(t, url, syncguard.WithKeyPrefix("a")), key)
	_, err := open(t, url, syncguard.WithKeyPrefix("a:")).TryLock(background, key)
	is(t, err, syncguard.ErrLocked)
	must(t, guard.Release(background))
	for _, prefix := range []string{"a\x00b", "fence:x", "x:fence", "id", strings.Repeat("p", 1000), "\xff"} {
		if _, err := syncguard.Open(url, syncguard.WithKeyPrefix(prefix)); err == nil {
			t.Errorf("%.20q", prefix)
		} else {
			is(t, err, syncguard.ErrInvalidArgument)
		}
	}
	// 30: prefixes that nest name the same place; the documentation says that they must not.
	inner := lock(t, open(t, url, syncguard.WithKeyPrefix("app:x")), "foo")
	_, err = open(t, url, syncguard.WithKeyPrefix("app")).TryLock(background, "x:foo")
	if err == nil {
		t.Fatal("two holders of one place")
	}
	must(t, inner.Release(background))
}

// 31, 32: table names.
func TestTableNames(t *testing.T) {
	url := postgres(t).url()
	for i, bad := range [][]syncguard.Option{
		{syncguard.WithTableName("")},
		{syncguard.WithTableName(strings.Repeat("t", 64))},
		{syncguard.WithTableName("a.b.c")},
		{syncguard.WithTableName(`a"b`)},
		{syncguard.WithTableName("a;b")},
		{syncguard.WithTableName("tä")},
		{syncguard.WithTableName("a\x00b")},
		{syncguard.WithTableName("same"), syncguard.WithFenceTableName("same")},
		{syncguard.WithTableName("same"), syncguard.WithFenceTableName("SAME")},
		{syncguard.WithSchema(`s"x`)},
	} {
		if _, err := syncguard.Open(url, bad...); err == nil {
			t.Errorf("number %d was accepted", i)
		} else {
			is(t, err, syncguard.ErrInvalidArgument)
		}
	}
	for _, names := range [][2]string{{"order", "user"}, {"MyLocks", "MyFences"}} {
		client := open(t, url, syncguard.WithTableName(names[0]), syncguard.WithFenceTableName(names[1]))
		guard := lock(t, client, "k")
		if n := postgres(t).sql(t, fmt.Sprintf(`select count(*) from "%s"`, names[0])); n != "1" {
			t.Fatal(n)
		}
		must(t, guard.Release(background))
	}
}

// 34, 35: URLs.
func TestURLs(t *testing.T) {
	for _, url := range []string{
		"", "redis://:hunter2@host:port/", "redis://:hunter2@host:65536/", "http://user:hunter2@host/", "redis://:hunter2@host/?what=1",
		"redis://:hunter2@/x%00", "redis://:hunter2%@host/", "postgres://u:hunter2@host:0x/", "postgres://u:hunter2@host/db?what=1", "sqlite:",
		"redis://:hunter2@host/\xff", "nonsense",
	} {
		_, err := syncguard.Open(url)
		is(t, err, syncguard.ErrInvalidArgument)
		if strings.Contains(err.Error(), "hunter2") {
			t.Fatalf("%v", err)
		}
	}
	for _, url := range []string{"redis://:p%40ss@[::1]:6379/3", "redis+unix:///tmp/socket", "postgres://u:p%40ss@[::1]:5432/db", "redis://host"} {
		client, err := syncguard.Open(url)
		must(t, err)
		must(t, client.Close())
	}
	for _, option := range []syncguard.Option{
		syncguard.WithPoolSize(0), syncguard.WithPoolSize(-1), syncguard.WithPoolSize(1), syncguard.WithPoolSize(math.MaxInt),
		syncguard.WithOperationTimeout(0), syncguard.WithConnectTimeout(-1), syncguard.WithDisposeTimeout(math.MaxInt64), syncguard.WithTLSCAFile("a\x00b"),
	} {
		if _, err := syncguard.Open("redis://host", option); err == nil {
			t.Error("an option was accepted")
		} else {
			is(t, err, syncguard.ErrInvalidArgument)
		}
	}
}
