package shell

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/share"
)

// Commands wait for others of their session, of their tenant and of the pod, and nobody is forgotten.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := share.New(share.Bounds{Pod: 4})
		of := func(tenant, conversation string) agent.SessionID {
			return agent.SessionID{Tenant: tenant, Conversation: conversation}
		}
		take := func(id agent.SessionID) (func(), error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			place, err := running.Acquire(ctx, session{id: id}.owner(1), 1)
			if err != nil {
				return nil, err
			}
			return place.Release, nil
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
		if left := running.Stats(); left.Held != 0 || left.Waiting != 0 {
			t.Errorf("kept: %+v", left)
		}
	})
}
