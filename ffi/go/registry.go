//go:build cgo

package syncguard

// Finds what a callback of C is for, by an id. Uses the standard library only.

import "sync"

// registry finds what a callback is for. C keeps an id and never a pointer of Go's. An id that was removed finds nothing, so a late callback
// is harmless. Nothing in the registry may refer to a guard or a client, or those would never be collected.
var registry = callbackRegistry{found: make(map[uintptr]any)}

type callbackRegistry struct {
	mu    sync.Mutex
	last  uintptr
	found map[uintptr]any
}

func (r *callbackRegistry) add(value any) uintptr {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.found[r.last] = value
	return r.last
}

func (r *callbackRegistry) find(id uintptr) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[id]
}

func (r *callbackRegistry) remove(id uintptr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.found, id)
}

func (r *callbackRegistry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.found)
}
