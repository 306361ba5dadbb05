// Cycles of C and of Go side by side, for the request "beside". Uses main.go and syncguard.h.

package main

/*
#cgo !syncguard_nopkgconfig pkg-config: syncguard
#cgo syncguard_nopkgconfig LDFLAGS: -lsyncguard
#include <stdint.h>
#include <stdlib.h>
#include <syncguard.h>
#include <time.h>

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// As many cycles as a C program would make them, timed here.
static syncguard_status cycles(syncguard_client *client, int count, double *times) {
  int64_t last = now();
  for (int i = 0; i < count; i++) {
    syncguard_guard *guard = NULL;
    syncguard_status status = syncguard_lock(client, "bench-beside", SYNCGUARD_NUL, NULL, &guard, NULL);
    if (status != SYNCGUARD_STATUS_OK) {
      return status;
    }
    syncguard_guard_free(guard);
    int64_t t = now();
    times[i] = (double)(t - last);
    last = t;
  }
  return SYNCGUARD_STATUS_OK;
}

static syncguard_status open_store(const char *url, syncguard_client **client) {
  return syncguard_client_open(url, SYNCGUARD_NUL, NULL, client, NULL);
}
*/
import "C"

import (
	"context"
	"fmt"
	"sort"
	"time"
	"unsafe"
)

type cClient = C.syncguard_client

// A batch of C is shorter than the ten milliseconds after which the runtime takes the processor from a call.
const batch = 20

// beside makes cycles of C, of Go, and of Go with a context that can end, a batch of each in turn in one thread: what disturbs one
// disturbs all. The medians, in nanoseconds.
func (w *worker) beside(count int) ([]float64, error) {
	if w.beyond == nil {
		url := C.CString(w.url)
		defer C.free(unsafe.Pointer(url))
		if status := C.open_store(url, &w.beyond); status != 0 {
			return nil, fmt.Errorf("C cannot open the store: status %d", status)
		}
	}
	ending, cancel := context.WithCancel(ctx)
	defer cancel()
	var times [3][]float64
	for done := 0; done < count; done += batch {
		var own [batch]float64
		if status := C.cycles(w.beyond, batch, (*C.double)(&own[0])); status != 0 {
			return nil, fmt.Errorf("C got no lock: status %d", status)
		}
		times[0] = append(times[0], own[:]...)
		for i, with := range []context.Context{ctx, ending} {
			last := time.Now()
			for j := 0; j < batch; j++ {
				guard, err := w.shared.Lock(with, "bench-beside")
				if err != nil {
					return nil, err
				}
				if err := guard.Release(with); err != nil {
					return nil, err
				}
				now := time.Now()
				times[i+1] = append(times[i+1], float64(now.Sub(last)))
				last = now
			}
		}
	}
	var medians []float64
	for _, all := range times {
		sort.Float64s(all)
		medians = append(medians, at(all, 0.5))
	}
	return medians, nil
}
