// Package tools implements two of the gateway's own tools: time and sessions. Each must be enabled by name.
//
// Start reading at Registrations. A new tool is a copy of time, the smallest one, or a file like sessions.go.
package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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
