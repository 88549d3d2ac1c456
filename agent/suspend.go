package agent

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// Suspended is a call that waits for a person while nobody holds it, and all that Invoke needs to carry on with it.
// Whoever keeps it must not let anybody change it, and must use it once.
type Suspended struct {
	CallID     string   `json:"call"`
	ApprovalID string   `json:"approval"`
	Binding    string   `json:"binding"`           // what the approval covers
	Charged    []string `json:"charged,omitempty"` // the windows of rate limits that have counted the call

	Approval registry.Approval `json:"-"` // what the person is asked
}

// suspend asks for an approval that a call needs, unless an earlier request has, and notes what it needs to go on.
func (i *Invoker) suspend(ctx context.Context, req *Request, p *prepared, out *Outcome) error {
	binding := bindingOf(*p.ask)
	if r := req.Resume; r != nil {
		if r.Binding != binding {
			return errChanged
		}
		p.ask.ID, p.ask.Pod = r.ApprovalID, ""
	} else {
		p.ask.Pod = "" // none holds the call
		asked, err := i.cfg.Approvals.Ask(timed{ctx, p.inv.Deadline}, *p.ask, i.approvalTime(p), nil)
		if err != nil {
			return err
		}
		p.ask = &asked
		req.tell(asked)
	}
	if req.Suspend {
		req.counted = true // when it has ended
		out.Suspended = &Suspended{
			CallID: req.CallID, ApprovalID: p.ask.ID, Binding: binding, Charged: p.inv.charged, Approval: *p.ask,
		}
	}
	return nil
}

// question asks what a call needs approved, for life. An earlier request of a suspended call has asked already.
func (i *Invoker) question(ctx context.Context, p *prepared, life time.Duration) (registry.Approval, error) {
	if p.resumed == nil {
		return i.cfg.Approvals.Ask(ctx, *p.ask, life, nil)
	}
	asked := *p.ask
	asked.CreatedAt = time.Now() // the store says when the question's own time is up
	asked.ExpiresAt = asked.CreatedAt.Add(life)
	return asked, nil
}
