package agent_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// ends keeps what a Meter counts.
type ends struct {
	mu    sync.Mutex
	ended []agent.CallEnd
}

func (e *ends) CallEnded(end agent.CallEnd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = append(e.ended, end)
}

func (e *ends) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for _, t := range e.ended {
		all = append(all, string(t.Endpoint)+" "+string(t.Route)+" "+t.Outcome)
	}
	slices.Sort(all)
	return all
}

// TestMeterHearsOfEveryCallOnce, whichever way it ends, and of one that outlives its request when it has ended.
func TestMeterHearsOfEveryCallOnce(t *testing.T) {
	ok := registry.Result{Success: true, Output: "done"}
	api := agent.Request{Tool: "t", Endpoint: agent.EndpointAPI, Target: registry.Target{SessionID: "s1"}}
	keyed, async, array := api, api, api
	keyed.IdempotencyKey, async.Async, array.Args = "k", true, registry.MustJSON("[]")
	other := keyed
	other.Args = registry.MustJSON(`{"other":1}`)
	for name, tt := range map[string]struct {
		requests []agent.Request
		router   *fakeRouter
		want     []string
	}{
		"succeeded": {[]agent.Request{api}, &fakeRouter{result: ok}, []string{"api remote succeeded"}},
		"failed":    {[]agent.Request{api}, &fakeRouter{}, []string{"api remote failed"}},
		"refused":   {[]agent.Request{array}, &fakeRouter{}, []string{"api none invalid_request"}},
		"not found": {[]agent.Request{api}, &fakeRouter{resolveErr: registry.CodeToolNotFound},
			[]string{"api none internal"}},
		"error": {[]agent.Request{api}, &fakeRouter{callErr: registry.Errorf(registry.CodeTimeout, "")},
			[]string{"api remote timeout"}},
		"async": {[]agent.Request{async}, &fakeRouter{result: ok}, []string{"api remote succeeded"}},
		"async error": {[]agent.Request{async}, &fakeRouter{callErr: registry.Errorf(registry.CodeLost, "")},
			[]string{"api remote lost"}},
		"async refused": {[]agent.Request{async}, &fakeRouter{resolveErr: registry.Errorf(registry.CodeNotConnected,
			"")},
			[]string{"api none not_connected"}},
		"replayed": {[]agent.Request{keyed, keyed, other}, &fakeRouter{result: ok},
			[]string{"api remote idempotency_conflict", "api remote replayed", "api remote succeeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			heard, router, log := &ends{}, tt.router, newCallLog(t)
			router.spec = spec("t", "")
			i := agent.NewInvoker(agent.Config{
				Router: router, CallLog: log, Policy: newPolicy(t, agent.PolicyRules{}), Pod: "here", Meter: heard,
			})
			for _, req := range tt.requests {
				_, _ = i.Invoke(context.Background(), req)
			}
			log.running.Wait()
			if got := heard.all(); !slices.Equal(got, tt.want) {
				t.Errorf("heard %q, want %q", got, tt.want)
			}
		})
	}
}
