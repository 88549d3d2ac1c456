package client

import (
	"context"
	"encoding/json"
	"math"
	"runtime/debug"
	"time"
	"unicode/utf8"
)

const (
	// acceptAfter is how long a handler runs before the client sends tool_call_accepted. The answer of a faster handler
	// makes that frame unnecessary.
	acceptAfter = 200 * time.Millisecond

	maxMessage = 1 << 10  // bytes the gateway keeps
	maxChunk   = 64 << 10 // bytes the gateway takes
)

// Progress reports the call's progress to its followers. A total of zero or less means that the total is unknown. The
// message may be empty; longer messages are cut to 1 KiB. The report is dropped if reports come too fast or the client
// is not connected.
func (c Call) Progress(progress, total float64, message string) {
	if c.client == nil {
		return
	}
	if math.IsNaN(progress) || math.IsInf(progress, 0) || math.IsInf(total, 1) {
		c.client.cfg.log.Warn("progress not sent: it must be a finite number", "call", c.ID)
		return
	}
	frame := sent{Type: "tool_progress", ID: c.ID, Progress: &progress, Message: truncate(message, maxMessage)}
	if total > 0 {
		frame.Total = &total
	}
	if c.client.pace.reserve(time.Now(), true) == 0 {
		c.client.notify(frame)
	}
}

// Chunk sends a part of the output early to the call's followers. The handler must still return the complete output.
// Chunk blocks while chunks come too fast. Chunks sent without a connection are lost.
func (c Call) Chunk(text string) {
	if c.client == nil {
		return
	}
	limit := min(maxChunk, c.client.frameLimit()/8) // JSON may need six bytes for one
	for text != "" {
		part := truncate(text, limit)
		if part == "" { // a limit below one character
			return
		}
		text = text[len(part):]
		if c.client.pace.wait(c.ctx) != nil {
			return
		}
		c.client.notify(sent{Type: "tool_progress", ID: c.ID, Chunk: part})
	}
}

// notify sends a frame about a call, unless the call has been answered.
func (c *Client) notify(f sent) {
	c.calls.mu.Lock()
	_, running := c.calls.pending[f.ID]
	c.calls.mu.Unlock()
	if running {
		c.send(f.encode())
	}
}

// acceptLater sends tool_call_accepted if the handler runs longer than acceptAfter. The caller must call stop when the
// handler has ended.
func (c *Client) acceptLater(id string) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(acceptAfter, func() {
		defer close(done)
		c.notify(sent{Type: "tool_call_accepted", ID: id})
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// truncate returns at most n bytes of s, whole characters only.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Question asks the person at the device whether a call may run.
type Question struct {
	ID     string          // id of the approval, as `farhand approve` takes it
	Tool   string          // the tool to call
	Args   json.RawMessage // as the tool receives them
	Text   string          // the arguments for people, with nothing hidden; show this, not Args
	Reason string          // why the call needs approval

	// Remarks name what needs attention in the arguments: "long", "multiline", "hidden" for invisible characters,
	// "foreign" for letters that may look like others.
	Remarks []string
}

// Decision is the person's answer to a Question.
type Decision string

// The decisions. Any other value, including the empty one, decides nothing: the question stays open for other
// approvers.
const (
	AllowOnce   Decision = "allow-once"
	AllowAlways Decision = "allow-always" // this tool with these arguments, until the gateway forgets it
	Deny        Decision = "deny"
)

// Approver asks the person at the device. ctx ends when the answer is no longer needed: another approver has decided,
// the question has expired, or Run ends. The client then ignores the returned decision. The client calls the Approver
// in a separate goroutine for each question, so it must be safe for concurrent use. After a lost connection, a question
// is asked again if its answer may have been lost.
type Approver func(ctx context.Context, q Question) Decision

// maxQuestions bounds the questions that wait for the person. The client ignores further questions; other approvers can
// still answer them.
const maxQuestions = 64

// ask asks the person, unless the question is already waiting.
func (c *Client) ask(ctx context.Context, f *received) {
	if c.cfg.approver == nil || f.ID == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, waits := c.asked[f.ID]; waits || len(c.asked) >= maxQuestions {
		return
	}
	ctx, c.asked[f.ID] = context.WithCancelCause(ctx)
	left := time.Duration(min(max(f.ExpiresMS, 0), maxDeadlineMS)) * time.Millisecond
	question := Question{
		ID: f.ID, Tool: f.Tool, Args: f.Args, Text: f.ArgsText, Reason: f.Reason, Remarks: f.Remarks,
	}
	c.asking.Go(func() {
		defer c.endQuestion(question.ID, nil)
		ctx, stop := context.WithTimeout(ctx, left)
		defer stop()
		d := c.decision(ctx, question)
		if ctx.Err() == nil && (d == AllowOnce || d == AllowAlways || d == Deny) {
			c.send(sent{Type: "approval_response", ID: question.ID, Decision: d}.encode())
		}
	})
}

func (c *Client) endQuestion(id string, why error) {
	c.mu.Lock()
	cancel := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	if cancel != nil {
		cancel(why)
	}
}

// decision asks the approver. A panic in the approver decides nothing.
func (c *Client) decision(ctx context.Context, q Question) (d Decision) {
	defer func() {
		if p := recover(); p != nil {
			c.cfg.log.Error("panic in the approver", "tool", q.Tool, "panic", p, "stack", string(debug.Stack()))
			d = ""
		}
	}()
	return c.cfg.approver(ctx, q)
}
