//go:build go1.20

package syncguard_test

import "context"

func cause(ctx context.Context) error { return context.Cause(ctx) }
