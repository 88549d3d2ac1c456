package client

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"
)

// Tool is what the gateway and its agents learn about a tool.
type Tool struct {
	Name        string          // a letter, then letters, digits, _, . or -; at most 64 characters
	Description string          // what it does, for a model to read; 1,024 characters are kept
	Parameters  json.RawMessage // JSON Schema of the arguments, an object; nil means that anything goes
	Timeout     time.Duration   // how long callers should wait by default; zero leaves it to the gateway
	Hints       Hints

	// SecurityLevel is safe, user_confirm or admin_only; empty means safe.
	SecurityLevel string

	// OutputSchema is the JSON Schema of what the tool returns; nil means that anything may come. The gateway marks
	// answers that do not satisfy it.
	OutputSchema json.RawMessage
}

// Hints describe to people and models what a call does to the world; nil leaves it open.
type Hints struct {
	ReadOnly    *bool
	Destructive *bool
	Idempotent  *bool
	OpenWorld   *bool
}

// Call is one invocation.
type Call struct {
	ID   string
	Tool string
	Args json.RawMessage // a JSON object that satisfies the tool's parameters, checked by the gateway

	// Deadline is when the caller stops waiting. A later answer goes into the call's record.
	Deadline time.Time

	reporter *reporter // nil in calls that no Client made
}

// Bind decodes the arguments into v, as encoding/json does.
func (c Call) Bind(v any) error { return json.Unmarshal(c.Args, v) }

// Awaited returns a context that also ends when the caller has stopped waiting: for a handler that should not go on
// then, as one that asks a person. stop must be called.
func (c Call) Awaited(ctx context.Context) (awaited context.Context, stop context.CancelFunc) {
	if c.Deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, c.Deadline.Add(deadlineGrace))
}

// Handler answers a call. A string is the output as it is, nil is an empty output, a Result has parts beside its
// output, anything else is sent as JSON. An error means that the tool failed; its text goes to the caller. ctx ends
// when the gateway cancels the call and when Run ends. It does not end at the call's deadline: a late answer is kept in
// the call's record, up to 15 minutes later, when ctx ends. Call.Awaited is for work that is of no use then. Handlers
// run concurrently, and a late one keeps its place among them.
type Handler func(ctx context.Context, call Call) (any, error)

// namePattern is what names must match at least; docs/protocol.md has the rest, which the gateway checks. A length in
// the expression would make it 1.4 MB.
var namePattern = regexp.MustCompile(`^[\p{L}\p{Nd}_][\p{L}\p{M}\p{Nd}_.-]*$`)

const maxName = 64 // characters

func (t Tool) validate() error {
	if !namePattern.MatchString(t.Name) || utf8.RuneCountInString(t.Name) > maxName {
		return fmt.Errorf("client: the tool name %.80q does not match %s, or has more than %d characters", t.Name,
			namePattern, maxName)
	}
	if len(t.Parameters) > 0 && !json.Valid(t.Parameters) {
		return fmt.Errorf("client: the parameters of %s are not valid JSON", t.Name)
	}
	if len(t.OutputSchema) > 0 && !json.Valid(t.OutputSchema) {
		return fmt.Errorf("client: the output schema of %s is not valid JSON", t.Name)
	}
	if t.Timeout < 0 {
		return fmt.Errorf("client: the timeout of %s is negative", t.Name)
	}
	return nil
}
