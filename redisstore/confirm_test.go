package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// TestReplicasConfirm: with a replica to confirm, a call that only the master has is not accepted, delivered, cancelled
// or queued, and a document is not written. Once the replica has it, it survives the master's end.
func TestReplicasConfirm(t *testing.T) {
	servers := redistest.Sentinel(t)
	s := storeOn(t, Options{
		URL: servers.URL, Replicas: 1, Timeout: 2 * time.Second, Limits: registry.Limits{Retention: time.Hour},
	})
	ctx := context.Background()
	record := func(id string, state registry.State) registry.Record {
		return registry.Record{
			Tenant: "t", CallID: id, Tool: "tool", SessionID: "s", Mode: registry.ModeAsync, State: state,
			TimeoutMS: 60_000, HoldMS: 60_000, Pod: "p",
		}
	}
	none := registry.QueueBound{Calls: 10, Bytes: 1 << 20}
	steps := map[string]func(id string) error{
		"create": func(id string) error { return created(s.CreateCall(ctx, record(id+"-new", registry.StateAccepted))) },
		"deliver": func(id string) error {
			_, err := s.MoveCall(ctx, "t", id, registry.EventDeliver, registry.Change{Owner: "p"})
			return err
		},
		"cancel": func(id string) error {
			_, err := s.MoveCall(ctx, "t", id, registry.EventCancel, registry.Change{})
			return err
		},
		"queue": func(id string) error {
			_, _, err := s.Enqueue(ctx, registry.QueuedCall{Tenant: "t", CallID: id, Device: "d", Request: []byte("r")},
				time.Minute, registry.QueueBounds{Device: none, Identity: none, Tenant: none})
			return err
		},
		"document": func(id string) error {
			_, err := s.Documents().Write(ctx, documents.Write{
				Space: documents.Space{Kind: "grant", Tenant: "t"},
				Steps: []documents.Step{{Op: documents.OpPut, Name: id, Text: []byte("x"), Life: time.Minute}},
			})
			return err
		},
	}
	for name := range steps {
		if err := created(s.CreateCall(ctx, record(name, registry.StateAccepted))); err != nil {
			t.Fatal(err)
		}
	}
	servers.Replicas[0].Pause()
	for name, step := range steps {
		if err := step(name); !errors.Is(err, registry.CodeStoreUnavailable) {
			t.Errorf("%s without the replica: %v", name, err)
		}
	}
	servers.Replicas[0].Resume()
	if rec := must[registry.Record](t)(s.ReadCall(ctx, "t", "deliver")); rec.State != registry.StateAccepted {
		t.Errorf("a call that was not given to its device is %s", rec.State)
	}
	for name, step := range steps {
		if err := step(name + map[string]string{"create": "-again"}[name]); err != nil {
			t.Errorf("%s with the replica: %v", name, err)
		}
	}
	servers.Masters[0].Kill()
	servers.Promoted()
	promoted := storeOn(t, Options{URL: servers.Masters[0].URL(), Limits: registry.Limits{Retention: time.Hour}})
	for id, want := range map[string]registry.State{
		"create-again-new": registry.StateAccepted, "deliver": registry.StateDelivered,
		"cancel": registry.StateCancelled,
	} {
		if rec := must[registry.Record](t)(promoted.ReadCall(ctx, "t", id)); rec.State != want {
			t.Errorf("after the failover, %s is %s", id, rec.State)
		}
	}
}

func created(_ registry.Record, created bool, err error) error {
	if err == nil && !created {
		return errors.New("not created")
	}
	return err
}
