// Package syncguard takes distributed locks with fencing tokens, on Redis, Postgres or SQLite.
//
//	client, err := syncguard.Open("redis://127.0.0.1/")
//	...
//	err = client.Do(ctx, "invoice:42", func(ctx context.Context, guard *syncguard.Guard) error {
//		return write(ctx, guard.Fence()) // ctx ends when the lock is lost
//	})
//
// [Client.Lock] and [Client.TryLock] give a [Guard], which is renewed in the background until it is released or lost. The five verbs
// underneath ([Client.Acquire], [Client.Release], [Client.Extend], [Client.IsLocked], [Client.LookupByKey]) are one attempt each.
//
// A goroutine that waits holds no thread of the system, and every call ends when its context does. A Lock that was cancelled gives
// back by itself what it may have been granted.
//
// A call of this package is a call of C, and while it lasts it keeps one of the GOMAXPROCS processors on which goroutines run; Go gives
// that to others only after 20 µs or more. A program with many more callers than cores gains from a larger GOMAXPROCS, and one that is
// pinned to one core, or has a quota of one, gets 1 from Go and should set 2 or more. At most [WithPoolSize] calls that take locks, and
// as many others, are in C at once, per client; further calls wait in Go.
//
// Callbacks run on threads of the library. One that panics is reported on stderr and nothing else happens; one that calls
// runtime.Goexit, as FailNow of the package testing does, ends the program: Go allows that on its own threads only.
//
// Never promised: fairness between processes, exactly-once, and safety without a check of the fence at the resource when a holder is
// paused past its ttl.
//
// The package is a binding: it needs the C library libsyncguard, found by pkg-config. With the build tag syncguard_nopkgconfig it
// is found by CGO_CFLAGS and CGO_LDFLAGS instead. A program must not fork without exec, which Go programs do not.
package syncguard
