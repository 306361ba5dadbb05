//go:build cgo && !go1.20

package syncguard

import "context"

// withCancel makes a context whose cause is told from Go 1.20 on.
func withCancel(parent context.Context) (context.Context, func(error)) {
	ctx, cancel := context.WithCancel(parent)
	return ctx, func(error) { cancel() }
}
