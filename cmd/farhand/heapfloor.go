package main

import (
	"runtime"

	"github.com/caarlos0/env/v11"
)

// heapFloorBytes is how much a pod allocates at least between two garbage collections. A pod that holds few sessions
// keeps a few megabytes, so that with Go's default every few megabytes of calls would cost a collection: dozens a
// second on a busy pod, a seventh of its processor time (docs/performance.md).
const heapFloorBytes = 32 << 20

// raiseHeapFloor spaces the collections of a small heap out, and returns what undoes it. It reserves address space that is never
// touched, and so takes no memory: the collector paces itself by the size of the heap, and does not look into what
// holds no pointers. A large heap is collected as ever, where a higher GOGC would let it grow several times over. An
// operator who sets GOGC or GOMEMLIMIT has decided otherwise, and nothing is reserved.
func raiseHeapFloor(environ []string) (lower func()) {
	set := env.ToMap(environ)
	if set["GOGC"] != "" || set["GOMEMLIMIT"] != "" {
		return func() {}
	}
	floor := make([]byte, heapFloorBytes)
	return func() { runtime.KeepAlive(floor) }
}
