//go:build cgo

package syncguard

import "sync"

// registry finds what a callback is for. C keeps an id and never a pointer of Go's; an id that was removed finds nothing, so a
// callback that comes late is harmless. Nothing in it may refer to a guard or client, or the collector would never see those go.
var registry = ids{found: make(map[uintptr]any)}

type ids struct {
	mu    sync.Mutex
	last  uintptr
	found map[uintptr]any
}

func (r *ids) add(value any) uintptr {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.found[r.last] = value
	return r.last
}

func (r *ids) find(id uintptr) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[id]
}

func (r *ids) remove(id uintptr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.found, id)
}

func (r *ids) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.found)
}
