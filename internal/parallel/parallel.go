// Package parallel does the steps of a loop at the same time.
package parallel

import (
	"sync"
	"sync/atomic"
)

// Each calls do with 0 to n-1, up to limit calls at a time, and waits for all of them. It returns the first error,
// which does not stop the others.
func Each(n, limit int, do func(i int) error) error {
	var next atomic.Int64
	var failed sync.Once
	var first error
	var workers sync.WaitGroup
	for range min(n, limit) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					failed.Do(func() { first = err })
				}
			}
		})
	}
	workers.Wait()
	return first
}
