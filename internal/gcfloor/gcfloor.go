// Package gcfloor makes garbage collections of a small heap rarer, so that a busy pod with few sessions does not
// collect dozens of times a second. It also returns the memory of an idle pod to the operating system.
package gcfloor

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/farhand/farhand/internal/pause"
)

// floorBytes is the minimum that a pod allocates between two garbage collections. A pod with few sessions holds a few
// megabytes. With Go's default, every few megabytes of calls would cost a collection: dozens a second on a busy pod, a
// seventh of its processor time (docs/performance.md).
const floorBytes = 32 << 20

// Raise makes the collections of a small heap rarer, makes an idle process return its memory, and returns a function
// that undoes both. It reserves address space that is never touched, and so takes no memory: the collector paces itself
// by the size of the heap. A large heap is collected as before; a higher GOGC would let it grow several times over. If
// the operator has set GOGC or GOMEMLIMIT, Raise does nothing.
func Raise(environ []string) (lower func()) {
	set := env.ToMap(environ)
	if set["GOGC"] != "" || set["GOMEMLIMIT"] != "" {
		return func() {}
	}
	floor := make([]byte, floorBytes)
	untouched(floor)
	ctx, stop := context.WithCancel(context.Background())
	var watcher sync.WaitGroup
	watcher.Go(func() { watch(ctx) })
	return func() {
		stop()
		watcher.Wait()
		runtime.KeepAlive(floor)
	}
}

// An idle pod collects its garbage and returns free memory to the operating system. A burst leaves up to half of the
// heap as garbage. Go collects by allocation, so an idle pod would keep it: ten thousand devices that connect in seven
// seconds leave 5 KiB each (docs/performance.md).
const (
	restTick      = time.Second
	restTicks     = 3           // seconds without work until the pod is idle
	restAllocated = 4 << 20     // bytes allocated in a second; less is no work. One caller in a loop allocates more
	restEvery     = time.Minute // between two collections
	restShare     = 8           // a collection is worth it if it may free this part (an eighth) of resident memory
)

type usage struct {
	allocated uint64 // since the process began
	resident  uint64 // about what the operating system counts, without the program itself
	freeable  uint64 // upper bound of what a collection would return
}

// rest decides when an idle pod returns memory. Its zero value is ready for use.
type rest struct {
	allocated uint64
	quiet     int       // ticks in a row without work
	gaveBack  time.Time // zero: never
}

// due reports whether to return memory now. Call it every restTick.
func (r *rest) due(now time.Time, use usage) bool {
	busy := use.allocated-r.allocated >= restAllocated
	r.allocated = use.allocated
	if busy {
		r.quiet = 0
		return false
	}
	r.quiet++
	if r.quiet < restTicks || use.freeable < use.resident/restShare ||
		!r.gaveBack.IsZero() && now.Sub(r.gaveBack) < restEvery {
		return false
	}
	r.gaveBack = now
	return true
}

// watch returns memory whenever the pod is idle, until ctx ends.
func watch(ctx context.Context) {
	read, r := newReader(floorBytes), rest{}
	for pause.For(ctx, restTick) == nil {
		if r.due(time.Now(), read()) {
			debug.FreeOSMemory()
		}
	}
}

// newReader returns a function that reads the usage. Unlike runtime.ReadMemStats, it does not stop the program.
func newReader(floor uint64) func() usage {
	const (
		allocated = iota
		objects
		live
		free
		released
		total
	)
	samples := []metrics.Sample{
		allocated: {Name: "/gc/heap/allocs:bytes"},
		objects:   {Name: "/memory/classes/heap/objects:bytes"}, // includes dead ones
		live:      {Name: "/gc/heap/live:bytes"},                // at the last collection
		free:      {Name: "/memory/classes/heap/free:bytes"},
		released:  {Name: "/memory/classes/heap/released:bytes"},
		total:     {Name: "/memory/classes/total:bytes"},
	}
	return func() usage {
		metrics.Read(samples)
		value := func(i int) uint64 { return samples[i].Value.Uint64() }
		// The floor is a live object that is not resident. It does not count as live before the first collection.
		garbage := difference(value(objects), max(value(live), floor))
		return usage{
			allocated: value(allocated),
			resident:  difference(value(total), value(released)+floor),
			freeable:  value(free) + garbage,
		}
	}
}

// difference returns a-b, or zero if b is larger: figures that are read together may be of different instants.
func difference(a, b uint64) uint64 { return a - min(a, b) }
