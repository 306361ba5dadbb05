//go:build go1.20

package syncguard_test

// What tests know of a context's cause, from Go 1.20 on.

import (
	"context"
	"testing"
)

func cause(ctx context.Context) error { return context.Cause(ctx) }

// same fails unless the context ended with this very error.
func same(t testing.TB, ctx context.Context, err error) {
	t.Helper()
	if got := context.Cause(ctx); got != err {
		t.Fatalf("the cause is %v, not %v", got, err)
	}
}
