package routing

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/farhand/farhand/registry"
)

// However many tasks the sessions of a tenant start, there is room for those of another one; and of the tenant for
// those of another user, device or session.
func TestTasksAreShared(t *testing.T) {
	tasks := newTasks(1024, slog.New(slog.DiscardHandler))
	over := make(chan struct{})
	start := func(s registry.Session) (n int) {
		for tasks.start(payerOf(&s), func(context.Context) { <-over }) {
			n++
		}
		return n
	}
	of := func(tenant, session string) registry.Session {
		return registry.Session{Key: registry.Key{Tenant: tenant, Session: session}}
	}
	if n := start(of("hostile", "first")); n != 256 {
		t.Errorf("a session has %d of 1024 tasks", n)
	}
	rest := 0
	for i := range 10 {
		s := of("hostile", fmt.Sprint(i))
		s.UserID, s.Bound, s.DeviceID = "eve", i%2 == 0, fmt.Sprint("device", i)
		rest += start(s)
	}
	if rest != 256 {
		t.Errorf("all sessions of a user of its tenant have %d", rest)
	}
	for i := range 4 {
		s := of("other", fmt.Sprint(i))
		s.Bound, s.DeviceID = true, "lamp"
		rest += start(s)
	}
	if rest != 2*256 {
		t.Errorf("all sessions of a device of another tenant have %d", rest-256)
	}
	close(over)
	tasks.wait()
	if s := tasks.slots.Stats(); s.Held != 0 || s.AllRefused() == 0 {
		t.Errorf("%+v", s)
	}
}
