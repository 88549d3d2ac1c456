package heapfloor

import (
	"runtime"

	"github.com/caarlos0/env/v11"
)

// floorBytes is how much a pod allocates at least between two garbage collections. A pod that holds few sessions
// keeps a few megabytes, so that with Go's default every few megabytes of calls would cost a collection: dozens a
// second on a busy pod, a seventh of its processor time (docs/performance.md).
const floorBytes = 32 << 20

// Raise spaces the collections of a small heap out, has a process at rest give its memory back (rest.go), and returns a
// function that undoes both. It reserves address space that is not touched, and so takes no memory: the collector paces
// itself by the size of the heap, and does not scan memory without pointers. A large heap is collected as ever, where a
// higher GOGC would let it grow several times over. An operator who sets GOGC or GOMEMLIMIT has decided otherwise, and
// nothing is reserved.
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
