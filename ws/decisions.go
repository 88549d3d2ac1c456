package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Decisions takes the decisions of people at devices. *approval.Service implements it.
type Decisions interface {
	// WaitingAt returns the undecided approvals for the person at the device of a session.
	WaitingAt(ctx context.Context, session registry.Session) ([]registry.Approval, error)

	DecideOnDevice(
		ctx context.Context, who auth.Identity, session registry.Session, id string, d approval.Decision,
	) (approval.Answer, error)
}

const (
	codeApprovalNotFound = "APPROVAL_NOT_FOUND" // or this device may not decide it

	// Values of decision in approval_response.
	decisionOnce   = "allow-once"
	decisionAlways = "allow-always"
	decisionDeny   = "deny"
)

// approvalRequestFrame asks the person at the device about a call. It has the arguments byte for byte, and as a text
// that hides nothing.
func approvalRequestFrame(a registry.Approval) []byte {
	args := json.RawMessage(a.Args.Raw())
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	text, remarks := approval.Shown(a.Args)
	return encode(struct {
		Type      string          `json:"type"`
		ID        string          `json:"id"`
		CallID    string          `json:"call_id"`
		Tool      string          `json:"tool"`
		Args      json.RawMessage `json:"args"`
		ArgsText  string          `json:"args_text"`
		Remarks   []string        `json:"remarks,omitempty"`
		Reason    string          `json:"reason"`
		ExpiresMS int64           `json:"expires_ms"` // remaining time, so that clocks need not agree
	}{
		typeApprovalRequest, a.ID, a.CallID, a.Tool, args, text, remarks, a.Reason,
		max(time.Until(a.ExpiresAt).Milliseconds(), 0),
	})
}

// approvalDecidedFrame reports the outcome of an approval.
func approvalDecidedFrame(a registry.Approval) []byte {
	return encode(struct {
		Type      string                 `json:"type"`
		ID        string                 `json:"id"`
		CallID    string                 `json:"call_id"`
		State     registry.ApprovalState `json:"state"`
		DecidedBy string                 `json:"decided_by,omitempty"`
	}{typeApprovalDecided, a.ID, a.CallID, a.State, a.DecidedBy})
}

// ShowApproval implements the interface that routing.Approvals looks for. It sends the device an approval, or its
// outcome.
func (c *conn) ShowApproval(a registry.Approval) {
	local := c.claimed()
	if local == nil || c.ending() != closeNone {
		return
	}
	if s := local.Session(); !s.Can(registry.CapabilityApproval) || !a.Concerns(s) {
		return
	}
	frame := approvalDecidedFrame(a)
	if !a.Final() {
		frame = approvalRequestFrame(a)
	}
	if err := c.send(frame); err != nil {
		c.log().Debug("approval not shown", "approval", a.ID, "error", err)
	}
}

// waitingCost is about how many bytes are read to find the approvals that wait for a device, besides those themselves.
const waitingCost = 16 << 10

// showWaiting sends the device, in the background and once per connection, the approvals that were requested before it
// declared the capability. It may send an approval a second time. To read and write them is work like that for a list
// of tools, so it takes turns and has the same token bucket: a device may connect again and again.
func (c *conn) showWaiting() {
	if c.shownWaiting || c.server.cfg.Decisions == nil || !c.local.Session().Can(registry.CapabilityApproval) {
		return
	}
	c.shownWaiting = true
	session := c.local.Session()
	c.server.goTask(func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		if c.budget.takeListing(waitingCost) != noSpender {
			return
		}
		turn, err := c.server.turns.Acquire(ctx, c.who.Owner(), 1)
		if err != nil {
			c.log().Debug("approvals that wait not shown", "error", err)
			return
		}
		defer turn.Release()
		waiting, err := c.server.cfg.Decisions.WaitingAt(ctx, session)
		if err != nil {
			c.log().Debug("pending approvals not shown", "error", err)
		}
		room := c.server.cfg.MaxOutbound / 4 // a device is closed as slow if its outbox is full
		for _, a := range waiting {
			frame := approvalRequestFrame(a)
			room -= len(frame)
			if room < 0 || c.ending() != closeNone || c.budget.takeListing(len(frame)) != noSpender {
				return
			}
			if err := c.send(frame); err != nil {
				c.log().Debug("approval not shown", "approval", a.ID, "error", err)
				return
			}
		}
	})
}

// showApproval shows the approval that a turn waits for. routing.Approvals already shows calls of the device itself. A
// device without the capability gets a thought, which its app shows during the turn.
func (w *turnWorker) showApproval(e chat.Event) {
	s := w.conn.local.Session()
	switch {
	case !s.Can(registry.CapabilityApproval):
		_ = w.conn.send(pieceFrame(chat.EventThinking, waitingText(*e.Approval)))
	case e.Approval.SessionID != s.Key.Session:
		_ = w.conn.send(eventFrame(e))
	}
}

// waitingText describes the approval that a turn waits for, or its outcome.
func waitingText(a registry.Approval) string {
	if a.Final() {
		return fmt.Sprintf("The call of %s: %s.\n", a.Tool, a.State)
	}
	who := "an approver"
	if len(a.Approvers) > 0 {
		who = strings.Join(a.Approvers, " or ")
	}
	return fmt.Sprintf("The call of %s waits until %s allows it: farhand approve allow %s\n", a.Tool, who, a.ID)
}

// approvalResponse takes the decision of the person at the device. A later decision does not count: the device gets the
// first one.
func (c *conn) approvalResponse(ctx context.Context, f *approvalResponseFrame) error {
	if c.server.cfg.Decisions == nil {
		return fields.NewError(codeApprovalNotFound, "This gateway has no approvals.")
	}
	d := approval.Decision{}
	switch f.Decision {
	case decisionDeny:
	case decisionOnce:
		d.Allow = true
	case decisionAlways:
		d.Allow, d.Scope = true, registry.ScopeAlwaysArgs
	default:
		return fields.Invalid("decision: must be %s, %s or %s", decisionOnce, decisionAlways, decisionDeny)
	}
	if !c.local.Session().Can(registry.CapabilityApproval) { // the device was not asked, so no person has decided
		return fields.NewError(codeApprovalNotFound,
			"capabilities: this device has not declared approval, so it cannot decide approvals.")
	}
	answer, err := c.server.cfg.Decisions.DecideOnDevice(ctx, *c.who, c.local.Session(), f.ID, d)
	switch {
	case errors.Is(err, registry.CodeNotFound):
		return fields.NewError(codeApprovalNotFound,
			"id: there is no such approval, or this device may not decide it.")
	case errors.Is(err, registry.CodeForbidden):
		return fields.NewError(codeForbidden, registry.AsError(err).Message)
	case err != nil && answer.Decided: // the decision is stored, its consequences are not
		return fields.NewError(codeInternalError, registry.AsError(err).Message)
	case err != nil:
		return fields.NewError(codeInternalError, "The decision was not stored: "+registry.AsError(err).Message)
	}
	return c.send(approvalDecidedFrame(answer.Approval))
}
