//go:build !go1.20

package syncguard_test

import (
	"context"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// There is no cause to be had.
func cause(context.Context) error { return syncguard.ErrLost }
