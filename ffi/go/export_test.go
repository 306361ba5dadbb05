package syncguard

// What tests need of the package's inside.

import (
	"context"
	"time"
)

// Registered is how many callbacks the library may still call.
func Registered() int { return registry.count() }

// InLine is how many goroutines wait for a lock of the client.
func (c *Client) InLine() int { return int(c.c.inLine.Load()) }

// LostBecause is the error of a guard that finds out by itself that it is lost.
func LostBecause(reason LossReason, key string) error { return lostBecause(reason, key) }

// Watch is what a call does with its context: stop when it has ended, trigger when the context has.
func Watch(ctx context.Context) (stop, trigger func()) {
	w := watch(ctx, time.Time{})
	return w.stop, w.trigger
}

// TakeAllSlots leaves no slot for the guard's next call, until end is called.
func (g *Guard) TakeAllSlots() (end func()) {
	slots := g.g.giving
	for i := int32(0); i < slots.size; i++ {
		slots.enter(context.Background(), time.Time{}, Forever)
	}
	g.g.operationTimeout = time.Millisecond
	return func() {
		for i := int32(0); i < slots.size; i++ {
			slots.leave()
		}
	}
}
