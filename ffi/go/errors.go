//go:build cgo

package syncguard

// The errors of this package. Uses cgo.go for names and hashes.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code says what kind of answer or trouble an [Error] is. The numbers are those of the C header and never change.
type Code int32

// The codes.
const (
	Locked             Code = 1
	Absent             Code = 2
	Refused            Code = 3
	ServiceUnavailable Code = -1
	AuthFailed         Code = -2
	InvalidArgument    Code = -3
	RateLimited        Code = -4
	NetworkTimeout     Code = -5
	AcquisitionTimeout Code = -6
	Aborted            Code = -7
	Internal           Code = -8
	Panicked           Code = -9
	Lost               Code = -10
)

// String gives the name of the code, such as "network timeout".
func (c Code) String() string { return statusName(int32(c)) }

// What errors.Is finds in the errors of this package.
var (
	// ErrLocked: another holder has the key.
	ErrLocked = errors.New("syncguard: locked")
	// ErrAbsent: there is no such live lock; it was released, has expired, or never was.
	ErrAbsent = errors.New("syncguard: absent")
	// ErrRefused: the gate of a resource has seen a newer holder, and nothing was changed. Stop.
	ErrRefused = errors.New("syncguard: refused, a newer holder has written")
	// ErrServiceUnavailable: the store cannot be reached or cannot serve now.
	ErrServiceUnavailable = errors.New("syncguard: service unavailable")
	// ErrAuthFailed: the store refused the credentials, or they lack a right.
	ErrAuthFailed = errors.New("syncguard: auth failed")
	// ErrInvalidArgument: an argument can never work. Nothing was sent.
	ErrInvalidArgument = errors.New("syncguard: invalid argument")
	// ErrRateLimited: the store, the pool of connections or the process is full.
	ErrRateLimited = errors.New("syncguard: rate limited")
	// ErrNetworkTimeout: the operation's time was over; whether it took effect is unknown.
	ErrNetworkTimeout = errors.New("syncguard: network timeout")
	// ErrAcquisitionTimeout: the whole wait was over and another holder still had the key.
	ErrAcquisitionTimeout = errors.New("syncguard: acquisition timeout")
	// ErrAborted: the context ended the call. The context's own error is there too.
	ErrAborted = errors.New("syncguard: aborted")
	// ErrInternal: anything else, such as a foreign value under our key or a fence over its limit.
	ErrInternal = errors.New("syncguard: internal error")
	// ErrPanic: a bug of the library.
	ErrPanic = errors.New("syncguard: panic in the library")
	// ErrLost: this process can no longer count on the lock. The Reason of the [Error] says why.
	ErrLost = errors.New("syncguard: the lock was lost")

	// ErrReleased: the guard was released.
	ErrReleased = errors.New("syncguard: the guard was released")
	// ErrClosed: the client is closed, or was never opened.
	ErrClosed = errors.New("syncguard: the client is closed or was never opened")
)

var sentinels = map[Code]error{
	Locked:             ErrLocked,
	Absent:             ErrAbsent,
	Refused:            ErrRefused,
	ServiceUnavailable: ErrServiceUnavailable,
	AuthFailed:         ErrAuthFailed,
	InvalidArgument:    ErrInvalidArgument,
	RateLimited:        ErrRateLimited,
	NetworkTimeout:     ErrNetworkTimeout,
	AcquisitionTimeout: ErrAcquisitionTimeout,
	Aborted:            ErrAborted,
	Internal:           ErrInternal,
	Panicked:           ErrPanic,
	Lost:               ErrLost,
}

// LossReason says why a lock was lost. The numbers are those of the C header and never change; a later version may have more.
type LossReason int32

// The reasons.
const (
	// LossNone: the error is about something else.
	LossNone LossReason = 0
	// LossUnconfirmed: the lease ran out, by the local clock, before the store confirmed a renewal. The store may be down or slow, or this
	// process was paused.
	LossUnconfirmed LossReason = 1
	// LossMaxHold: the time of [WithMaxHold] was over, so the lock was no longer renewed, and its lease ran out.
	LossMaxHold LossReason = 2
	// LossNotRenewed: there is no heartbeat ([WithoutHeartbeat]), and the lease was not extended in time.
	LossNotRenewed LossReason = 3
	// LossRemoved: the store no longer has the lock. Another process released it, an operator deleted it, or the store lost it.
	LossRemoved LossReason = 4
	// LossHeartbeatFailed: the heartbeat panicked. A bug of the library.
	LossHeartbeatFailed LossReason = 5
	// LossForked: this is a forked child; the lock is its parent's.
	LossForked LossReason = 6
	// LossOther: a reason that the library has no number for.
	LossOther LossReason = 7
)

// String gives what happened, such as "the store no longer has it".
func (r LossReason) String() string {
	switch r {
	case LossNone:
		return "it was not lost"
	case LossUnconfirmed:
		return "its lease ran out before a renewal was confirmed"
	case LossMaxHold:
		return "max_hold was reached, so it was no longer renewed"
	case LossNotRenewed:
		return "it has no heartbeat and was not extended in time"
	case LossRemoved:
		return "the store no longer has it"
	case LossHeartbeatFailed:
		return "its heartbeat panicked"
	case LossForked:
		return "it belongs to the parent process"
	}
	return "for a reason that this version does not know"
}

// Error is what went wrong, in detail. It never holds a password, a raw key or a raw lock id, so it may be logged. Branch on it
// with errors.Is and the sentinels of this package, or with errors.As and its Code.
type Error struct {
	Code    Code
	Message string
	// KeyHash is the hash of the key concerned, as [HashKey] makes it; empty where no key is involved.
	KeyHash string
	// Attempts is how many attempts Lock made; 0 where that does not apply.
	Attempts int
	// Reason is why the lock was lost, wherever errors.Is finds ErrLost; else LossNone.
	Reason LossReason
	// MayHaveApplied says whether the call may have taken effect although it failed. After [Client.Acquire] release the LockID that it
	// answered; repeat a release or an extend; what Lock and TryLock may have left is taken back in the background.
	MayHaveApplied bool
	// Waited is how long Lock waited before it gave up, in whole milliseconds; 0 where that does not apply.
	Waited time.Duration
	// Holder is the holder of the key at the last attempt, of ErrAcquisitionTimeout, and of ErrLocked from [Client.Acquire], where the
	// store told it; else nil.
	Holder *Holder
	// HolderText is what that holder says of itself ([WithHolder]), of an error of Lock and TryLock; empty where it is not known. Raw data
	// for people: it is not in the message, and any program that can write to the store can write any text.
	HolderText string

	cause error
}

// Holder is the holder of a key, as far as an attempt learnt it without another trip. Nothing in it is secret.
type Holder struct {
	// LockIDHash is the hash of the holder's lock id; empty if it is not known.
	LockIDHash string
	// Fence is the holder's fence, 15 digits; empty if it is not known.
	Fence string
	// Remaining is how long its lease still ran at that moment; below zero if it is not known.
	Remaining time.Duration
}

// FenceNumber is the holder's fence as a number; 0, which is no fence, if it is not known.
func (h Holder) FenceNumber() uint64 { return fenceNumber(h.Fence) }

const prefix = "syncguard: "

// Error gives the code, the message and, where there is one, the error of the context or of the work.
func (e *Error) Error() string {
	text := prefix + e.Code.String()
	switch {
	case e.Code == Lost && e.Message != "":
		// The message of a loss begins with its code.
		text = prefix + e.Message
	case e.Message != "":
		text += ": " + e.Message
	}
	if e.cause != nil {
		text += ": " + strings.TrimPrefix(e.cause.Error(), prefix)
	}
	return text
}

// Is tells whether target is the sentinel of this error's code.
func (e *Error) Is(target error) bool {
	sentinel := sentinels[e.Code]
	return sentinel != nil && target == sentinel
}

// Unwrap gives the context's error that ended the call, why a lock that is absent was lost, or the error that work returned under a lock
// that was lost.
func (e *Error) Unwrap() error { return e.cause }

func invalid(format string, args ...any) *Error {
	return &Error{Code: InvalidArgument, Message: fmt.Sprintf(format, args...)}
}

// abortedBy is the error of a call that ctx ended.
func abortedBy(ctx context.Context, keyHash string, attempts int) *Error {
	return &Error{Code: Aborted, Message: "the context ended the call", KeyHash: keyHash, Attempts: attempts, cause: ctx.Err()}
}

// lostBecause is the error of a lock that was lost.
func lostBecause(reason LossReason, key string) *Error {
	hash, _ := cHashKey(key)
	return &Error{Code: Lost, Message: "the lock was lost: " + reason.String(), KeyHash: hash, Reason: reason}
}

// lostDuring is the error of work that ended with err under a lock that was lost: both are found in it. If the work
// returned the loss itself, that is the whole error.
func lostDuring(lost *Error, err error) error {
	if err == nil || err == ErrLost {
		return lost
	}
	if errors.Is(err, error(lost)) {
		return err
	}
	both := *lost
	both.cause = err
	return &both
}
