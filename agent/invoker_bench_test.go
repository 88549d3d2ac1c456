package agent

import (
	"context"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// benchRouter answers every call at once.
type benchRouter struct{ route registry.Route }

func (r *benchRouter) Resolve(
	context.Context, string, string, registry.Target, registry.Select,
) (registry.Route, error) {
	return r.route, nil
}

func (r *benchRouter) ResolveNow(
	ctx context.Context, tenant, tool string, t registry.Target, sel registry.Select,
) (registry.Route, bool, error) {
	route, err := r.Resolve(ctx, tenant, tool, t, sel)
	return route, false, err
}

func (r *benchRouter) ResolveAgain(context.Context, registry.Route) (registry.Route, error) {
	return r.route, nil
}

func (r *benchRouter) Call(context.Context, registry.Call) (registry.Result, error) {
	return registry.Result{Success: true, Output: "83"}, nil
}

// benchCallLog forgets what it is told.
type benchCallLog struct{ CallLog }

func (benchCallLog) Finish(*registry.Record, registry.Result, error) {}

// BenchmarkInvoke is what a light call costs beside resolving, delivering and recording it.
func BenchmarkInvoke(b *testing.B) {
	policy, err := NewPolicy(PolicyRules{})
	if err != nil {
		b.Fatal(err)
	}
	for _, schema := range []string{"empty", "flat"} {
		route := registry.Route{Spec: benchSpecs(b)[schema]}
		route.Session = registry.Session{
			Key: registry.Key{Tenant: "t", Session: "phone-1"}, Pod: "pod-2", DeviceID: "device-1",
			ConnectedAt: time.Now(),
		}
		invoker := NewInvoker(Config{Router: &benchRouter{route}, CallLog: benchCallLog{}, Policy: policy})
		req := Request{
			CallID: "8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11", Caller: auth.Identity{Tenant: "t"}, Tool: route.Spec.Name,
			Args: registry.MustJSON(string(benchArgs[schema])), Target: registry.Target{SessionID: "phone-1"},
		}
		b.Run(schema, func(b *testing.B) {
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := invoker.Invoke(ctx, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
