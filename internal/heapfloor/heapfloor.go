// Package heapfloor spaces the garbage collections of a small heap out, so that a busy pod with few sessions does not
// collect dozens of times a second. It also gives the memory of a pod that came to rest back.
//
// Start with Raise. It imports nothing of ours.
package heapfloor

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/caarlos0/env/v11"
)

// floorBytes is how much a pod allocates at least between two garbage collections. A pod that holds few sessions
// keeps a few megabytes, so that with Go's default every few megabytes of calls would cost a collection: dozens a
// second on a busy pod, a seventh of its processor time (docs/performance.md).
const floorBytes = 32 << 20

// Raise spaces the collections of a small heap out, has a process at rest give its memory back (heapfloor.go), and
// returns a function that undoes both. It reserves address space that is not touched, and so takes no memory: the
// collector paces itself by the size of the heap, and does not scan memory without pointers. A large heap is collected
// as ever, where a higher GOGC would let it grow several times over. An operator who sets GOGC or GOMEMLIMIT has
// decided otherwise, and nothing is reserved.
func Raise(environ []string) (lower func()) {
	set := env.ToMap(environ)
	if set["GOGC"] != "" || set["GOMEMLIMIT"] != "" {
		return func() {}
	}
	floor := make([]byte, floorBytes)
	untouched(floor)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); watch(stop, floorBytes) }()
	return func() {
		close(stop)
		<-stopped
		runtime.KeepAlive(floor)
	}
}

// A pod at rest collects its garbage and gives free memory back to the operating system. A burst leaves up to half of
// the heap as garbage, and Go collects by what is allocated, so that a pod nobody talks to would keep it: ten thousand
// devices that connect in seven seconds leave 5 KiB each (docs/performance.md).
const (
	restTick      = time.Second
	restTicks     = 3           // so many seconds without work are rest
	restAllocated = 4 << 20     // bytes allocated in a second; less is no work. One caller in a loop allocates more
	restEvery     = time.Minute // between two collections
	restShare     = 8           // a collection is worth it if it may free this part (an eighth) of what is resident
)

// usage is what the process uses, in bytes.
type usage struct {
	allocated uint64 // since the process began
	resident  uint64 // about what the operating system counts, without the program itself
	freeable  uint64 // at most what a collection would give back
}

// rest decides when a pod at rest gives memory back. Its zero value has seen nothing.
type rest struct {
	allocated uint64
	quiet     int       // ticks in a row without work
	gaveBack  time.Time // zero: never
}

// due says whether memory is to be given back now. It is called every restTick.
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

// watch gives memory back whenever the pod rests, until stop is closed. floor is how many bytes the heap floor has.
func watch(stop <-chan struct{}, floor uint64) {
	tick := time.NewTicker(restTick)
	defer tick.Stop()
	read, r := newReader(floor), rest{}
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			if r.due(now, read()) {
				debug.FreeOSMemory()
			}
		}
	}
}

// newReader returns a function that reads what is used. It does not stop the program, as runtime.ReadMemStats would.
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
		objects:   {Name: "/memory/classes/heap/objects:bytes"}, // dead ones, too
		live:      {Name: "/gc/heap/live:bytes"},                // at the last collection
		free:      {Name: "/memory/classes/heap/free:bytes"},
		released:  {Name: "/memory/classes/heap/released:bytes"},
		total:     {Name: "/memory/classes/total:bytes"},
	}
	return func() usage {
		metrics.Read(samples)
		value := func(i int) uint64 { return samples[i].Value.Uint64() }
		// The floor is an object that lives and is not resident; it is not among the live before the first collection.
		garbage := difference(value(objects), max(value(live), floor))
		return usage{
			allocated: value(allocated),
			resident:  difference(value(total), value(released)+floor),
			freeable:  value(free) + garbage,
		}
	}
}

// difference returns a-b, or zero if b is more: figures that are read together need not be of the same instant.
func difference(a, b uint64) uint64 { return a - min(a, b) }
