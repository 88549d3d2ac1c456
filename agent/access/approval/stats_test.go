package approval_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// TestWaitingApprovalsAreCounted on the pod that asked, with the age of the oldest: until a caller gives up, another
// pod decides about an asynchronous call, or it expires.
func TestWaitingApprovalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		here, there := approval.New(approval.Config{Store: store}), approval.New(approval.Config{Store: store})
		defer here.Close()
		defer there.Close()
		here.Serve(&starter{done: make(map[string]bool), begun: make(chan registry.Approval, 10)})
		want := func(what string, waiting int64, oldest time.Duration) {
			t.Helper()
			synctest.Wait()
			if s := here.Stats(); s.Waiting != waiting || s.Oldest != oldest {
				t.Errorf("%s: %+v, want %d for %v", what, s, waiting, oldest)
			}
		}
		want("none", 0, 0)
		deferred := asked(t, here, func(a *registry.Approval) { a.Deferred = true })
		asked(t, here, func(a *registry.Approval) { a.Deferred = true }) // expires after a minute
		time.Sleep(5 * time.Second)
		ctx, giveUp := context.WithCancel(t.Context())
		left := make(chan error, 1)
		attended := asked(t, here, nil)
		go func() { _, err := here.Await(ctx, attended); left <- err }()
		want("three", 3, 5*time.Second)
		giveUp()
		<-left
		want("a caller gave up", 2, 5*time.Second)
		if _, err := there.Decide(t.Context(), ann, deferred.ID, approval.Decision{Allow: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		want("another pod decided", 1, 10*time.Second)
		time.Sleep(time.Minute)
		want("the last expired", 0, 0)
		if s := there.Stats(); s.Waiting != 0 {
			t.Errorf("the other pod counts %+v", s)
		}
	})
}
