//go:build cgo && !go1.20

package syncguard

// Makes contexts that end with a guard, before Go 1.20. Uses the standard library only.

import "context"

// withCancel makes a context whose cause is told from Go 1.20 on.
func withCancel(parent context.Context) (context.Context, func(error)) {
	ctx, cancel := context.WithCancel(parent)
	return ctx, func(error) { cancel() }
}
