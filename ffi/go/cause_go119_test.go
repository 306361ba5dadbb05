//go:build !go1.20

package syncguard_test

import (
	"context"
	"testing"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// There is no cause to be had.
func cause(context.Context) error { return syncguard.ErrLost }

func same(t testing.TB, ctx context.Context, _ error) {
	t.Helper()
	is(t, ctx.Err(), context.Canceled)
}
