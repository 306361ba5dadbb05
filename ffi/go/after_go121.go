//go:build cgo && go1.21

package syncguard

// Calls a function when a context ends, from Go 1.21 on. Uses the standard library only.

import "context"

// afterFunc calls f, on a goroutine of its own, when ctx has ended, unless what it gives is called before. It costs nothing while
// nothing happens; a goroutine for every call would double the time of a lock.
func afterFunc(ctx context.Context, f func()) func() bool { return context.AfterFunc(ctx, f) }
