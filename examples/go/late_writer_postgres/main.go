// A holder that may be paused past its lease, and then writes to Postgres, with database/sql: late_writer_postgres URL. The gate in its own
// transaction refuses it.
//
// It says "holding" with its fence and waits for a line. Stop it now (kill -STOP), wait until the lease of two seconds is over, start
// another one and let it write, then let the first one go on (kill -CONT) and write: it says "refused".
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lib/pq"
	syncguard "github.com/syncguard/syncguard/ffi/go"
)

func main() {
	url := "postgres://localhost/postgres"
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
	// Once, by the role that owns the schema. The gate is where the data is; the locks may be anywhere.
	if err := client.SetupSchema(ctx); err != nil {
		return err
	}
	if err := client.SetupFenceGate(ctx); err != nil {
		return err
	}
	gate, err := syncguard.NewPostgresGate("public", "")
	if err != nil {
		return err
	}
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS report (text text)"); err != nil {
		return err
	}
	guard, err := client.Lock(ctx, "report", syncguard.WithTTL(2*time.Second), syncguard.WithAcquireTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer guard.Release(ctx)
	fmt.Println("holding", guard.Fence())
	input := bufio.NewScanner(os.Stdin)
	input.Scan()
	// The pause was here. No check of the lock itself could help: another pause may come right after it.
	err = write(ctx, db, gate, guard.FenceNumber(), input.Text())
	var refused *pq.Error
	switch {
	case err == nil:
		fmt.Println("written")
	case errors.As(err, &refused) && refused.Code == "SGG01":
		fmt.Println("refused")
	default:
		return err
	}
	return nil
}

// Passes the gate and writes, in one transaction. The SQLSTATE SGG01: a newer holder has written.
func write(ctx context.Context, db *sql.DB, gate syncguard.PostgresGate, fence uint64, text string) error {
	work, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer work.Rollback() // does nothing after a commit
	if _, err := work.ExecContext(ctx, gate.Pass, "report", int64(fence)); err != nil {
		return err
	}
	if _, err := work.ExecContext(ctx, "DELETE FROM report"); err != nil {
		return err
	}
	if _, err := work.ExecContext(ctx, "INSERT INTO report VALUES ($1)", text); err != nil {
		return err
	}
	return work.Commit()
}
