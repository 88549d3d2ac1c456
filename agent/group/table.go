package group

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// Limits of a result that lists the rows.
const (
	maxLines     = 200
	maxLineText  = 2 << 10  // bytes of one device's output
	maxTableText = 64 << 10 // bytes of all outputs
)

// line is a row in the result of the tool.
type line struct {
	CallID    string         `json:"call_id,omitempty"`
	SessionID string         `json:"session_id,omitempty"`
	DeviceID  string         `json:"device_id,omitempty"`
	State     registry.State `json:"state"`
	Output    string         `json:"output,omitempty"`
	Error     string         `json:"error,omitempty"`
	Position  int            `json:"place,omitempty"`     // of a queued call
	Expires   time.Time      `json:"expires_at,omitzero"` // of a queued call
}

// table is the Sink of a call whose result lists the rows, as far as they fit.
type table struct {
	lines []line
	more  int
	bytes int
}

// Begin implements Sink.
func (*table) Begin(string, string) {}

// Prepare implements Sink. Put does not block, so a row does not wait for it.
func (*table) Prepare(context.Context, *Row) {}

// Put implements Sink.
func (t *table) Put(r Row) {
	l := line{
		CallID: r.Outcome.CallID, SessionID: r.SessionID, DeviceID: r.DeviceID, State: r.State,
		Position: r.Outcome.Position, Expires: r.Outcome.Expires,
	}
	switch {
	case r.Err != nil:
		l.Error = registry.TruncateText(r.Err.Message, maxLineText)
	default:
		l.Output = registry.TruncateText(r.Outcome.Result.Output, maxLineText)
		if r.Outcome.Result.Error != r.Outcome.Result.Output {
			l.Error = registry.TruncateText(r.Outcome.Result.Error, maxLineText)
		}
	}
	n := len(l.Output) + len(l.Error)
	if len(t.lines) == maxLines || t.bytes+n > maxTableText {
		t.more++
		return
	}
	t.bytes += n
	t.lines = append(t.lines, l)
}

// describe returns a summary as text. It quotes what devices said, because it is untrusted.
func describe(tool string, s summary) string {
	var b strings.Builder
	c := s.Counts
	fmt.Fprintf(&b, "%s on %d devices: %d succeeded, %d failed, %d cancelled", tool, c.Devices, c.Succeeded, c.Failed,
		c.Cancelled)
	if c.Queued > 0 {
		fmt.Fprintf(&b, ", %d queued", c.Queued)
	}
	if c.Skipped > 0 {
		fmt.Fprintf(&b, ", %d skipped", c.Skipped)
	}
	b.WriteString(".")
	for _, l := range s.Devices {
		fmt.Fprintf(&b, "\n- %q: %s", cmp.Or(l.DeviceID, l.SessionID), l.State)
		if text := cmp.Or(l.Output, l.Error); text != "" {
			fmt.Fprintf(&b, ": %q", text)
		} else if l.Position > 0 {
			fmt.Fprintf(&b, ": waits for the device until %s at the latest", l.Expires.UTC().Format(time.RFC3339))
		}
	}
	if s.More > 0 {
		fmt.Fprintf(&b, "\n… and %d more devices. Narrow devices down to see them.", s.More)
	}
	return b.String()
}
