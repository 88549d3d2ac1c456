package nodes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

// waiting is one request to be paired as pending shows it.
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

// errNoPairing is for gateways that pair no devices.
func errNoPairing() error {
	return registry.Errorf(registry.CodeNotFound, "This gateway pairs no devices.").With(registry.DispatchedNo)
}

// pending lists the requests to be paired that can be decided without a code.
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
			line := fmt.Sprintf("- %q, called %q, on %q, from %s, wants to offer %q", v.DeviceID,
				v.DeviceName, v.Platform, v.Source, v.Tools)
			if v.LooksLike != "" {
				line += fmt.Sprintf("; it looks like the device %q and is another one", v.LooksLike)
			}
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines, "\n")
	if len(rows) == 0 {
		text = "No device waits that could be decided without the code it shows."
	}
	return answer(text, struct {
		Pending []waiting `json:"pending"`
	}{rows})
}

// decide approves or rejects the request with a code, or the only one of a device that waits.
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
	return answer(fmt.Sprintf("The device %q was %s.", view.DeviceID, done), struct {
		DeviceID string `json:"device_id"`
		Status   string `json:"status"`
	}{view.DeviceID, done})
}

// waitingOf returns the request of a device that waits.
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
				"Several devices wait that say they are %.80q. Give the code that the right one shows.", id)
		}
		found = v.ID
	}
	if found == "" {
		return "", registry.Errorf(registry.CodeNotFound,
			"No device %.80q waits that could be decided without a code. Give the code that it shows.", id)
	}
	return found, nil
}

// note writes to the audit log what was decided, as for any other way to decide.
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
