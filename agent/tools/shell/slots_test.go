package shell

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
)

// Commands wait for others of their session, of their tenant and of the pod, and none is forgotten.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(4)
		of := func(tenant, conversation string) agent.SessionID {
			return agent.SessionID{Tenant: tenant, Conversation: conversation}
		}
		take := func(id agent.SessionID) (func(), error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s := session{id: id, cfg: Config{Slots: slots}}
			return s.place(ctx, id.Conversation, 1)
		}
		var held []func()
		for i, tt := range []struct {
			id   agent.SessionID
			runs bool
		}{
			{of("a", "1"), true}, {of("a", "1"), false}, // one of a session
			{of("a", "2"), true}, {of("a", "3"), false}, // two of a tenant
			{of("", "1"), true}, {of("c", "1"), true}, {of("d", "1"), false}, // four of the pod
		} {
			done, err := take(tt.id)
			if (err == nil) != tt.runs || err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d: %v", i, err)
			}
			if err == nil {
				held = append(held, done)
			}
		}
		waited := make(chan error)
		go func() {
			done, err := take(of("d", "1"))
			if err == nil {
				held = append(held, done)
			}
			waited <- err
		}()
		synctest.Wait()
		held[0]()
		if err := <-waited; err != nil {
			t.Errorf("a freed slot was not given on: %v", err)
		}
		for _, done := range held[1:] {
			done()
		}
		if left := slots.Stats(); left.Held != 0 || left.Waiting != 0 {
			t.Errorf("kept: %+v", left)
		}
	})
}

// A user who opens many sessions keeps a quarter of the pod's slots. Callers without a user have the tenant's others,
// and waiting commands hold nothing.
func TestSessionsOfAUserShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{MaxCommands: DefaultMaxCommands, Slots: NewSlots(DefaultMaxCommands)}
		held := make(map[string]int)
		for _, user := range []string{"eve", ""} {
			for i := range 2 * DefaultMaxCommands {
				id := agent.SessionID{Tenant: "acme", Conversation: fmt.Sprint(user, i/2)}
				s := session{cfg: cfg, id: id}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				release, err := s.place(ctx, user, defaultPerSession)
				cancel()
				if err == nil {
					t.Cleanup(release)
					held[user]++
				}
			}
		}
		if held["eve"] != DefaultMaxCommands/4 || held[""] != DefaultMaxCommands/4 {
			t.Errorf("slots held: %v", held)
		}
		if n := cfg.Slots.sessions.Stats().Held; n != DefaultMaxCommands/2 {
			t.Errorf("%d turns of sessions are held", n)
		}
	})
}
