package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/tools/internal/localtool"
	"github.com/farhand/farhand/registry"
)

// maxSaid limits the text of status and describe, in bytes.
const maxSaid = 32 << 10

// row is one device in the answer of status.
type row struct {
	DeviceID  string   `json:"device_id,omitempty"`
	SessionID string   `json:"session_id,omitempty"` // empty: not connected
	Name      string   `json:"name,omitempty"`
	Platform  string   `json:"platform,omitempty"`
	Connected bool     `json:"connected"`
	Paired    bool     `json:"paired"`
	Since     string   `json:"since,omitempty"` // when it connected, or was paired if it is not connected; RFC 3339
	Commands  []string `json:"commands,omitempty"`
}

type devices struct {
	Devices []row `json:"devices"`
	More    bool  `json:"more"` // some devices are not shown
}

// status lists the devices that the caller reaches. Approvers also see paired devices that are not connected.
func (n nodes) status(ctx context.Context, id string) (registry.Result, error) {
	list := devices{Devices: []row{}}
	q, reaches := n.scope(ctx)
	if reaches {
		found, more, err := n.list(ctx, q, maxDevices)
		if err != nil {
			return registry.Result{}, err
		}
		list.More = more
		for _, e := range found {
			list.Devices = append(list.Devices, n.rowOf(ctx, e))
		}
	}
	if reaches && q.SessionID == "" && n.cfg.Pairing != nil && n.sc.Caller.Approves() {
		away, more, err := n.away(ctx, q.Viewer, list.Devices)
		if err != nil {
			return registry.Result{}, err
		}
		list.Devices, list.More = append(list.Devices, away...), list.More || more
	}
	if id != "" {
		list.Devices = slices.DeleteFunc(list.Devices, func(r row) bool {
			return r.DeviceID != id && r.SessionID != id
		})
	}
	return localtool.Result(list.say(), list)
}

func (n nodes) rowOf(ctx context.Context, e registry.Entry) row {
	s := e.Session
	r := row{
		DeviceID: s.DeviceID, SessionID: s.Key.Session, Name: s.DeviceName, Platform: s.Platform, Connected: true,
		Paired: s.Bound, Since: s.Seniority().UTC().Format(time.RFC3339),
	}
	r.Name = cmp.Or(r.Name, s.Name)
	for _, t := range n.commands(ctx, e) {
		r.Commands = append(r.Commands, t.Name)
	}
	return r
}

// away returns the paired devices that are not in connected.
func (n nodes) away(ctx context.Context, user string, connected []row) (rows []row, more bool, err error) {
	after := ""
	for range maxPages {
		page, next, err := n.cfg.Pairing.Devices(ctx, n.viewer(user), after, maxDevices)
		if err != nil {
			return nil, false, err
		}
		for _, c := range page {
			here := slices.ContainsFunc(connected, func(r row) bool { return r.Paired && r.DeviceID == c.DeviceID })
			if !here && len(rows) < maxDevices {
				rows = append(rows, row{DeviceID: c.DeviceID, Name: c.Name, Paired: true,
					Since: c.CreatedAt.UTC().Format(time.RFC3339)})
			}
		}
		if next == "" {
			return rows, false, nil
		}
		after = next
	}
	return rows, true, nil
}

// say returns the devices as text.
func (d devices) say() string {
	if len(d.Devices) == 0 {
		return "No device that you can use is connected."
	}
	var b strings.Builder
	for i, r := range d.Devices {
		line := "- " + deviceLabel(registry.Session{
			Key: registry.Key{Session: r.SessionID}, DeviceID: r.DeviceID, DeviceName: r.Name,
		})
		switch {
		case !r.Connected:
			line = fmt.Sprintf("- %q, called %q: paired since %s, not connected", r.DeviceID, r.Name, r.Since)
		default:
			if r.Platform != "" {
				line += fmt.Sprintf(" on %q", r.Platform)
			}
			if r.Paired {
				line += ", paired"
			}
			line += fmt.Sprintf(", connected since %s: %s", r.Since, strings.Join(r.Commands, ", "))
		}
		if b.Len()+len(line) > maxSaid {
			fmt.Fprintf(&b, "… and %d more; give a deviceId.\n", len(d.Devices)-i)
			break
		}
		b.WriteString(line + "\n")
	}
	if d.More {
		b.WriteString("More devices exist; give a deviceId.\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// described is one command in the answer of describe.
type described struct {
	Command       string                 `json:"command"`
	Description   string                 `json:"description,omitempty"`
	Parameters    json.RawMessage        `json:"parameters,omitempty"` // omitted if too long
	SecurityLevel registry.SecurityLevel `json:"security_level,omitempty"`
}

// describe describes the commands of a device. Without an id, it is the only device.
func (n nodes) describe(ctx context.Context, id string) (registry.Result, error) {
	e, err := n.one(ctx, id)
	if err != nil {
		return registry.Result{}, err
	}
	said := struct {
		row
		Described []described `json:"described"`
	}{n.rowOf(ctx, e), []described{}}
	var b strings.Builder
	b.WriteString("Commands of " + deviceLabel(e.Session) + ":\n")
	commands := n.commands(ctx, e)
	for i, t := range commands {
		d := described{t.Name, t.Description, t.Parameters, t.SecurityLevel}
		text := fmt.Sprintf("- %s: %q, params %s", t.Name, t.Description, t.Parameters)
		if b.Len()+len(text) > maxSaid {
			text, d.Parameters = fmt.Sprintf("- %s: %q", t.Name, t.Description), nil
		}
		if b.Len()+len(text) > 2*maxSaid {
			fmt.Fprintf(&b, "… and %d more.\n", len(commands)-i)
			break
		}
		b.WriteString(text + "\n")
		said.Described = append(said.Described, d)
	}
	return localtool.Result(strings.TrimSuffix(b.String(), "\n"), said)
}

// one returns the device with an id. Without an id, it returns the only device.
func (n nodes) one(ctx context.Context, id string) (registry.Entry, error) {
	if id != "" {
		return n.choose(ctx, id, "")
	}
	q, reaches := n.scope(ctx)
	if !reaches {
		return registry.Entry{}, n.unreachable(ctx, "")
	}
	found, more, err := n.list(ctx, q, maxListed)
	switch {
	case err != nil:
		return registry.Entry{}, err
	case len(found) == 0:
		return registry.Entry{}, n.unreachable(ctx, "")
	case len(found) > 1 || more:
		return registry.Entry{}, ambiguous("Several devices are connected. Select one", found)
	}
	return found[0], nil
}

var (
	_ agent.ArgsValidator  = deviceTool{}
	_ agent.DeviceCaller   = deviceTool{}
	_ agent.CallAuthorizer = nodesTool{}
)
