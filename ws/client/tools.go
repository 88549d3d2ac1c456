package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"
)

// AddTool offers a tool from now on, or replaces the tool of that name. If the handler is nil, the handler of
// WithHandler answers its calls. With a connection, AddTool registers the tool immediately. The next State shows
// whether the gateway accepts it.
func (c *Client) AddTool(t Tool, h Handler) error {
	if err := t.validate(); err != nil {
		return err
	}
	frames, err := c.registerFrames([]Tool{t})
	if err != nil {
		return err
	}
	c.registration.Lock()
	defer c.registration.Unlock()
	c.mu.Lock()
	c.offers[t.Name] = offer{t, h}
	c.mu.Unlock()
	for _, frame := range frames {
		c.send(frame)
	}
	return nil
}

// RemoveTool stops offering a tool. Running calls of it are still answered. The error is always nil.
func (c *Client) RemoveTool(name string) error {
	c.registration.Lock()
	defer c.registration.Unlock()
	c.mu.Lock()
	_, there := c.offers[name]
	delete(c.offers, name)
	c.mu.Unlock()
	if there {
		c.send(sent{Type: "unregister_tools", Names: []string{name}}.encode())
	}
	return nil
}

// attach sends the first frame, which decides whether the client gets the session. A failure also ends the reading,
// which returns the gateway's reason if it closed the connection.
func (c *Client) attach(l *link) {
	c.mu.Lock()
	connect := c.cfg.connectFrame(c.token)
	c.mu.Unlock()
	c.sendOn(l, connect)
}

// begin makes l the current connection when its session_start comes, and registers all tools within the limits that it
// announces.
func (c *Client) begin(l *link, f *received) {
	if l.opened {
		return
	}
	l.opened, l.resumed = true, f.Resumed
	defer close(l.started)
	c.mu.Lock()
	c.session, c.limits = f.SessionID, limitsOf(f.Limits)
	if c.token == "" { // the first token stays valid, even if later frames offer others
		c.token = f.ResumeToken
	}
	kept := keptSession{c.session, c.token}
	c.pace.limit(c.limits)
	c.mu.Unlock()
	if err := c.calls.note(keySession, kept, true); err != nil {
		c.cfg.log.Error("session not recorded", "error", err)
	}
	// The lock keeps AddTool and RemoveTool from changing the tools between the list and its sending.
	c.registration.Lock()
	defer c.registration.Unlock()
	c.mu.Lock()
	var tools []Tool
	for _, name := range slices.Sorted(maps.Keys(c.offers)) {
		tools = append(tools, c.offers[name].tool)
	}
	c.mu.Unlock()
	frames, err := c.registerFrames(tools)
	if err != nil {
		return
	}
	if c.foreground != nil && !c.sendOn(l, presenceFrame(*c.foreground)) {
		return
	}
	c.mu.Lock()
	c.link = l
	l.registering = len(frames)
	c.mu.Unlock()
	for _, frame := range frames {
		if !c.sendOn(l, frame) {
			return
		}
	}
}

func (c *Client) detach(l *link) {
	c.mu.Lock()
	if c.link == l {
		c.link = nil
	}
	c.mu.Unlock()
	c.endTurn(turnEnd{err: ErrTurnLost})
}

const (
	registerOverhead = 64   // bytes of a register_tools frame around its definitions
	maxDefinitions   = 1024 // that a gateway takes in a frame
)

// registerFrames returns the frames that register the tools, as many as the frame limit requires. Without tools it
// still returns one frame, whose answer shows that the gateway is ready.
func (c *Client) registerFrames(tools []Tool) ([][]byte, error) {
	var frames [][]byte
	limit := c.frameLimit() - registerOverhead
	batch, size := []json.RawMessage{}, 0
	flush := func() {
		frames = append(frames, sent{Type: "register_tools", Tools: batch}.encode())
		batch, size = nil, 0
	}
	for _, t := range tools {
		raw, err := t.encode()
		if err != nil {
			return nil, err
		}
		if len(batch) > 0 && (size+len(raw) > limit || len(batch) == maxDefinitions) {
			flush()
		}
		batch = append(batch, raw)
		size += len(raw) + 1
	}
	flush()
	return frames, nil
}

// defaultFrame is the largest sent frame of a gateway that does not announce one.
const defaultFrame = 1 << 20

// frameLimit returns the largest frame that the client sends.
func (c *Client) frameLimit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := cmp.Or(c.limits.Frame, defaultFrame)
	if c.cfg.writeLimit > 0 {
		limit = min(limit, c.cfg.writeLimit)
	}
	return limit
}

// answerLimit returns the largest answer of a call.
func (c *Client) answerLimit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.writeLimit > 0 {
		return c.cfg.writeLimit
	}
	return max(cmp.Or(c.limits.Frame, defaultFrame), c.limits.Output)
}

// send writes a frame to the connection, if there is one, and reports whether it did. A failure ends the connection.
// The next connection registers the tools and sends the answers again.
func (c *Client) send(frame []byte) bool {
	l := c.current()
	return l != nil && c.sendOn(l, frame)
}

func (c *Client) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

// sendOn writes a frame to one connection and reports whether it succeeded.
func (c *Client) sendOn(l *link, frame []byte) bool {
	err := l.send(frame)
	if err != nil {
		c.cfg.log.Debug("frame not sent", "error", err)
	}
	return err == nil
}

// Tool describes a tool to the gateway and its agents.
type Tool struct {
	// Name is a letter, then letters, digits, _, . or -; at most 64 characters.
	Name string `json:"name"`

	// Description says what the tool does, for a model. The gateway keeps 1,024 characters.
	Description string `json:"description"`

	// Parameters is the JSON Schema of the arguments, which are an object. Nil: any arguments.
	Parameters json.RawMessage `json:"parameters,omitempty"`

	// Timeout is the default timeout of callers. Zero: the gateway's default.
	Timeout time.Duration `json:"-"`

	Hints Hints `json:"annotations,omitzero"`

	// Effects says what calls do outside the gateway. Nil: unknown.
	Effects *Effects `json:"effects,omitempty"`

	// Tags are up to 16 short names by which callers filter tools.
	Tags []string `json:"tags,omitempty"`

	// SecurityLevel is safe, user_confirm or admin_only; empty means safe.
	SecurityLevel string `json:"security_level,omitempty"`

	// OutputSchema is the JSON Schema of the tool's output; nil means any output. The gateway marks answers that do not
	// satisfy it.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
}

func (t Tool) encode() ([]byte, error) {
	return encode(struct {
		Tool
		TimeoutMS int64 `json:"timeout_ms,omitempty"`
	}{t, t.Timeout.Milliseconds()})
}

// Hints describe the effects of a call to people and models. Nil means unspecified.
type Hints struct {
	ReadOnly    *bool `json:"readOnlyHint,omitempty"`
	Destructive *bool `json:"destructiveHint,omitempty"`
	Idempotent  *bool `json:"idempotentHint,omitempty"`
	OpenWorld   *bool `json:"openWorldHint,omitempty"`
}

// Effects are what a tool declares about its calls. Empty members are unknown.
type Effects struct {
	// Class is read, write, external (reaches systems of others) or people (reaches a person).
	Class string `json:"class,omitempty"`

	// NeedsForeground means that the tool works only while the app is in the foreground: see Client.SetForeground.
	NeedsForeground bool `json:"needs_foreground,omitempty"`

	Permission string `json:"permission,omitempty"` // of the platform, such as camera
	Cost       string `json:"cost,omitempty"`       // free, metered or high
	TypicalMS  int64  `json:"typical_ms,omitempty"` // how long a call usually takes
}

// Call is one invocation.
type Call struct {
	ID   string
	Tool string
	Args json.RawMessage // a JSON object that satisfies the tool's parameters, checked by the gateway

	// Deadline is when the caller stops waiting. A later answer goes into the call's record.
	Deadline time.Time

	// Traceparent is the W3C header of the trace that the call belongs to, for requests and spans of the handler.
	// Empty: the gateway makes no traces.
	Traceparent string

	client *Client         // nil if no Client made the call
	ctx    context.Context // of the handler
}

// Bind decodes the arguments into v with encoding/json.
func (c Call) Bind(v any) error { return json.Unmarshal(c.Args, v) }

// Awaited returns a context that also ends when the caller has stopped waiting. It is for handlers that must not
// continue then, such as one that asks a person. The caller must call stop.
func (c Call) Awaited(ctx context.Context) (awaited context.Context, stop context.CancelFunc) {
	if c.Deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, c.Deadline.Add(deadlineGrace))
}

// Handler answers a call. A string result is the output itself, nil is an empty output, a Result has an output and
// parts, anything else is sent as JSON. An error means that the tool failed; the caller gets its text. ctx ends when
// the gateway cancels the call, and when Run ends. It does not end at the call's deadline, because a late answer is
// kept in the call's record. It ends 15 minutes after the deadline. Use Call.Awaited for work that is useless after the
// deadline. Handlers run concurrently, and a late one still counts toward WithParallelism.
type Handler func(ctx context.Context, call Call) (any, error)

// namePattern is a necessary condition for names. The gateway checks the other rules, which are in docs/protocol.md. A
// length limit in the expression would make it 1.4 MB large.
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
