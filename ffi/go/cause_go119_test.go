//go:build !go1.20

package syncguard_test

// What tests know of a context's cause, before Go 1.20.

import (
	"context"
	"testing"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// Before Go 1.20 a context has no cause.
func cause(context.Context) error { return syncguard.ErrLost }

func same(t testing.TB, ctx context.Context, _ error) {
	t.Helper()
	is(t, ctx.Err(), context.Canceled)
}
