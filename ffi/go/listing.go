//go:build cgo

package syncguard

// Live locks page by page, and what a check found line by line. Uses client.go.

import (
	"context"
	"math"
)

// ListOptions says which locks to list, and how many stored entries one call may examine. The zero value lists all locks from the
// beginning.
type ListOptions struct {
	// Prefix is what keys must begin with.
	Prefix string
	// Examine is about how many stored entries one call examines: 1 to 10000, or 0 for 500. A page may be empty although more follow.
	Examine int
	// After is the Next of the page before, with the same Prefix.
	After string
}

// ListPage is a page of live locks. A lock can be on two pages, and one that is taken or released meanwhile can be missing.
type ListPage struct {
	Locks []LockInfo
	// Next is where the next page begins; empty if this is the last one. It may hold a raw key.
	Next string
}

// ListPageRaw is a page of live locks with their raw keys and lock ids.
type ListPageRaw struct {
	Locks []LockInfoRaw
	// Next is where the next page begins; empty if this is the last one. It may hold a raw key.
	Next string
}

// List finds live locks, page by page. For people and dashboards: do not decide by it before a write. On Redis the user needs the right
// to SCAN.
func (c *Client) List(ctx context.Context, options ListOptions) (ListPage, error) {
	raw, next, err := c.list(ctx, options, false)
	var locks []LockInfo
	for _, lock := range raw {
		locks = append(locks, lock.LockInfo)
	}
	return ListPage{Locks: locks, Next: next}, err
}

// ListRaw is List with raw keys, lock ids and texts of holders: keep them out of logs.
func (c *Client) ListRaw(ctx context.Context, options ListOptions) (ListPageRaw, error) {
	locks, next, err := c.list(ctx, options, true)
	return ListPageRaw{Locks: locks, Next: next}, err
}

func (c *Client) list(ctx context.Context, options ListOptions, raw bool) (locks []LockInfoRaw, next string, err error) {
	if options.Examine < 0 || int64(options.Examine) > math.MaxUint32 {
		return nil, "", invalid("the number of entries to examine is not one")
	}
	for _, r := range options.After {
		if r == 0 {
			return nil, "", invalid("the text of After contains U+0000")
		}
	}
	err = c.call(ctx, func(p cClient, token cCancel) (err *Error) {
		locks, next, err = cList(p, options, raw, token)
		return err
	})
	return locks, next, err
}

// CheckLevel is how serious a [Finding] is. The numbers are those of the C header and never change; a later version may have more.
type CheckLevel int32

// The levels.
const (
	CheckOK CheckLevel = 0
	// CheckWarning: locks work; something about them is not safe, or slow.
	CheckWarning CheckLevel = 1
	// CheckError: locks do not work.
	CheckError CheckLevel = 2
)

// String gives a short name: "ok", "warning" or "error".
func (l CheckLevel) String() string {
	names := [...]string{"ok", "warning", "error"}
	if l < 0 || int(l) >= len(names) {
		return "unknown"
	}
	return names[l]
}

// CheckSubject is what a [Finding] is about. The numbers are those of the C header and never change; a later version may have more.
type CheckSubject int32

// The subjects.
const (
	// CheckReachable: whether the store answers.
	CheckReachable CheckSubject = 1
	// CheckAllowed: whether it accepts the user, and the user has every right that locks need.
	CheckAllowed CheckSubject = 2
	// CheckSetUp: whether tables and functions are there.
	CheckSetUp CheckSubject = 3
	// CheckSettings: whether its settings keep locks and fences.
	CheckSettings CheckSubject = 4
	// CheckClock: which clock decides about leases.
	CheckClock CheckSubject = 5
	// CheckLatency: how long a cycle of acquire and release takes.
	CheckLatency CheckSubject = 6
	// CheckVersion: which version the server has.
	CheckVersion CheckSubject = 7
	// CheckDurable: whether fences survive a crash of the server.
	CheckDurable CheckSubject = 8
	// CheckEvicting: whether the store keeps locks until their end, whatever its memory does.
	CheckEvicting CheckSubject = 9
)

// String gives a short name, such as "set-up".
func (s CheckSubject) String() string {
	names := [...]string{"unknown", "reachable", "allowed", "set-up", "settings", "clock", "latency", "version", "durable", "evicting"}
	if s < 0 || int(s) >= len(names) {
		return names[0]
	}
	return names[s]
}

// Finding is one line of a [StoreReport]. No key, id or password is in it.
type Finding struct {
	Subject CheckSubject
	Level   CheckLevel
	// Text is what was found.
	Text string
	// Advice is what to do about it; empty where there is nothing to do.
	Advice string
}

// StoreReport is what [Client.Report] found.
type StoreReport struct {
	// Level is the most serious one of all findings.
	Level CheckLevel
	// Code is that of the error that [Client.Check] would answer; 0 if locks work.
	Code     Code
	Findings []Finding
}

// Report checks the store as [Client.Check] does, tries ten cycles on a key of its own, and says line by line what it found. Trouble of
// the store is a finding and no error. Warnings go to [WithWarnings] too. Each of its calls is bounded by the operation timeout; once it
// has begun, the context does not end it.
func (c *Client) Report(ctx context.Context) (StoreReport, error) {
	var report StoreReport
	err := c.call(ctx, func(p cClient, _ cCancel) (err *Error) {
		report, err = cReport(p)
		return err
	})
	return report, err
}

// IsWaitedFor tells whether callers of this client wait for the lock of a key now: its holder may then end its work sooner. Callers of
// other clients and processes are not counted. No I/O.
func (c *Client) IsWaitedFor(key string) (bool, error) {
	inner, p := c.enter()
	if p == nil {
		return false, ErrClosed
	}
	defer inner.leave()
	yes, err := cIsWaitedFor(p, key)
	return yes, asError(err)
}
