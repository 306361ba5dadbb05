//go:build cgo

package syncguard

// Client: opening, closing, and the calls that concern the store as a whole. Uses call.go, handle.go and held_guards.go.

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	// The library's defaults, for what bounds a call before it is in the library.
	defaultPool             = 16
	defaultOperationTimeout = 5 * time.Second
	defaultDisposeTimeout   = 5 * time.Second
)

// Client is a store of locks, opened. One for a whole program is right: it pools its connections. Its methods may be called by
// any number of goroutines at once. Copies are the same client; a zero one answers ErrClosed.
type Client struct{ c *clientState }

// clientState is what all copies of a Client share.
type clientState struct {
	handle handle
	// Two sets of slots: calls that take locks must not keep out calls that release them.
	taking, giving *slots
	// waiting is held during the short calls of goroutines that wait.
	waiting          sync.Mutex
	operationTimeout time.Duration
	disposeTimeout   time.Duration
	held             *heldGuards
	closing          chan struct{}
	// endFunctions ends the contexts of the functions that give passwords and connections.
	endFunctions context.CancelFunc
	closed       atomic.Bool
	// inLine counts the goroutines that stand in line, for tests.
	inLine atomic.Int32
}

func (c *clientState) leave() { c.free(c.handle.leave()) }

func (c *clientState) close(background bool) {
	c.endFunctions()
	c.free(c.handle.close(background))
}

func (c *clientState) free(last lastUse) {
	switch {
	case last.ptr == nil:
	case last.background:
		go cClientFree(cClient(last.ptr))
	default:
		cClientFree(cClient(last.ptr))
	}
}

// Open opens the store that url names: redis://, rediss://, redis+unix://, postgres://, postgresql://, sqlite:PATH. It parses and
// checks only; connections are made when first needed.
//
// A bad url or option is ErrInvalidArgument; the message never holds a password.
func Open(url string, options ...Option) (*Client, error) {
	var o clientOptions
	for _, option := range options {
		if option != nil {
			option(&o)
		}
	}
	if o.err != nil {
		return nil, o.err
	}
	// The library forgets the id when no callback can come any more, also if opening fails.
	var id uintptr
	pool, timeout := defaultPool, defaultOperationTimeout
	if o.pool != 0 {
		pool = int(o.pool)
	}
	if o.operation != 0 {
		timeout = time.Duration(o.operation) * time.Millisecond
	}
	ctx, endFunctions := context.WithCancel(context.Background())
	o.hooks.ctx, o.hooks.timeout = ctx, timeout
	if o.hooks.any() {
		id = registry.add(&o.hooks)
	}
	opened, err := cOpen(url, &o, id)
	if err != nil {
		endFunctions()
		return nil, err
	}
	dispose := defaultDisposeTimeout
	if o.dispose != 0 {
		dispose = time.Duration(o.dispose) * time.Millisecond
	}
	c := &clientState{
		handle:           handle{ptr: unsafe.Pointer(opened)},
		taking:           newSlots(pool),
		giving:           newSlots(pool),
		operationTimeout: timeout,
		disposeTimeout:   dispose,
		held:             &heldGuards{},
		closing:          make(chan struct{}),
		endFunctions:     endFunctions,
	}
	runtime.SetFinalizer(c, func(c *clientState) { c.close(true) })
	return &Client{c}, nil
}

// Close closes the client. Calls that have begun go on to their end, and waits end with ErrClosed. The contexts of guards that are still held
// end too, with ErrClosed, and Close waits for their release within the dispose timeout (5 s, see [WithDisposeTimeout]). The locks of
// those that are not released by then are no longer renewed: they are free when released, or when their ttl has passed, never while
// their work runs within it. Closing again does nothing. The error is always nil.
func (c *Client) Close() error {
	if c == nil || c.c == nil {
		return nil
	}
	if c.c.closed.CompareAndSwap(false, true) {
		runtime.SetFinalizer(c.c, nil)
		close(c.c.closing)
		if !c.c.held.close(c.c.disposeTimeout) {
			if _, p := c.enter(); p != nil {
				cStopRenewing(p)
				c.c.leave()
			}
		}
		c.c.close(false)
	}
	return nil
}

// Backend says which store it is: "redis", "postgres" or "sqlite"; empty once closed.
func (c *Client) Backend() string {
	inner, p := c.enter()
	if p == nil {
		return ""
	}
	defer inner.leave()
	return cBackend(p)
}

// TimeAuthority is whose clock decides when a lease ends. The numbers are those of the C header and never change; a later version may
// have more.
type TimeAuthority int32

// The clocks.
const (
	// TimeUnknown: the client is closed, or the library has no name for it.
	TimeUnknown TimeAuthority = 0
	// TimeServer: the store's own.
	TimeServer TimeAuthority = 1
	// TimeClient: that of the client which looks. The clocks of all clients must agree to within a second.
	TimeClient TimeAuthority = 2
)

// String gives the name of the clock, such as "server".
func (t TimeAuthority) String() string {
	switch t {
	case TimeServer:
		return "server"
	case TimeClient:
		return "client"
	}
	return "unknown"
}

// Capabilities is what a store is, and what it can promise.
type Capabilities struct {
	// Backend is "redis", "postgres" or "sqlite".
	Backend string
	// SupportsFencing says whether grants carry fencing tokens.
	SupportsFencing bool
	TimeAuthority   TimeAuthority
	// FenceSource is where the fences that this client takes come from.
	FenceSource FenceSource
}

// FenceSource is where the fences of a client come from. The numbers are those of the C header and never change.
type FenceSource int32

// The sources.
const (
	// FencesUnknown: the client is closed, or the library has a source that this version does not name.
	FencesUnknown FenceSource = 0
	// FencesCounter: the stored counter of the key, plus one.
	FencesCounter FenceSource = 1
	// FencesClock: the larger of that and the store's time in Unix milliseconds ([WithClockFences]).
	FencesClock FenceSource = 2
)

// String gives the name of the source, as in a URL: "counter" or "clock".
func (s FenceSource) String() string {
	switch s {
	case FencesCounter:
		return "counter"
	case FencesClock:
		return "clock"
	}
	return "unknown"
}

// Capabilities says what the store is, without any I/O; the zero value once the client is closed.
func (c *Client) Capabilities() Capabilities {
	inner, p := c.enter()
	if p == nil {
		return Capabilities{}
	}
	defer inner.leave()
	return cCapabilities(p)
}

// EventsDropped says how many events the callback of [WithEvents] was not told of, because it was too slow; 0 without it, and once
// closed. It does not count what a full channel of [WithEventChannel] did not take.
func (c *Client) EventsDropped() uint64 {
	inner, p := c.enter()
	if p == nil {
		return 0
	}
	defer inner.leave()
	return cEventsDropped(p)
}

// SetupSchema creates what the store needs: tables and functions. It may be repeated, and run by many processes at once; in
// Redis there is nothing to do.
func (c *Client) SetupSchema(ctx context.Context) error {
	return c.call(ctx, func(p cClient, token cCancel) *Error { return cSetupSchema(p, token) })
}

// Check tells whether the store is reachable, allowed, set up and safely configured. What is not safe, but works, goes to
// [WithWarnings], or to stderr; that has returned, or the lines are written, when Check returns. A hook that hangs delays it by the
// operation timeout at the most.
func (c *Client) Check(ctx context.Context) error {
	_, err := c.CheckReport(ctx)
	return err
}

// CheckReport tells how many warnings [Client.CheckReport] found and delivered.
type CheckReport struct {
	// Warnings is how many there were.
	Warnings int
	// Undelivered is how many of them the hook, or stderr, had not accepted when the operation timeout was over.
	Undelivered int
}

// CheckReport does what Check does, and says how many warnings there were and how many of them were not delivered.
func (c *Client) CheckReport(ctx context.Context) (CheckReport, error) {
	var report CheckReport
	err := c.call(ctx, func(p cClient, token cCancel) (err *Error) {
		report, err = cCheck(p, token)
		return err
	})
	return report, err
}

// PurgeExpired removes up to limit locks that expired more than two seconds ago, and says how many; never a live one and never a
// fence counter. Redis does that by itself.
func (c *Client) PurgeExpired(ctx context.Context, limit int) (int, error) {
	if limit < 0 || int64(limit) > math.MaxUint32 {
		return 0, invalid("the limit is not a number of locks")
	}
	var purged int64
	err := c.call(ctx, func(p cClient, token cCancel) (err *Error) {
		purged, err = cPurge(p, uint32(limit), token)
		return err
	})
	return int(purged), err
}

// enter gives the C client until inner.leave, or nil if it is closed or was never opened.
func (c *Client) enter() (*clientState, cClient) {
	if c == nil || c.c == nil {
		return nil, nil
	}
	return c.c, cClient(c.c.handle.enter())
}

// call makes one bounded call that ends with ctx.
func (c *Client) call(ctx context.Context, do func(cClient, cCancel) *Error) error {
	inner, p := c.enter()
	if p == nil {
		return ErrClosed
	}
	defer inner.leave()
	return asError(inner.giving.bounded(ctx, inner.operationTimeout, func(token cCancel) *Error { return do(p, token) }))
}

// bounded makes one call in a slot, under a watcher. A nil ctx never ends.
func (s *slots) bounded(ctx context.Context, timeout time.Duration, do func(cCancel) *Error) *Error {
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Err() != nil {
		return abortedBy(ctx, "", 0)
	}
	limit, ok := s.enter(ctx, time.Time{}, timeout)
	if !ok {
		return noSlot(ctx)
	}
	defer s.leave()
	w := watch(ctx, limit)
	defer w.stop()
	return withTimeoutError(ctx, do(w.token))
}

// noSlot is the error of a call that got no slot.
func noSlot(ctx context.Context) *Error {
	if ctx.Err() != nil {
		return abortedBy(ctx, "", 0)
	}
	return &Error{Code: RateLimited, Message: "all calls that this client may make at once are waiting for the store"}
}

// Version is the version of the library that runs, such as "0.1.0".
func Version() string { return versionString() }

// HashKey is the display hash of a key, as it stands in errors, events and lookups: 24 hex digits. It is not for security.
func HashKey(key string) (string, error) {
	hash, err := cHashKey(key)
	return hash, asError(err)
}

// ValidateLockID tells whether a text is a lock id: exactly 22 of [A-Za-z0-9_-]. The error does not repeat it.
func ValidateLockID(lockID string) error { return asError(cValidateLockID(lockID)) }
