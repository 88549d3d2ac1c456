package hooks

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// Types of questions.
const (
	typeBefore = "tool.call.before"
	typeAfter  = "tool.call.after"
)

// Ends of the ids of questions; they begin with the id of the call.
const (
	phaseBefore = "before"
	phaseAfter  = "after"
)

// question is the body of a request.
type question struct {
	Type       string        `json:"type"`
	Timestamp  time.Time     `json:"timestamp"`
	Hook       string        `json:"hook"`
	CallID     string        `json:"call_id"`
	Tool       string        `json:"tool"`
	Source     string        `json:"source,omitempty"` // "builtin", "mcp:" and a server, or "remote:" and the session
	SessionID  string        `json:"session_id,omitempty"`
	DeviceID   string        `json:"device_id,omitempty"`
	Caller     caller        `json:"caller"`
	Turn       string        `json:"turn_id,omitempty"`
	DeadlineMS int64         `json:"deadline_ms"` // what remains until the answer is not waited for any more
	Args       registry.JSON `json:"args,omitzero"`
	Result     *result       `json:"result,omitempty"`
}

// caller is who asked for the call.
type caller struct {
	Tenant string   `json:"tenant"`
	User   string   `json:"user,omitempty"`
	Roles  []string `json:"roles,omitempty"` // before the call only
}

// result is what the tool returned: Structured if that is JSON other than a string, else Output. Both are there only if
// another hook has made them differ.
type result struct {
	Success    bool          `json:"success"`
	Output     *string       `json:"output,omitempty"`
	Structured registry.JSON `json:"structured,omitzero"`
	Error      string        `json:"error,omitempty"`
	Parts      []part        `json:"parts,omitempty"`
}

// part describes a part of a result; what it has in it stays in the gateway.
type part struct {
	Index int `json:"index"` // by which an answer says that it stays
	registry.Part
}

// questionOf begins the question about a call.
func (h *Hook) questionOf(kind string, inv agent.Invocation) question {
	return question{
		Type: kind, Hook: h.cfg.Name, CallID: inv.CallID, Tool: inv.Spec.Name,
		Source: inv.Source, SessionID: inv.Session.Key.Session, DeviceID: inv.Session.DeviceID, Turn: inv.Turn,
		Caller: caller{Tenant: inv.Caller.Tenant, User: inv.Caller.User},
	}
}

// resultOf returns the result as a question has it.
func resultOf(r registry.Result) *result {
	res := &result{Success: r.Success, Structured: r.Structured, Error: r.Error}
	if r.Structured.IsZero() || r.Output != r.Structured.String() {
		res.Output = &r.Output
	}
	for i, p := range registry.WithoutData(r.Parts) {
		p.URL = ""
		res.Parts = append(res.Parts, part{i, p})
	}
	return res
}

// size returns how many bytes a result takes in a question, about.
func (r *result) size() int {
	n := r.Structured.Len() + sizeOf(r.Error)
	if r.Output != nil {
		n += sizeOf(*r.Output)
	}
	const names = 60 // bytes, of the members of a part
	for i := range r.Parts {
		n += names + len(r.Parts[i].MIMEType) + sizeOf(r.Parts[i].Name)
	}
	return n
}

// sizeOf returns how many bytes a text takes as JSON: a device may return what takes six times as much as in memory.
func sizeOf(text string) (n int) {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ':
			n += len(`\u0000`)
		case c == '"' || c == '\\':
			n += 2
		default:
			n++
		}
	}
	return n
}

// encode returns the body of a question whose answer is waited for until limit.
func (q question) encode(limit time.Time) ([]byte, error) {
	q.Timestamp, q.DeadlineMS = time.Now().UTC(), max(time.Until(limit).Milliseconds(), 1)
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // a page would become six times as long
	err := enc.Encode(q)
	return body.Bytes(), err
}
