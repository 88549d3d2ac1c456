// Package tools implements two of the gateway's own tools: time and sessions. Each must be enabled by name.
//
// Start reading at Registrations. A new tool is a copy of time, the smallest one, or like sessions.
package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the image of the gateway has no time zones of its own

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/tools/internal/localtool"
	"github.com/farhand/farhand/registry"
)

// Directory is the part of registry.Directory that the tools need.
type Directory interface {
	List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error)
}

// Deps are the dependencies of the tools.
type Deps struct {
	Directory Directory        // required
	Policy    *agent.Policy    // required; tools that may not be called are not shown
	Now       func() time.Time // default: time.Now
}

// Names returns the names of all tools of the gateway, in this package and those below it. They are reserved.
func Names() []string {
	return []string{
		"time", "sessions", "read", "write", "edit", "exec", "bash", "browser", "nodes", "node-invoke", "canvas",
		"call_devices",
	}
}

// Registrations returns the tools of this package, for agent.NewLocalTools.
func Registrations(d Deps) []agent.Registration {
	if d.Now == nil {
		d.Now = time.Now
	}
	return []agent.Registration{
		{Names: []string{"time"}, Make: func(agent.SessionContext) []agent.Tool { return []agent.Tool{clock(d.Now)} }},
		{Names: []string{"sessions"}, Make: func(sc agent.SessionContext) []agent.Tool {
			return []agent.Tool{sessions{d.Directory, d.Policy, sc}.tool()}
		}},
	}
}

// readOnly returns the annotations of tools that change nothing.
func readOnly() *registry.Annotations {
	return &registry.Annotations{ReadOnlyHint: new(true), IdempotentHint: new(true)}
}

// clock returns the tool time.
func clock(now func() time.Time) agent.Tool {
	a := readOnly()
	a.OpenWorldHint = new(false) // its answers contain no untrusted content
	return localtool.Tool[timeArgs]{
		Run: func(_ context.Context, in timeArgs) (registry.Result, error) { return tellTime(now(), in) },
		Is: registry.ToolSpec{
			Name:        "time",
			Description: "The current date and time, in UTC unless a time zone is given.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"timezone":{"type":"string","minLength":1,` +
				`"maxLength":64,"description":"IANA name, such as Europe/Vienna; default UTC"}},` +
				`"additionalProperties":false}`),
			Annotations: a,
		},
	}
}

type timeArgs struct {
	Timezone string `json:"timezone"`
}

func tellTime(now time.Time, in timeArgs) (registry.Result, error) {
	in.Timezone = cmp.Or(in.Timezone, "UTC")
	zone, err := time.LoadLocation(in.Timezone)
	if err != nil || in.Timezone == "Local" { // callers must not learn the gateway's time zone
		return localtool.Failed(fmt.Sprintf("%.64q is not a time zone. Use an IANA name, such as Europe/Vienna or UTC.",
			in.Timezone)), nil
	}
	now = now.In(zone)
	abbreviation, offset := now.Zone()
	text := fmt.Sprintf("%s, %s (%s, %s), unix %d",
		now.Format(time.RFC3339), now.Weekday(), in.Timezone, abbreviation, now.Unix())
	return localtool.Result(text, struct {
		Time     string `json:"time"` // RFC 3339
		Timezone string `json:"timezone"`
		Offset   int    `json:"utc_offset_seconds"`
		Weekday  string `json:"weekday"`
		Unix     int64  `json:"unix"`
	}{now.Format(time.RFC3339), in.Timezone, offset, now.Weekday().String(), now.Unix()})
}

const (
	maxSessions  = 50      // maximum shown
	maxPages     = 10      // pages that are read; pages may be shorter than their limit
	maxTools     = 50      // maximum shown per session
	maxSaidBytes = 8 << 10 // maximum length of the text, in bytes
)

// sessions is the tool sessions. It lists connected devices and their tools.
type sessions struct {
	directory Directory
	policy    *agent.Policy
	sc        agent.SessionContext
}

// row is one session in the answer.
type row struct {
	SessionID  string   `json:"session_id"`
	Name       string   `json:"name,omitempty"`
	DeviceID   string   `json:"device_id,omitempty"`
	DeviceName string   `json:"device_name,omitempty"`
	Platform   string   `json:"platform,omitempty"`
	Tools      []string `json:"tools"`
	MoreTools  int      `json:"more_tools,omitempty"` // number of tools not shown
}

func (s sessions) tool() agent.Tool {
	return localtool.Tool[sessionsArgs]{Run: s.run, Is: registry.ToolSpec{
		Name:        "sessions",
		Description: "Lists the connected devices and the tools of each.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"tool":{"type":"string","minLength":1,` +
			`"maxLength":64,"description":"only devices that offer the tool with this name"}},` +
			`"additionalProperties":false}`),
		Annotations: readOnly(),
	}}
}

type sessionsArgs struct {
	Tool string `json:"tool"`
}

func (s sessions) run(ctx context.Context, in sessionsArgs) (registry.Result, error) {
	by := s.sc.Asker(ctx)
	q, reaches := s.sc.Devices(by.Model)
	named := registry.ToolSpec{Name: in.Tool}
	if !reaches || in.Tool != "" && (!registry.ValidToolName(in.Tool) || !s.mayCall(by, named)) {
		return localtool.Result(describe(nil, false, in.Tool), listing{Sessions: []row{}})
	}
	q.Tool, q.Newest = in.Tool, true
	rows, more, err := s.list(ctx, by, q)
	if err != nil {
		return registry.Result{}, err
	}
	return localtool.Result(describe(rows, more, in.Tool), listing{Sessions: rows, More: more})
}

type listing struct {
	Sessions []row `json:"sessions"`
	More     bool  `json:"more"` // some sessions are not shown
}

// mayCall reports whether the caller may call a tool of a device.
func (s sessions) mayCall(by agent.Asker, t registry.ToolSpec) bool {
	return agent.MayCall(s.policy, by, t, nil).Allowed
}

// list reads the sessions of a query, newest first.
func (s sessions) list(ctx context.Context, by agent.Asker, q registry.Query) (rows []row, more bool, err error) {
	rows = []row{}
	for range maxPages {
		q.Limit = maxSessions - len(rows)
		entries, next, err := s.directory.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for _, e := range entries {
			rows = append(rows, s.rowOf(by, e))
		}
		if next == nil {
			return rows, false, nil
		}
		if len(rows) >= maxSessions {
			break
		}
		q.After = *next
	}
	return rows, true, nil
}

func (s sessions) rowOf(by agent.Asker, e registry.Entry) row {
	r := row{
		SessionID: e.Session.Key.Session, Name: e.Session.Name, DeviceID: e.Session.DeviceID,
		DeviceName: e.Session.DeviceName, Platform: e.Session.Platform, Tools: []string{},
	}
	for _, t := range e.Tools {
		switch {
		case !s.mayCall(by, t):
		case len(r.Tools) == maxTools:
			r.MoreTools++
		default:
			r.Tools = append(r.Tools, t.Name)
		}
	}
	return r
}

// describe returns the sessions as text of about maxSaidBytes. It quotes names that devices give themselves, because
// they are untrusted.
func describe(rows []row, more bool, tool string) string {
	if len(rows) == 0 {
		if tool != "" {
			return "No device offers this tool."
		}
		return "No device is connected."
	}
	var b strings.Builder
	for i, r := range rows {
		line := fmt.Sprintf("- session %s", r.SessionID)
		if name := cmp.Or(r.DeviceName, r.Name, r.DeviceID); name != "" {
			line += fmt.Sprintf(" %q", name)
		}
		if r.Platform != "" {
			line += fmt.Sprintf(" on %q", r.Platform)
		}
		line += ": " + cmp.Or(strings.Join(r.Tools, ", "), "no tools")
		if r.MoreTools > 0 {
			line += fmt.Sprintf(" and %d more", r.MoreTools)
		}
		if b.Len()+len(line) > maxSaidBytes {
			fmt.Fprintf(&b, "… and %d more of these; give a tool to narrow them down.\n", len(rows)-i)
			break
		}
		b.WriteString(line + "\n")
	}
	if more {
		b.WriteString("More sessions exist; give a tool to narrow them down.\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}
