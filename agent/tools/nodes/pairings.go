package nodes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/tools/internal/localtool"
	"github.com/farhand/farhand/registry"
)

// waiting is one pairing request in the answer of pending.
type waiting struct {
	ID            string   `json:"id"`
	DeviceID      string   `json:"device_id"`
	DeviceName    string   `json:"device_name,omitempty"`
	Platform      string   `json:"platform,omitempty"`
	Tools         []string `json:"tools"`
	Source        string   `json:"source"`
	AlreadyPaired bool     `json:"already_paired"`
	LooksLike     string   `json:"looks_like,omitempty"`
	Remarks       []string `json:"remarks,omitempty"`
	ExpiresAt     string   `json:"expires_at"` // RFC 3339
}

func waitingOf(v pairing.View) waiting {
	tools := v.Tools
	if tools == nil {
		tools = []string{}
	}
	return waiting{v.ID, v.DeviceID, v.DeviceName, v.Platform, tools, v.Source, v.Known,
		v.LooksLike, v.Remarks, v.ExpiresAt.UTC().Format(time.RFC3339)}
}

// errNoPairing returns the error of gateways without pairing.
func errNoPairing() error {
	return registry.Errorf(registry.CodeNotFound, "Pairing is off on this gateway.").With(registry.DispatchedNo)
}

// pending lists the pairing requests that can be decided without a code.
func (n nodes) pending(ctx context.Context) (registry.Result, error) {
	if n.cfg.Pairing == nil {
		return registry.Result{}, errNoPairing()
	}
	views, err := n.cfg.Pairing.Waiting(ctx, n.viewer(""))
	if err != nil {
		return registry.Result{}, err
	}
	rows, lines := []waiting{}, []string{}
	for _, v := range views {
		rows = append(rows, waitingOf(v))
		if len(lines) < maxDevices {
			line := fmt.Sprintf("- %q, called %q, on %q, from %s, would offer %q", v.DeviceID,
				v.DeviceName, v.Platform, v.Source, v.Tools)
			if v.LooksLike != "" {
				line += fmt.Sprintf("; its id looks like that of another device, %q", v.LooksLike)
			}
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines, "\n")
	if len(rows) == 0 {
		text = "No device waits for a decision, except devices that need the code they show."
	}
	return localtool.Result(text, struct {
		Pending []waiting `json:"pending"`
	}{rows})
}

// decide approves or rejects a pairing request: the one with this code, or the only one of this device.
func (n nodes) decide(ctx context.Context, id, code string, approve bool) (registry.Result, error) {
	if n.cfg.Pairing == nil {
		return registry.Result{}, errNoPairing()
	}
	by, request := n.viewer(""), ""
	if code == "" {
		found, err := n.waitingOf(ctx, by, id)
		if err != nil {
			return registry.Result{}, err
		}
		request = found
	}
	view, err := n.cfg.Pairing.Decide(ctx, by, request, code, pairing.Decision{Approve: approve})
	n.note(view, request, approve, err)
	if err != nil {
		return registry.Result{}, err
	}
	done := map[bool]string{true: "approved", false: "rejected"}[approve]
	return localtool.Result(fmt.Sprintf("The device %q was %s.", view.DeviceID, done), struct {
		DeviceID string `json:"device_id"`
		Status   string `json:"status"`
	}{view.DeviceID, done})
}

// waitingOf returns the id of the only pending request of a device. It also accepts the id of a request.
func (n nodes) waitingOf(ctx context.Context, by pairing.Approver, id string) (string, error) {
	views, err := n.cfg.Pairing.Waiting(ctx, by)
	if err != nil {
		return "", err
	}
	found := ""
	for _, v := range views {
		if v.DeviceID != id && v.ID != id {
			continue
		}
		if found != "" {
			return "", registry.Errorf(registry.CodeInvalidRequest,
				"Several waiting devices have the id %.80q. Give the code that the right device shows.", id)
		}
		found = v.ID
	}
	if found == "" {
		return "", registry.Errorf(registry.CodeNotFound,
			"No device %.80q waits for a decision without a code. Give the code that it shows.", id)
	}
	return found, nil
}

// note writes the decision to the audit log, in the same form as all other ways to decide.
func (n nodes) note(v pairing.View, request string, approve bool, err error) {
	e := registry.AuditEntry{
		Tenant: n.sc.Caller.Tenant, Actor: n.sc.Caller.Actor(), Action: registry.AuditPairDecide, Tool: nameNodes,
		Target: request, DeviceID: v.DeviceID,
	}
	if v.ID != "" {
		e.Target = v.ID
	}
	e.Decide(err)
	switch {
	case err != nil:
	case approve:
		e.Reason = "approved; tools: " + strings.Join(v.Decision.Tools, ", ")
	default:
		e.Outcome, e.Reason = registry.AuditDenied, "rejected"
	}
	n.cfg.Audit.Note(e)
}
