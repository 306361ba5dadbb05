//go:build cgo

package syncguard

// Gates: what refuses a former holder at the resource itself. Uses cgo.go and client.go.

import "context"

// SetupFenceGate creates the gate in the store of the client, for data that is kept there too: in Postgres a table and the function
// syncguard_pass(resource, fence), in SQLite a table; Redis needs nothing. It may be repeated, and run by many processes at once.
func (c *Client) SetupFenceGate(ctx context.Context) error {
	return c.call(ctx, func(p cClient, token cCancel) *Error { return cSetupFenceGate(p, token) })
}

// FencedSet stores a value under a name in Redis if the fence passes the gate of that name, in one step. The name is a key of your own
// outside of the client's key prefix, where every name belongs to a lock; its gate is that name with ":fence" behind it. ErrRefused if a newer holder has written.
func (c *Client) FencedSet(ctx context.Context, name string, value []byte, fence uint64) error {
	text := string(value)
	return c.call(ctx, func(p cClient, token cCancel) *Error { return cFencedSet(p, name, text, fence, token) })
}

// NewestFence is the newest fence that has passed the gate of a resource, for operators. ErrAbsent if none has.
func (c *Client) NewestFence(ctx context.Context, resource string) (uint64, error) {
	var newest uint64
	err := c.call(ctx, func(p cClient, token cCancel) (err *Error) {
		newest, err = cGateNewest(p, resource, token)
		return err
	})
	return newest, err
}

// ResetFenceGate forgets the newest fence of a resource if it is seen, so that any fence passes next. Only for an operator that has made sure
// that no former holder is left. ErrAbsent if it is another one.
func (c *Client) ResetFenceGate(ctx context.Context, resource string, seen uint64) error {
	return c.call(ctx, func(p cClient, token cCancel) *Error { return cGateReset(p, resource, seen, token) })
}

// RedisGated is a script of yours behind the check. Give it [RedisGateKey] and then its own keys, the fence and then its own arguments; it
// finds its own ones in KEYS and ARGV as if it were alone. A former holder gets an error reply that begins with SYNCGUARD_STALE.
func RedisGated(script string) string { return cGateText(gateRedisPrelude) + script }

// RedisGateKey is the key that holds the newest fence of a name.
func RedisGateKey(name string) string { return name + ":fence" }

// PostgresPass is the first statement of a transaction in Postgres. $1: the resource, $2: the fence. It raises the SQLSTATE SGG01 for a
// former holder, SGG02 for what is no fence or no name of a resource, and 42883 where the set-up is missing: call [Client.SetupFenceGate].
// [NewPostgresGate] has it with the schema.
func PostgresPass() string { return cGateText(gatePostgresPass) }

// PostgresShare is the first statement of a transaction where locks and data share a database of Postgres. $1: "fence:" and the key of
// the lock, $2: the fence. No row: refused. The next grant of the key waits until the transaction ends.
func PostgresShare() string { return cGateText(gatePostgresShare) }

// SQLiteGateSetup creates the gate in a database of SQLite. It may be repeated.
func SQLiteGateSetup() string { return cGateText(gateSQLiteSetup) }

// SQLitePass is the first statement of a transaction in SQLite. ?1: the resource, ?2: the fence. For a former holder it fails with
// "syncguard: refused", and the transaction is rolled back. Stop then: the connection is in autocommit, and what follows would be
// committed statement by statement. "no such table: syncguard_fence_gates": the set-up is missing.
func SQLitePass() string { return cGateText(gateSQLitePass) }

// SQLiteNewestFence is the newest fence of the resource ?1, for operators.
func SQLiteNewestFence() string { return cGateText(gateSQLiteNewest) }

// SQLiteResetGate forgets the newest fence of the resource ?1 if it is ?2.
func SQLiteResetGate() string { return cGateText(gateSQLiteReset) }

// PostgresGate is the SQL of a gate in one schema of Postgres. The schema stands in it, so that no other one in the search_path of a
// session can come before it.
type PostgresGate struct {
	// Setup creates the table and the function in an existing schema.
	Setup string
	// Pass is the first statement of a transaction, as [PostgresPass].
	Pass string
	// Share is the first statement of a transaction where locks and data share a database, as [PostgresShare].
	Share string
	// Newest is the newest fence of the resource $1.
	Newest string
	// Reset forgets the newest fence of the resource $1 if it is $2, and counts.
	Reset string
}

// NewPostgresGate is the SQL for a gate in this schema. fenceTable is for Share: the fence table name of the clients that lock; "" is the
// default. ErrInvalidArgument for a bad name.
func NewPostgresGate(schema, fenceTable string) (PostgresGate, error) {
	var gate PostgresGate
	for which, text := range map[int32]*string{
		gatePostgresSetup:  &gate.Setup,
		gatePostgresPass:   &gate.Pass,
		gatePostgresShare:  &gate.Share,
		gatePostgresNewest: &gate.Newest,
		gatePostgresReset:  &gate.Reset,
	} {
		found, err := cGatePostgresText(which, schema, fenceTable)
		if err != nil {
			return PostgresGate{}, err
		}
		*text = found
	}
	return gate, nil
}
