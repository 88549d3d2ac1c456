package routing

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// deafStore takes what it is given and keeps nothing of it.
type deafStore struct{ *memory.Store }

func (deafStore) AppendActivity(context.Context, []registry.Activity) error { return nil }

func (deafStore) KeepCalls(context.Context, []registry.Record) error { return nil }

func (deafStore) AppendCallEvents(context.Context, []registry.CallEvent) error { return nil }

// BenchmarkFinish is what recording a light call costs beside the store: on its way, and when its line is written.
func BenchmarkFinish(b *testing.B) {
	pod, err := NewPod(PodConfig{Store: deafStore{memory.New(memory.Options{})}, Bus: &memory.Bus{}})
	if err != nil {
		b.Fatal(err)
	}
	args, result := json.RawMessage(`{"text":"hello"}`), registry.Result{Success: true, Output: "83"}
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		rec := registry.NewRecord("8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11", "t", "tool", args)
		rec.Apply(registry.EventRoute, registry.Change{}, rec.Timeline[0].At)
		pod.Calls.Finish(&rec, result, nil)
		if n%1000 == 0 { // as many as come in one pause of a busy pod
			for more := true; more; {
				more, _ = pod.rec.flush()
			}
		}
	}
}
