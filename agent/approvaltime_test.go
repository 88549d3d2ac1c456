package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// slowPeople allow what they are asked after a while, if their time is not up before.
type slowPeople struct {
	takes time.Duration
	mu    sync.Mutex
	lives []time.Duration
}

func (*slowPeople) Granted(context.Context, registry.Approval) (bool, error) { return false, nil }

func (p *slowPeople) Ask(
	_ context.Context, a registry.Approval, life time.Duration, _ []byte,
) (registry.Approval, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lives = append(p.lives, life)
	a.CreatedAt = time.Now()
	a.ExpiresAt = a.CreatedAt.Add(life)
	return a, nil
}

func (p *slowPeople) Await(_ context.Context, a registry.Approval) (registry.Approval, error) {
	a.State = registry.ApprovalAllowed
	if life := time.Until(a.ExpiresAt); life < p.takes {
		a.State = registry.ApprovalExpired
		time.Sleep(life)
	} else {
		time.Sleep(p.takes)
	}
	return a, nil
}

// A person who is asked about a direct call has two minutes, or what the policy says, and the clock of the tool starts
// when it does. Only a caller that says how long it waits shortens that.
func TestAPersonsTimeIsNotTheTools(t *testing.T) {
	for name, c := range map[string]struct {
		rule          string
		asks          agent.Request
		takes         time.Duration
		life, timeout time.Duration // of the question, and of the tool; no timeout: it does not run
	}{
		"a limit of 2 s":     {rule: "resources: {maxRuntimeSec: 2}", life: 2 * time.Minute, timeout: 2 * time.Second},
		"by the default":     {life: 2 * time.Minute, timeout: 30 * time.Second},
		"as the policy says": {rule: "approval: {within: 10m}", life: 10 * time.Minute, timeout: 30 * time.Second},
		"at most an hour":    {rule: "approval: {within: 24h}", life: time.Hour, timeout: 30 * time.Second},
		"the strictest rule": {rule: "approval: [{within: 9m}, {within: 3m}]", life: 3 * time.Minute,
			timeout: 30 * time.Second},
		"with a key": {asks: agent.Request{IdempotencyKey: "k"}, life: 2 * time.Minute,
			timeout: 30 * time.Second},
		"a key and a limit": {asks: agent.Request{IdempotencyKey: "k"}, rule: "resources: {maxRuntimeSec: 2}",
			life: 2 * time.Minute, timeout: 2 * time.Second},
		"a caller that waits": {asks: agent.Request{Timeout: time.Minute}, takes: 40 * time.Second,
			life: 54 * time.Second, timeout: 20 * time.Second},
		"a caller and a limit": {asks: agent.Request{Timeout: 10 * time.Second},
			rule: "resources: {maxRuntimeSec: 2}", takes: 5 * time.Second,
			life: 9 * time.Second, timeout: 2 * time.Second},
		"a model that waits": {asks: agent.Request{Timeout: time.Minute, Model: true, Endpoint: agent.EndpointMCP},
			takes: 40 * time.Second, life: 54 * time.Second, timeout: 20 * time.Second},
		"a model": {asks: agent.Request{Model: true}, life: 2 * time.Minute,
			timeout: 30 * time.Second},
		"a caller that waits too short": {asks: agent.Request{Timeout: time.Minute}, life: 54 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crowd := &slowPeople{takes: c.takes}
				if c.takes == 0 {
					crowd.takes = 100 * time.Second
				}
				rule := "approval: always"
				if strings.HasPrefix(c.rule, "approval") {
					rule, c.rule = c.rule, ""
				}
				if c.rule != "" {
					rule += ", " + c.rule
				}
				i, r := ruled(t, "{id: ask, names: t, "+rule+"}", func(cfg *agent.Config) { cfg.Approvals = crowd })
				req := c.asks
				req.Caller, req.Tool = ruledCaller, "t"
				_, err := i.Invoke(t.Context(), req)
				synctest.Wait()
				if len(crowd.lives) != 1 || crowd.lives[0] != c.life {
					t.Errorf("the person has %v, want %v", crowd.lives, c.life)
				}
				switch calls := r.called(); {
				case c.timeout == 0:
					if !errors.Is(err, registry.CodeApprovalDenied) || len(calls) > 0 ||
						!strings.Contains(err.Error(), `"mode": "async"`) {
						t.Errorf("%v, %d calls", err, len(calls))
					}
				case err != nil || len(calls) != 1 || calls[0].Timeout != c.timeout:
					t.Errorf("%v, %+v; the tool has %v", err, calls, c.timeout)
				}
			})
		})
	}
}
