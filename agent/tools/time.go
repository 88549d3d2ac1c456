package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	_ "time/tzdata" // the image of the gateway has no time zones of its own

	"github.com/farhand/farhand/registry"
)

// clock is the tool time.
type clock struct{ now func() time.Time }

// Spec implements agent.Tool.
func (clock) Spec() registry.ToolSpec {
	return registry.ToolSpec{
		Name:        "time",
		Description: "The present date and time, in UTC unless a time zone is given.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"timezone":{"type":"string","minLength":1,` +
			`"maxLength":64,"description":"IANA name, as Europe/Vienna; default UTC"}},"additionalProperties":false}`),
		Annotations: ownWorld(readOnly()),
	}
}

// Execute implements agent.Tool.
func (c clock) Execute(_ context.Context, args json.RawMessage) (registry.Result, error) {
	var in struct {
		Timezone string `json:"timezone"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return registry.Result{}, err
	}
	if in.Timezone == "" {
		in.Timezone = "UTC"
	}
	zone, err := time.LoadLocation(in.Timezone)
	if err != nil || in.Timezone == "Local" { // where the gateway stands is no business of its callers
		return failed(fmt.Sprintf("%.64q is no known time zone. Use an IANA name, as Europe/Vienna or UTC.",
			in.Timezone)), nil
	}
	now := c.now().In(zone)
	abbreviation, offset := now.Zone()
	text := fmt.Sprintf("%s, %s (%s, %s), unix %d",
		now.Format(time.RFC3339), now.Weekday(), in.Timezone, abbreviation, now.Unix())
	return answer(text, struct {
		Time     string `json:"time"` // RFC 3339
		Timezone string `json:"timezone"`
		Offset   int    `json:"utc_offset_seconds"`
		Weekday  string `json:"weekday"`
		Unix     int64  `json:"unix"`
	}{now.Format(time.RFC3339), in.Timezone, offset, now.Weekday().String(), now.Unix()})
}
