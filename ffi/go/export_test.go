package syncguard

import (
	"context"
	"time"
)

// Registered is how many callbacks the library may still call.
func Registered() int { return registry.count() }

// InLine is how many goroutines wait for a lock of the client.
func (c *Client) InLine() int { return int(c.c.inLine.Load()) }

// Watch is what a call does with its context: stop when it has ended, trigger when the context has.
func Watch(ctx context.Context) (stop, trigger func()) {
	w := watch(ctx, time.Time{})
	return w.stop, w.trigger
}
