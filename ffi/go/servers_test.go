package syncguard_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// Rows 33, 39 and 40: real servers that are set up in another way than ours.

const (
	goodLocks = "key text primary key, lock_id text not null unique, expires_at_ms bigint not null, acquired_at_ms bigint not null, " +
		"fence text not null, user_key text not null"
	goodFences = "fence_key text primary key, fence bigint not null default 0, key_debug text"
)

// 33: a table that is there and is another one is refused with the reason; and so is one that is not there.
func TestForeignTables(t *testing.T) {
	server := postgres(t)
	server.sql(t, "drop role if exists stranger; create role stranger login")
	replaced := func(old, new string) string { return strings.Replace(goodLocks, old, new, 1) }
	for _, row := range []struct{ name, locks, more, reason string }{
		{"columns", "a int", "", "lacks the column"},
		{"types", replaced("expires_at_ms bigint", "expires_at_ms numeric"), "", "instead of bigint"},
		{"nounique", replaced(" unique", ""), "", "no unique index"},
		{"triggers", goodLocks, "create function t() returns trigger language plpgsql as 'begin return null; end'; " +
			"create trigger t before insert on syncguard_locks for each row execute function t()", "triggers"},
		{"unlogged", goodLocks, "alter table syncguard_fence_counters set unlogged", "UNLOGGED"},
		{"view", goodLocks, "alter table syncguard_locks rename to base; create view syncguard_locks as select * from base", "not an ordinary table"},
	} {
		t.Run(row.name, func(t *testing.T) {
			schema := "wrong_" + row.name
			server.sql(t, fmt.Sprintf("drop schema if exists %s cascade; create schema %s; set search_path = %s; create table syncguard_locks (%s); "+
				"create table syncguard_fence_counters (%s); %s", schema, schema, schema, row.locks, goodFences, row.more))
			client, err := syncguard.Open(server.url(), syncguard.WithSchema(schema))
			must(t, err)
			defer client.Close()
			for _, err := range []error{client.SetupSchema(background), client.Check(background)} {
				is(t, err, syncguard.ErrInvalidArgument)
				if !strings.Contains(err.Error(), row.reason) {
					t.Fatalf("it does not say why: %v", err)
				}
			}
			_, err = client.TryLock(background, "k")
			is(t, err, syncguard.ErrInvalidArgument)
		})
	}
	t.Run("owner", func(t *testing.T) {
		open(t, server.url(), syncguard.WithSchema("of_another"))
		client, err := syncguard.Open(strings.Replace(server.url(), "postgres@", "stranger@", 1), syncguard.WithSchema("of_another"))
		must(t, err)
		defer client.Close()
		is(t, client.Check(background), syncguard.ErrAuthFailed)
		is(t, client.SetupSchema(background), syncguard.ErrAuthFailed)
		_, err = client.TryLock(background, "k")
		is(t, err, syncguard.ErrAuthFailed)
	})
	t.Run("missing", func(t *testing.T) {
		client, err := syncguard.Open(server.url(), syncguard.WithTableName("missing_locks"), syncguard.WithFenceTableName("missing_fences"))
		must(t, err)
		defer client.Close()
		_, err = client.Lock(background, "k")
		is(t, err, syncguard.ErrInvalidArgument)
		if !strings.Contains(err.Error(), "setup_schema") {
			t.Fatalf("it does not say what to do: %v", err)
		}
	})
}

// 39: servers that cannot serve now, or not everything.
func TestRedisInTrouble(t *testing.T) {
	server := startRedis(t)
	client := open(t, server.url())
	refused := func(t *testing.T, sentinel error, words string) {
		t.Helper()
		_, err := client.TryLock(background, name(t))
		is(t, err, sentinel)
		if !strings.Contains(err.Error(), words) {
			t.Fatalf("it does not say why: %v", err)
		}
	}
	works := func(t *testing.T) {
		t.Helper()
		must(t, lock(t, client, name(t)).Release(background))
	}
	works(t)
	t.Run("replica", func(t *testing.T) {
		server.cli(t, "REPLICAOF", "127.0.0.1", "1")
		refused(t, syncguard.ErrServiceUnavailable, "replica")
		server.cli(t, "REPLICAOF", "NO", "ONE")
		works(t)
	})
	t.Run("out of memory", func(t *testing.T) {
		server.cli(t, "CONFIG", "SET", "maxmemory", "1")
		refused(t, syncguard.ErrRateLimited, "maxmemory")
		server.cli(t, "CONFIG", "SET", "maxmemory", "0")
		works(t)
	})
	t.Run("misconfigured", func(t *testing.T) {
		// The snapshot cannot be written: something else has its name.
		must(t, os.Mkdir(filepath.Join(server.dir, "dump.rdb"), 0o700))
		server.cli(t, "CONFIG", "SET", "save", "3600 1000000")
		server.cli(t, "BGSAVE")
		eventually(t, "the snapshot fails", func() bool {
			return strings.Contains(server.cli(t, "INFO", "persistence"), "rdb_last_bgsave_status:err")
		})
		refused(t, syncguard.ErrServiceUnavailable, "disk")
		server.cli(t, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
		works(t)
	})
	t.Run("no scripts", func(t *testing.T) {
		server.cli(t, "ACL", "SETUSER", "bare", "on", ">pass", "~*", "&*", "+@all", "-@scripting")
		bare, err := syncguard.Open("redis+unix://bare:pass@" + server.socket())
		must(t, err)
		defer bare.Close()
		_, err = bare.TryLock(background, "k")
		is(t, err, syncguard.ErrAuthFailed)
		if strings.Contains(err.Error(), "pass@") {
			t.Fatal(err)
		}
	})
	t.Run("evicting", func(t *testing.T) {
		server.cli(t, "CONFIG", "SET", "maxmemory", "100mb")
		server.cli(t, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
		warned := make(chan string, 100)
		client := open(t, server.url(), syncguard.WithWarnings(func(text string) { warned <- text }))
		must(t, client.Check(background))
		eventually(t, "a warning", func() bool {
			select {
			case text := <-warned:
				return strings.Contains(text, "maxmemory-policy")
			default:
				return false
			}
		})
		must(t, lock(t, client, "k").Release(background))
	})
}

// The work is told of the loss, and the caller too, though the release cannot reach the store either.
func TestDoWhenTheStoreIsGone(t *testing.T) {
	for _, silent := range []bool{true, false} {
		server := startRedis(t)
		quiet := syncguard.WithReleaseErrors(func(syncguard.ReleaseError) {})
		client := open(t, server.url(), quiet)
		err := client.Do(background, "k", func(ctx context.Context, _ *syncguard.Guard) error {
			server.stop()
			select {
			case <-ctx.Done():
			case <-time.After(testLimit):
				t.Error("the loss was not noticed")
			}
			is(t, cause(ctx), syncguard.ErrLost)
			if silent {
				return nil
			}
			return ctx.Err()
		}, syncguard.WithTTL(time.Second))
		is(t, err, syncguard.ErrLost)
		if !silent {
			is(t, err, context.Canceled)
		}
	}
}

// 39: a server that reads its snapshot.
func TestRedisThatLoads(t *testing.T) {
	server := startRedis(t)
	server.cli(t, "EVAL", "for i = 1, 3000 do redis.call('SET', 'x' .. i, string.rep('y', 2000)) end", "0")
	client := open(t, server.url())
	server.cli(t, "SAVE")
	server.stop()
	must(t, os.Remove(server.socket()))
	// Each key takes 20 ms: it is at it for a minute.
	startRedisIn(t, server.dir, nil, "--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
	_, err := client.TryLock(background, "k")
	is(t, err, syncguard.ErrServiceUnavailable)
	if !strings.Contains(err.Error(), "loading") {
		t.Fatal(err)
	}
}

// 39: a node of a cluster serves keys with a tag, and says so of others.
func TestRedisCluster(t *testing.T) {
	server, _ := startRedisTCP(t, func(int) []string { return []string{"--cluster-enabled", "yes"} })
	tagged := open(t, server.url(), syncguard.WithKeyPrefix("{app}"))
	_, err := tagged.TryLock(background, "k")
	is(t, err, syncguard.ErrServiceUnavailable)
	slots := []string{"CLUSTER", "ADDSLOTS"}
	for slot := 0; slot < 16384; slot++ {
		slots = append(slots, strconv.Itoa(slot))
	}
	server.cli(t, slots...)
	eventually(t, "the cluster is up", func() bool { return strings.Contains(server.cli(t, "CLUSTER", "INFO"), "cluster_state:ok") })
	must(t, lock(t, tagged, "k").Release(background))
	_, err = open(t, server.url()).TryLock(background, "k")
	is(t, err, syncguard.ErrInvalidArgument)
	if !strings.Contains(err.Error(), "{app}") {
		t.Fatalf("it does not say what to do: %v", err)
	}
}

// 40: settings of a role that would change what a statement means.
func TestPostgresRoles(t *testing.T) {
	server := postgres(t)
	open(t, server.url(), syncguard.WithSchema("roles"))
	for i, setting := range []string{
		"default_transaction_isolation = 'serializable'", "default_transaction_read_only = on", "search_path = ''",
		"standard_conforming_strings = off", "synchronous_commit = off", "lock_timeout = 1", "statement_timeout = 1",
	} {
		t.Run(setting, func(t *testing.T) {
			role := fmt.Sprint("role", i)
			server.sql(t, fmt.Sprintf("drop role if exists %s; create role %s superuser login; alter role %s set %s", role, role, role, setting))
			client, err := syncguard.Open(strings.Replace(server.url(), "postgres@", role+"@", 1), syncguard.WithSchema("roles"))
			must(t, err)
			defer client.Close()
			key := name(t) + `'\`
			guard, err := client.Lock(background, key)
			if err != nil && strings.HasPrefix(setting, "statement_timeout") {
				// A millisecond may be over before the library has set its own.
				is(t, err, syncguard.ErrNetworkTimeout)
				return
			}
			must(t, err)
			_, err = client.TryLock(background, key)
			is(t, err, syncguard.ErrLocked)
			must(t, guard.Release(background))
		})
	}
	t.Run("read-only", func(t *testing.T) {
		server.sql(t, "drop role if exists reader; create role reader login; grant pg_read_all_data to reader")
		client, err := syncguard.Open(strings.Replace(server.url(), "postgres@", "reader@", 1), syncguard.WithSchema("roles"))
		must(t, err)
		defer client.Close()
		is(t, client.Check(background), syncguard.ErrAuthFailed)
		_, err = client.TryLock(background, "k")
		is(t, err, syncguard.ErrAuthFailed)
	})
}

// 40: a standby can be read, and says what it cannot do.
func TestPostgresStandby(t *testing.T) {
	server := startPostgres(t)
	open(t, server.url())
	client, err := syncguard.Open(server.standby(t).url())
	must(t, err)
	defer client.Close()
	_, err = client.TryLock(background, "k")
	is(t, err, syncguard.ErrServiceUnavailable)
	is(t, client.Check(background), syncguard.ErrServiceUnavailable)
	if !free(t, client, "k") {
		t.Fatal("it is not held")
	}
}

// 40: behind a pooler that gives every transaction another session.
func TestPgBouncer(t *testing.T) {
	server := postgres(t)
	client := open(t, startBouncer(t, server), syncguard.WithSchema("bounced"), syncguard.WithOperationTimeout(testLimit))
	key := name(t)
	done := make(chan error, 8)
	for i := 0; i < 8; i++ {
		go func() {
			for n := 0; n < 5; n++ {
				guard, err := client.Lock(background, key, syncguard.WithAcquireTimeout(syncguard.Forever), syncguard.WithRetryDelay(5*time.Millisecond))
				if err == nil {
					err = guard.Extend(background, time.Minute)
				}
				if err == nil {
					err = guard.Release(background)
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for i := 0; i < 8; i++ {
		must(t, <-done)
	}
	guard := lock(t, client, key)
	if guard.Fence() != "000000000000041" {
		t.Fatal(guard.Fence())
	}
	must(t, guard.Release(background))
}

// startBouncer gives the URL of a PgBouncer with three sessions for all.
func startBouncer(t *testing.T, server *postgresServer) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
	}
	for try := 0; try < 5; try++ {
		dir, port := serverDir(t), freePort(t)
		config := filepath.Join(dir, "pgbouncer.ini")
		must(t, os.WriteFile(config, []byte(fmt.Sprintf("[databases]\npostgres = user=postgres host=127.0.0.1 port=%d dbname=postgres\n[pgbouncer]\n"+
			"listen_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir = %s\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nlogfile = %s\n",
			server.port, port, dir, filepath.Join(dir, "log"))), 0o644))
		cmd := asServerUser(program, "-q", config)
		cmd.Dir = dir
		if err := start(cmd); err != nil {
			t.Fatalf("pgbouncer cannot be started, and the tests need it: %v", err)
		}
		up := false
		eventually(t, "pgbouncer answers or ends", func() bool {
			select {
			case <-ended(cmd):
				return true
			default:
			}
			// By its socket: another program may have the port.
			up = exec.Command("psql", fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d", dir, port), "-qAtc", "select 1").Run() == nil
			return up
		})
		if up {
			return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
		}
	}
	t.Fatal("pgbouncer does not start")
	return ""
}

// 40: databases that cannot keep every text.
func TestPostgresEncodings(t *testing.T) {
	server := postgres(t)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			base := "db_" + strings.ToLower(encoding)
			server.sql(t, "drop database if exists "+base+" with (force)")
			server.sql(t, fmt.Sprintf("create database %s encoding '%s' lc_collate 'C' lc_ctype 'C' template template0", base, encoding))
			client := open(t, strings.Replace(server.url(), "/postgres?", "/"+base+"?", 1))
			guard := lock(t, client, "café")
			found, err := client.LookupByIDRaw(background, guard.LockID())
			must(t, err)
			if found.Key != "café" {
				t.Fatalf("%q", found.Key)
			}
			must(t, guard.Release(background))
			guard, err = client.TryLock(background, "日本語")
			if encoding == "LATIN1" {
				is(t, err, syncguard.ErrInvalidArgument)
				return
			}
			must(t, err)
			must(t, guard.Release(background))
		})
	}
}
