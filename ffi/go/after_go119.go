//go:build cgo && !go1.21

package syncguard

// Calls a function when a context ends, before Go 1.21. Uses the standard library only.

import "context"

// afterFunc calls f, on a goroutine of its own, when ctx has ended, unless what it gives is called before.
func afterFunc(ctx context.Context, f func()) func() bool {
	over := make(chan struct{})
	go func() {
		select {
		case <-over:
		case <-ctx.Done():
			f()
		}
	}()
	return func() bool {
		close(over)
		return true
	}
}
