package routing

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/farhand/farhand/registry"
)

// However many tasks the sessions of a tenant start, there is room for those of another one; and of the tenant for
// those of another session.
func TestTasksAreShared(t *testing.T) {
	tasks := newTasks(1024, slog.New(slog.DiscardHandler))
	over := make(chan struct{})
	start := func(key registry.Key) (n int) {
		for tasks.start(key, func(context.Context) { <-over }) {
			n++
		}
		return n
	}
	if n := start(registry.Key{Tenant: "hostile", Session: "first"}); n != 256 {
		t.Errorf("a session has %d of 1024 tasks", n)
	}
	rest := 0
	for i := range 10 {
		rest += start(registry.Key{Tenant: "hostile", Session: fmt.Sprint(i)})
	}
	if rest != 256 {
		t.Errorf("other sessions of its tenant have %d", rest)
	}
	if n := start(registry.Key{Tenant: "other", Session: "s"}); n != 256 {
		t.Errorf("a session of another tenant has %d", n)
	}
	close(over)
	tasks.wait()
	if s := tasks.slots.Stats(); s.Held != 0 || s.AllRefused() == 0 {
		t.Errorf("%+v", s)
	}
}
