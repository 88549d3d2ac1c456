package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// GroupTool is an optional interface of a local Tool that calls many devices with CallChild. GroupMode returns the mode
// of a call with these arguments, for its record.
type GroupTool interface {
	GroupMode(args json.RawMessage) string
}

// ChildCall is a call that a local tool makes to one of many devices: a child of the tool's own call.
type ChildCall struct {
	DeviceCall

	// Route is the device as a listing has just returned it. It replaces Target. The zero value: Target is looked up.
	Route registry.Route

	// Asleep is set if Route is a device that sleeps. With Queue, the call joins its queue without looking for it.
	Asleep bool

	Asked     *Suspended // continues a child that needed approval and is now allowed; nil: a new child
	AllowedBy string     // who allowed it, for the audit log
	Refused   error      // why Asked must not run: it ends with this error; nil: it may
}

// child is what the request of a child has besides that of any call of a local tool.
type child struct {
	ChildCall
	parent string // the id of the tool's own call
}

// CallChild is CallDevice for one of many devices. The record of the call names the tool's own call as its parent.
// Policy, limits, hooks, validation, audit log and approvals apply to each child. A child that needs approval does not
// ask for it: CallChild returns an Outcome with Suspended. The tool asks once for all its children with AskTogether,
// then continues each with ChildCall.Asked. The loop guard counts only the tool's own call.
func CallChild(ctx context.Context, c ChildCall) (Outcome, error) {
	call := toolCallOf(ctx)
	of := &child{ChildCall: c, parent: call.inv.CallID}
	of.Route.Target.Viewer = cmp.Or(call.inv.Caller.Viewer(), of.Route.Target.Viewer)
	return call.device(ctx, c.DeviceCall, of)
}

// CallID returns the id of the call of a local tool. ctx is that of its Execute.
func CallID(ctx context.Context) string { return toolCallOf(ctx).inv.CallID }

// Subject identifies what a person is asked about, without the device. One approval can cover suspended children with
// equal subjects: the same tool, definition and arguments, the same owner of the devices, and the same approvers.
func (s *Suspended) Subject() string {
	a := s.Approval
	a.SessionID, a.DeviceID = "", ""
	return string(a.By) + " " + strconv.FormatBool(a.Unowned) + " " +
		registry.GrantOf(a, registry.ScopeAlwaysArgs).Binding()
}

// AskTogether asks a person once about suspended children of the running local tool, and waits for the answer. They
// must have one Subject and be at most registry.MaxApprovedDevices. It returns who allowed them, or an *registry.Error
// with DispatchedNo that says why they must not run. The clock of the tool stops meanwhile. If ctx ends, the question
// is withdrawn.
func AskTogether(ctx context.Context, children []*Suspended) (allowedBy string, err error) {
	call := toolCallOf(ctx)
	if call.invoker == nil {
		return "", errNoToolCall()
	}
	i, outer := call.invoker, call.prepared
	a := together(children)
	a.CallID, a.Pod = call.inv.CallID, i.cfg.Pod
	life := min(cmp.Or(a.Within, i.cfg.ApprovalTimeout), MaxApprovalTimeout, call.clock.stopAllowance())
	if !outer.within.IsZero() {
		life = min(life, time.Until(outer.within)*9/10) // leaves a tenth for the devices
	}
	if life <= 0 {
		return "", registry.Errorf(registry.CodeTimeout, "The call timed out before a person could be asked.").
			With(registry.DispatchedNo)
	}
	defer call.clock.stop()()
	waiting, span := trace.Start(onlyDeadline(ctx), trace.Internal, "await_approval", "")
	defer func() { span.Text(trace.Approval, a.ID).Text(trace.Rule, a.Rule).End(string(registry.CodeOf(err))) }()
	asked, err := i.cfg.Approvals.Ask(timed{waiting, time.Now().Add(life)}, a, life, nil)
	if err == nil {
		call.reportApproval(asked)
		asked, err = i.cfg.Approvals.Await(waiting, asked)
		call.reportApproval(asked)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		err = registry.Errorf(registry.CodeCancelled, "The call was cancelled while it waited for approval.")
	case err == nil:
		err = denial(asked)
	}
	if err != nil {
		e := *undispatched(err)
		if e.Rule == "" && e.Code == registry.CodeApprovalDenied {
			e.Rule = a.Rule
		}
		return "", &e
	}
	return approverOf(asked), nil
}

// reportApproval reports one approval at a time, because a group call may ask several questions.
func (call *toolCall) reportApproval(a registry.Approval) {
	call.mu.Lock()
	defer call.mu.Unlock()
	call.prepared.reportApproval(a)
}

// together returns one approval of what the approvals of several children ask, which names their devices.
func together(children []*Suspended) registry.Approval {
	a := children[0].Approval
	a.ID = registry.NewApprovalID()
	a.SessionID, a.DeviceID, a.DeviceName, a.Approvers = "", "", "", nil
	for _, c := range children {
		a.Devices = append(a.Devices, registry.ApprovedDevice{
			SessionID: c.Approval.SessionID, DeviceID: c.Approval.DeviceID, Name: c.Approval.DeviceName,
			UserID: c.Approval.Owner,
		})
	}
	slices.SortFunc(a.Devices, func(a, b registry.ApprovedDevice) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.DeviceID, b.DeviceID),
			cmp.Compare(a.SessionID, b.SessionID))
	})
	a.Reason = fmt.Sprintf("%s The call is for %d devices.", a.Reason, len(children))
	return a
}
