//go:build cgo && go1.20

package syncguard

// Makes contexts that end with a guard, from Go 1.20 on. Uses the standard library only.

import "context"

// withCancel makes a context whose cause is told from Go 1.20 on.
func withCancel(parent context.Context) (context.Context, func(error)) {
	return context.WithCancelCause(parent)
}
