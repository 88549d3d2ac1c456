package metrics_test

import (
	"fmt"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// TestBusyTenantsAreNamed: a tenant that comes late gets a series of its own when it is among the busiest, calls are
// counted once, and a tenant that is named like the rest counts with it.
func TestBusyTenantsAreNamed(t *testing.T) {
	p := newTestPod(t)
	total := 0.0
	call := func(tenant string, outcome string) {
		p.set.Calls.CallEnded(agent.CallEnd{Endpoint: agent.EndpointAPI, Route: agent.RouteLocal, Tenant: tenant,
			Outcome: outcome})
		total++
	}
	for i := range 200 {
		call(fmt.Sprint("early", i), agent.OutcomeSucceeded)
	}
	call("other", agent.OutcomeSucceeded)
	for i := range 10_000 {
		call("late", agent.OutcomeFailed)
		call(fmt.Sprint("once", i), agent.OutcomeSucceeded)
	}
	got := p.scrape()
	if n := value(got, "farhand_tenant_calls_total"); n > total || n < total-20 { // a series that ended is missing
		t.Errorf("%v calls of %v", n, total)
	}
	if n := value(got, "farhand_tenant_calls_total", "tenant", "late", "result", "failed"); n < 8_000 {
		t.Errorf("the busiest tenant has %v calls of 10,000", n)
	}
	if n := value(got, "farhand_tenant_connections", "tenant", "tenant9999"); n != 9999 {
		t.Errorf("the tenant with most connections has %v", n)
	}
	if n := value(got, "farhand_tenant_connections"); n != 9999*10_000/2 {
		t.Errorf("%v connections", n)
	}
}

// TestModelsAreCounted: requests by outcome, cached tokens, and a cost for models with a price only.
func TestModelsAreCounted(t *testing.T) {
	p := newTestPod(t)
	p.set.Turns.Price = func(model string, u provider.Usage) (float64, bool) {
		return float64(u.Input) / 4, model == "gpt"
	}
	for _, model := range []string{"gpt", "free"} {
		p.set.Turns.TurnFinished(
			chat.TurnInfo{Channel: chat.ChannelChat, Model: model, Key: registry.Key{Tenant: "t"}},
			chat.TurnEnd{Outcome: chat.OutcomeError, Usage: provider.Usage{Input: 10, Output: 5, Cached: 8}, Answers: 2,
				Failure: provider.KindFailure})
	}
	got := p.scrape()
	for i, pair := range [][2]float64{
		{value(got, "farhand_model_requests_total", "model", "gpt", "outcome", "answered"), 2},
		{value(got, "farhand_model_requests_total", "model", "gpt", "outcome", "failure"), 1},
		{value(got, "farhand_model_tokens_total", "model", "gpt", "direction", "cached"), 8},
		{value(got, "farhand_tenant_model_tokens_total", "tenant", "t", "direction", "input"), 20},
		{value(got, "farhand_model_cost_total", "model", "gpt"), 2.5},
		{float64(len(got["farhand_model_cost_total"])), 1},
	} {
		if pair[0] != pair[1] {
			t.Errorf("value %d is %v, want %v", i, pair[0], pair[1])
		}
	}
}
