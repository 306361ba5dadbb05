//go:build cgo

package syncguard

// The options of clients and locks, checked when they are given. Uses cgo.go and errors.go.

import (
	"context"
	"math"
	"net"
	"strings"
	"time"
)

// Forever as an acquire timeout: wait until the context ends.
const Forever = time.Duration(math.MaxInt64)

// Backoff is how the delay between attempts grows.
type Backoff int32

// The kinds of backoff.
const (
	// Exponential doubles with every attempt, up to the larger of the base delay and 2 s. The default.
	Exponential Backoff = 1
	// Fixed stays as it is.
	Fixed Backoff = 2
)

// Jitter is how much of the delay between attempts is random, so that waiters do not come back together.
type Jitter int32

// The kinds of jitter.
const (
	// EqualJitter: half of the delay is fixed, half is random. The default.
	EqualJitter Jitter = 1
	// FullJitter: all of the delay is random.
	FullJitter Jitter = 2
	// NoJitter: the delay is as computed.
	NoJitter Jitter = 3
)

// ReleaseError is a release that failed and that no call could report: of a guard that was collected or abandoned, or in the undoing of a
// lock whose grant never arrived. Key and lock id are raw: keep them out of logs.
type ReleaseError struct {
	Err    error
	Key    string
	LockID string
	// Source is which part of the library tried it.
	Source ReleaseSource
}

// ReleaseSource is which part of the library tried a release that has no caller to answer to. A later version may have more.
type ReleaseSource string

// The sources of a [ReleaseError].
const (
	// ReleaseDrop: a guard was collected, or its client closed.
	ReleaseDrop ReleaseSource = "drop"
	// ReleaseUndo: the undoing of a lock whose grant never arrived.
	ReleaseUndo ReleaseSource = "undo"
)

// LostLock is a guard that was lost, as the callback of [WithLosses] gets it. Key and lock id are raw: think before you log them.
type LostLock struct {
	// Err is what the guard's context ends with: errors.Is finds ErrLost, and the Reason of the [Error] says why.
	Err    error
	Key    string
	LockID string
	Fence  uint64
	// Held is how long the lock was held.
	Held time.Duration
}

// Option is a setting of a client, for [Open].
type Option func(*clientOptions)

type clientOptions struct {
	prefix, schema, table, fenceTable, caFile *string
	certFile, keyFile                         *string
	pool, connect, operation, dispose         uint32
	cleanup, raw                              bool
	fences                                    int32
	hooks                                     clientHooks
	err                                       error
}

// clientHooks is what the library finds a client's callbacks by.
type clientHooks struct {
	releaseError func(ReleaseError)
	event        func(Event)
	warning      func(string)
	lost         func(LostLock)
	password     func(context.Context) (string, error)
	connect      func(ctx context.Context, host string, port uint16) (net.Conn, error)
	// ctx ends when the client is closed; timeout bounds one question for a password.
	ctx     context.Context
	timeout time.Duration
}

// any tells whether there is a callback.
func (h *clientHooks) any() bool {
	return h.releaseError != nil || h.event != nil || h.warning != nil || h.lost != nil || h.password != nil || h.connect != nil
}

// WithKeyPrefix sets what stands before every key in Redis. Default "syncguard". Prefixes of clients that share a database must
// not nest.
func WithKeyPrefix(prefix string) Option {
	return text("key prefix", prefix, func(o *clientOptions) **string { return &o.prefix })
}

// WithSchema sets the schema of the tables in Postgres. Default: the connection's own.
func WithSchema(schema string) Option {
	return text("schema", schema, func(o *clientOptions) **string { return &o.schema })
}

// WithTableName sets the table of locks in Postgres. Default "syncguard_locks".
func WithTableName(name string) Option {
	return text("table name", name, func(o *clientOptions) **string { return &o.table })
}

// WithFenceTableName sets the table of fence counters in Postgres. Default "syncguard_fence_counters".
func WithFenceTableName(name string) Option {
	return text("fence table name", name, func(o *clientOptions) **string { return &o.fenceTable })
}

// WithTLSCAFile sets a PEM file with the roots to trust. Default: the system's.
func WithTLSCAFile(path string) Option {
	return text("path of the CA file", path, func(o *clientOptions) **string { return &o.caFile })
}

// WithTLSClientCert sets PEM files with the certificate that the client shows the server, and with its key, without a passphrase. They are
// read before every connection, so that they may be replaced. A key that other users may read is refused: 0600 or stricter, or 0640 or
// stricter if it is root's. `sslcert` and `sslkey` in a Postgres URL win over it.
func WithTLSClientCert(certFile, keyFile string) Option {
	cert := text("path of the client certificate", certFile, func(o *clientOptions) **string { return &o.certFile })
	key := text("path of the client key", keyFile, func(o *clientOptions) **string { return &o.keyFile })
	return func(o *clientOptions) {
		cert(o)
		key(o)
	}
}

// WithPassword sets a function that gives the password, for one that changes: it is asked before every connection is made, and the URL
// names the user and no password. One call at a time: connections that are to be made meanwhile wait for the same answer. The context
// ends with the operation timeout, and when the client is closed; a function that does not end with it costs each call its own time, and
// is not called again before it has returned. An error, an answer with a NUL or one of 65536 bytes is ErrServiceUnavailable; neither the
// answer nor the error is shown, so tell the error yourself.
func WithPassword(provider func(ctx context.Context) (string, error)) Option {
	return func(o *clientOptions) { o.hooks.password = provider }
}

// WithConnector sets a function that makes every connection: through a tunnel or a proxy, or with a socket that a supervisor gives. It is
// given the host as the URL or a server names it (the path of a unix socket with port 0). What it returns must be a socket of the system,
// as a [net.TCPConn] or a [net.UnixConn] is: it needs the method File. The library takes a copy of the descriptor, closes the net.Conn, and
// logs in over the copy, with TLS if the URL asks for that. The context ends with the call that wants the connection, and when the client
// is closed. A function that hangs costs the call its time; until it has returned no other one is begun to the same server.
func WithConnector(connect func(ctx context.Context, host string, port uint16) (net.Conn, error)) Option {
	return func(o *clientOptions) { o.hooks.connect = connect }
}

func text(name, value string, field func(*clientOptions) **string) Option {
	return func(o *clientOptions) {
		if strings.ContainsRune(value, 0) {
			o.refuse(invalid("the %s contains U+0000", name))
			return
		}
		*field(o) = &value
	}
}

// WithPoolSize sets how many connections there may be, at least 2. Default 16. It also bounds how many calls of this client are
// in the library at once, and so how many threads Go starts for them.
func WithPoolSize(n int) Option {
	return func(o *clientOptions) {
		if n < 1 || n >= math.MaxInt32 {
			o.refuse(invalid("the pool size is not a number of connections"))
			return
		}
		o.pool = uint32(n)
	}
}

// WithConnectTimeout sets how long connecting may take. Default 2 s.
func WithConnectTimeout(d time.Duration) Option {
	return bound("connect timeout", d, func(o *clientOptions) *uint32 { return &o.connect })
}

// WithOperationTimeout sets how long every single operation may take, connecting included. Default 5 s.
func WithOperationTimeout(d time.Duration) Option {
	return bound("operation timeout", d, func(o *clientOptions) *uint32 { return &o.operation })
}

// WithDisposeTimeout sets how long the release of a guard that was collected or abandoned may take. Default 5 s.
func WithDisposeTimeout(d time.Duration) Option {
	return bound("dispose timeout", d, func(o *clientOptions) *uint32 { return &o.dispose })
}

func bound(name string, d time.Duration, field func(*clientOptions) *uint32) Option {
	return func(o *clientOptions) {
		ms, err := millis(name, d)
		if err == nil && ms > math.MaxUint32 {
			err = invalid("the %s is too long", name)
		}
		if err != nil {
			o.refuse(err)
			return
		}
		*field(o) = uint32(ms)
	}
}

// WithCleanupInIsLocked lets IsLocked have locks removed that expired more than two seconds ago. Default off.
func WithCleanupInIsLocked() Option { return func(o *clientOptions) { o.cleanup = true } }

// WithClockFences takes fences from the store's clock: the larger of the stored counter plus one and the store's time in Unix
// milliseconds. They grow also after a failover or a restored backup has lost acknowledged writes, if every client that takes the key has
// this set, no lost fence was at or ahead of the clock of the server that goes on, and the old server grants nothing once the new one has
// begun. Default: they are counted. `fences=` in the URL wins over it.
func WithClockFences() Option { return func(o *clientOptions) { o.fences = fencesByClock } }

// WithReleaseErrors has releases reported that failed and that no call could report. The callback runs on a thread of the
// library. Default: to stderr with SYNCGUARD_DEBUG=true in the environment, else silent.
func WithReleaseErrors(callback func(ReleaseError)) Option {
	return func(o *clientOptions) { o.hooks.releaseError = callback }
}

// WithWarnings has what an operator should know reported, such as unsafe settings of the store. Default: to stderr.
func WithWarnings(callback func(message string)) Option {
	return func(o *clientOptions) { o.hooks.warning = callback }
}

// WithLosses has every guard of the client reported that is lost: at most once per guard, and not once its release has begun. The
// callback runs on a thread of the library. It comes beside the guard's own signs, [Guard.Done] and [Guard.Context], and neither
// waits for the other. Default: none.
func WithLosses(callback func(LostLock)) Option {
	return func(o *clientOptions) { o.hooks.lost = callback }
}

// WithEvents has every operation, every wait that has ended and every loss of a guard reported, one after the other on one thread. A
// slow callback delays no operation: what it cannot keep up with is dropped, and [Client.EventsDropped] counts it. Default: none, at
// no cost.
func WithEvents(callback func(Event)) Option {
	return func(o *clientOptions) { o.hooks.event = callback }
}

// WithEventChannel has every operation sent to a channel. An event that finds it full is dropped. The channel is never closed.
func WithEventChannel(events chan<- Event) Option {
	return func(o *clientOptions) {
		o.hooks.event = func(e Event) {
			select {
			case events <- e:
			default:
			}
		}
	}
}

// WithRawEvents has events carry the raw key and lock id. Any process that knows a lock id can release the lock.
func WithRawEvents() Option { return func(o *clientOptions) { o.raw = true } }

func (o *clientOptions) refuse(err error) {
	if o.err == nil {
		o.err = err
	}
}

// LockOption is how to wait for a lock and how to hold it, for Lock, TryLock and Do.
type LockOption func(*lockOptions)

type lockOptions struct {
	// raw is nil for all defaults: then there is nothing for cgo to look through. It is apart because C is given its address.
	raw *cLockOptions
	// timeout is the acquire timeout; C takes 0 for the default, so one attempt is told apart here.
	timeout *time.Duration
	once    bool
	// holder is what the guard says of itself, if hasHolder.
	holder       string
	hasHolder    bool
	releaseError func(ReleaseError)
	err          error
}

// WithTTL sets how long the lease lasts if it is not renewed: whole milliseconds, rounded up, at most ten years. Default 30 s.
func WithTTL(d time.Duration) LockOption {
	return span("ttl", d, func(o *lockOptions, ms int64) { o.raw.ttl_ms = cMillis(ms) })
}

// WithAcquireTimeout sets how long to wait at most; 0 is exactly one attempt, [Forever] is until the context ends. Default 5 s.
// Set, it lifts the default limit of ten retries.
func WithAcquireTimeout(d time.Duration) LockOption {
	return func(o *lockOptions) {
		if d < 0 {
			o.refuse(invalid("the acquire timeout is negative"))
			return
		}
		o.timeout = &d
		switch d {
		case Forever:
			o.raw.acquire_timeout_ms = -1
		default:
			o.raw.acquire_timeout_ms = cMillis(roundUp(d))
		}
	}
}

// WithMaxRetries sets how often to try again after the first attempt. Default 10, or without limit if an acquire timeout was
// set. Being woken because the lock was freed is not a retry.
func WithMaxRetries(n int) LockOption {
	return func(o *lockOptions) {
		switch {
		case n < 0:
			o.refuse(invalid("the number of retries is negative"))
			return
		case n > math.MaxInt32:
			n = math.MaxInt32
		}
		o.once = n == 0
		o.raw.max_retries = cRetries(n)
	}
}

// WithUnlimitedRetries tries again until the acquire timeout, however often.
func WithUnlimitedRetries() LockOption {
	return func(o *lockOptions) {
		o.once = false
		o.raw.max_retries = -1
	}
}

// WithRetryDelay sets the delay before the first retry; at least 1 ms. Default 100 ms.
func WithRetryDelay(d time.Duration) LockOption {
	return func(o *lockOptions) {
		ms := roundUp(d)
		switch {
		case d < 0:
			o.refuse(invalid("the retry delay is negative"))
			return
		case ms < 1:
			ms = 1
		case ms > math.MaxUint32:
			ms = math.MaxUint32
		}
		o.raw.retry_delay_ms = cDelay(ms)
	}
}

// WithBackoff sets how the delay grows. Default [Exponential].
func WithBackoff(b Backoff) LockOption {
	return func(o *lockOptions) {
		if b != Exponential && b != Fixed {
			o.refuse(invalid("no such backoff"))
		}
		o.raw.backoff = cEnum(b)
	}
}

// WithJitter sets how much of the delay is random. Default [EqualJitter].
func WithJitter(j Jitter) LockOption {
	return func(o *lockOptions) {
		if j != EqualJitter && j != FullJitter && j != NoJitter {
			o.refuse(invalid("no such jitter"))
		}
		o.raw.jitter = cEnum(j)
	}
}

// WithHeartbeat sets how often the guard renews, less than the ttl. Default a third of the ttl.
func WithHeartbeat(every time.Duration) LockOption {
	return span("heartbeat", every, func(o *lockOptions, ms int64) { o.raw.heartbeat_ms = cMillis(ms) })
}

// WithoutHeartbeat never renews: the lease ends with its ttl unless you extend it.
func WithoutHeartbeat() LockOption { return func(o *lockOptions) { o.raw.heartbeat_ms = -1 } }

// WithMaxHold stops renewing this long after the grant, so that a worker that hangs does not hold the lock for ever. Default
// none.
func WithMaxHold(d time.Duration) LockOption {
	return span("max hold", d, func(o *lockOptions, ms int64) { o.raw.max_hold_ms = cMillis(ms) })
}

// maxHolder is the longest text of a holder, in bytes.
const maxHolder = 200

// WithHolder sets what is stored beside the lock for people that look at it: at most 200 bytes of printable UTF-8. Default
// host/pid/program; an empty text stores nothing. Any program that can write to the store can write any text.
func WithHolder(text string) LockOption {
	return func(o *lockOptions) {
		switch {
		case len(text) > maxHolder:
			o.refuse(invalid("the holder text is longer than %d bytes", maxHolder))
		case strings.ContainsRune(text, 0):
			o.refuse(invalid("the holder text contains U+0000"))
		default:
			o.holder, o.hasHolder = text, true
		}
	}
}

// WithGuardDisposeTimeout is [WithDisposeTimeout] for one guard.
func WithGuardDisposeTimeout(d time.Duration) LockOption {
	return func(o *lockOptions) {
		ms, err := millis("dispose timeout", d)
		if err == nil && ms > math.MaxUint32 {
			err = invalid("the dispose timeout is too long")
		}
		if err != nil {
			o.refuse(err)
			return
		}
		o.raw.dispose_timeout_ms = cDelay(ms)
	}
}

// WithGuardReleaseErrors is [WithReleaseErrors] for one guard.
func WithGuardReleaseErrors(callback func(ReleaseError)) LockOption {
	return func(o *lockOptions) { o.releaseError = callback }
}

func span(name string, d time.Duration, set func(*lockOptions, int64)) LockOption {
	return func(o *lockOptions) {
		ms, err := millis(name, d)
		if err != nil {
			o.refuse(err)
			return
		}
		set(o, ms)
	}
}

func (o *lockOptions) refuse(err error) {
	if o.err == nil {
		o.err = err
	}
}

// single tells whether the options ask for one attempt and no wait.
func (o *lockOptions) single() bool {
	return o.once || (o.timeout != nil && *o.timeout == 0)
}

// noOptions are all defaults; never written to.
var noOptions lockOptions

func newLockOptions(options []LockOption) (*lockOptions, error) {
	if len(options) == 0 {
		return &noOptions, nil
	}
	o := &lockOptions{raw: lockDefaults()}
	for _, option := range options {
		if option != nil {
			option(o)
		}
	}
	return o, o.err
}

// millis is a duration in whole milliseconds, for C, where 0 would be the default.
func millis(name string, d time.Duration) (int64, error) {
	if d <= 0 {
		return 0, invalid("the %s is not longer than zero", name)
	}
	return roundUp(d), nil
}

func roundUp(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
