// Package pause waits for a while, or until a context ends.
package pause

import (
	"context"
	"sync"
	"time"
)

// Wait returns nil when the tasks of a group have ended. If ctx ends first, Wait returns its cause; one goroutine then
// waits for the group.
func Wait(ctx context.Context, group *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		group.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// For returns nil after d. If ctx ends first, For returns its cause.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
