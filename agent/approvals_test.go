package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat/provenance"
	"github.com/farhand/farhand/registry"
)

// people allow everything that they are asked, or have always allowed it.
type people struct {
	always bool
	asked  int
}

func (p *people) Granted(context.Context, registry.Approval) (bool, error) { return p.always, nil }

func (p *people) Ask(
	_ context.Context, a registry.Approval, _ time.Duration, _ []byte,
) (registry.Approval, error) {
	p.asked++
	return a, nil
}

func (p *people) Await(_ context.Context, a registry.Approval) (registry.Approval, error) {
	a.Verdict = registry.Verdict{State: registry.ApprovalAllowed}
	return a, nil
}

// Arguments that a person has seen and allowed vouch for later calls. Those of a call that was always allowed do not:
// else a model could have any value approved by a tool that nobody is asked about any more.
func TestOnlyWhatAPersonSawIsApproved(t *testing.T) {
	for _, tainted := range []bool{true, false} {
		for _, always := range []bool{true, false} {
			crowd := &people{always: always}
			h := newFixture(t, agent.PolicyRules{}, func(c *agent.Config) { c.Approvals = crowd })
			tool := says("note", "noted")
			tool.ToolSpec.SecurityLevel = registry.SecurityUserConfirm
			from := &agent.Provenance{Conversation: provenance.New()}
			if tainted {
				from.Conversation.Add(provenance.Outside, "a page", `{"id":"4711"}`)
			}
			_, err := h.call(t.Context(), tool, func(r *agent.Request) {
				r.Model, r.Provenance, r.Args = true, from, registry.MustJSON(`{"id":"4711"}`)
			})
			if err != nil || from.Approved == always || (crowd.asked == 0) != always {
				t.Errorf("always allowed %t, tainted %t: approved %t, asked %d times, %v", always, tainted,
					from.Approved, crowd.asked, err)
			}
		}
	}
}
