//go:build cgo

package syncguard

import (
	"context"
	"errors"
	"fmt"
)

// Code says what kind of answer or trouble an [Error] is. The numbers are those of the C header and never change.
type Code int32

// The codes.
const (
	Locked             Code = 1
	Absent             Code = 2
	ServiceUnavailable Code = -1
	AuthFailed         Code = -2
	InvalidArgument    Code = -3
	RateLimited        Code = -4
	NetworkTimeout     Code = -5
	AcquisitionTimeout Code = -6
	Aborted            Code = -7
	Internal           Code = -8
	Panicked           Code = -9
)

// String gives the name of the code, such as "network timeout".
func (c Code) String() string { return statusName(int32(c)) }

// What errors.Is finds in the errors of this package.
var (
	// ErrLocked: somebody else holds the key.
	ErrLocked = errors.New("syncguard: locked")
	// ErrAbsent: there is no such live lock; it was released, has expired, or never was.
	ErrAbsent = errors.New("syncguard: absent")
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
	// ErrAcquisitionTimeout: the whole wait was over and somebody else still held the key.
	ErrAcquisitionTimeout = errors.New("syncguard: acquisition timeout")
	// ErrAborted: the context ended the call. The context's own error is there too.
	ErrAborted = errors.New("syncguard: aborted")
	// ErrInternal: anything else, such as a foreign value under our key or a fence over its limit.
	ErrInternal = errors.New("syncguard: internal error")
	// ErrPanic: a bug of the library.
	ErrPanic = errors.New("syncguard: panic in the library")

	// ErrLost: this process can no longer count on the lock.
	ErrLost = errors.New("syncguard: the lock is lost")
	// ErrReleased: the guard was released.
	ErrReleased = errors.New("syncguard: the guard was released")
	// ErrClosed: the client is closed, or was never opened.
	ErrClosed = errors.New("syncguard: the client is closed or was never opened")
)

var sentinels = map[Code]error{
	Locked:             ErrLocked,
	Absent:             ErrAbsent,
	ServiceUnavailable: ErrServiceUnavailable,
	AuthFailed:         ErrAuthFailed,
	InvalidArgument:    ErrInvalidArgument,
	RateLimited:        ErrRateLimited,
	NetworkTimeout:     ErrNetworkTimeout,
	AcquisitionTimeout: ErrAcquisitionTimeout,
	Aborted:            ErrAborted,
	Internal:           ErrInternal,
	Panicked:           ErrPanic,
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

	cause error
}

// Error gives the code, the message and, where there is one, the context's error.
func (e *Error) Error() string {
	text := "syncguard: " + e.Code.String()
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.cause != nil {
		text = fmt.Sprintf("%s: %v", text, e.cause)
	}
	return text
}

// Is tells whether target is the sentinel of this error's code.
func (e *Error) Is(target error) bool {
	sentinel := sentinels[e.Code]
	return sentinel != nil && target == sentinel
}

// Unwrap gives the context's error that ended the call, or why the guard was lost.
func (e *Error) Unwrap() error { return e.cause }

// transient tells whether trying again within the same wait may help.
func (e *Error) transient() bool {
	return e.Code == ServiceUnavailable || e.Code == NetworkTimeout || e.Code == RateLimited
}

func invalid(format string, args ...any) *Error {
	return &Error{Code: InvalidArgument, Message: fmt.Sprintf(format, args...)}
}

// abortedBy is the error of a call that ctx ended.
func abortedBy(ctx context.Context, keyHash string, attempts int) *Error {
	return &Error{Code: Aborted, Message: "the context ended the call", KeyHash: keyHash, Attempts: attempts, cause: ctx.Err()}
}

// lostError is ErrLost with the reason.
type lostError struct{ why error }

func (e *lostError) Error() string {
	if e.why == nil {
		return ErrLost.Error()
	}
	return fmt.Sprintf("%v: %v", ErrLost, e.why)
}

func (e *lostError) Is(target error) bool { return target == ErrLost }

func (e *lostError) Unwrap() error { return e.why }

func lostBecause(why *Error) error {
	if why == nil {
		return &lostError{}
	}
	return &lostError{why}
}
