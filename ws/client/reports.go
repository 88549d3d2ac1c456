package client

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
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

// reporter sends the reports of a running handler.
type reporter struct {
	client *Client
	ctx    context.Context // of the handler
}

// Progress reports the call's progress to its followers. A total of zero or less means that the total is unknown. The
// message may be empty; longer messages are cut to 1 KiB. The report is dropped if reports come too fast or the client
// is not connected.
func (c Call) Progress(progress, total float64, message string) {
	if c.reporter == nil {
		return
	}
	frame, err := progressFrame(c.ID, progress, total, truncate(message, maxMessage))
	if err != nil { // not a number, or not a finite one
		c.reporter.client.cfg.log.Warn("progress not sent", "call", c.ID, "error", err)
		return
	}
	if c.reporter.client.pace.try() {
		c.reporter.client.notify(c.ID, frame)
	}
}

// Chunk sends a part of the output early to the call's followers. The handler must still return the complete output.
// Chunk blocks while chunks come too fast. Chunks sent without a connection are lost.
func (c Call) Chunk(text string) {
	if c.reporter == nil {
		return
	}
	limit := min(maxChunk, c.reporter.client.cfg.writeLimit/8) // JSON may need six bytes for one
	for text != "" {
		part := truncate(text, limit)
		if part == "" { // a limit below one character
			return
		}
		text = text[len(part):]
		frame, err := chunkFrame(c.ID, part)
		if err != nil || c.reporter.client.pace.wait(c.reporter.ctx) != nil {
			return
		}
		c.reporter.client.notify(c.ID, frame)
	}
}

// notify sends a frame about a call, unless the call has been answered.
func (c *Client) notify(id string, frame []byte) {
	c.calls.mu.Lock()
	_, running := c.calls.pending[id]
	c.calls.mu.Unlock()
	if running {
		c.send(frame)
	}
}

// acceptLater sends tool_call_accepted if the handler runs longer than acceptAfter. The caller must call stop when the
// handler has ended.
func (c *Client) acceptLater(id string) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(acceptAfter, func() {
		defer close(done)
		if frame, err := acceptedFrame(id); err == nil {
			c.notify(id, frame)
		}
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

// questions holds the questions that the person has not answered. The zero value is empty.
type questions struct {
	done sync.WaitGroup

	mu      sync.Mutex
	waiting map[string]context.CancelCauseFunc // by the id of the approval
}

// add adds a question and returns its context. It returns false if the question is already waiting, or maxQuestions
// are.
func (q *questions) add(ctx context.Context, id string) (context.Context, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.waiting[id]; known || len(q.waiting) >= maxQuestions {
		return nil, false
	}
	if q.waiting == nil {
		q.waiting = make(map[string]context.CancelCauseFunc)
	}
	ctx, q.waiting[id] = context.WithCancelCause(ctx)
	return ctx, true
}

// remove forgets a question and ends its context.
func (q *questions) remove(id string, why error) {
	q.mu.Lock()
	cancel := q.waiting[id]
	delete(q.waiting, id)
	q.mu.Unlock()
	if cancel != nil {
		cancel(why)
	}
}

// decided removes a question that no longer needs an answer.
func (q *questions) decided(id, state string) {
	q.remove(id, fmt.Errorf("the approval is %s already", state))
}

// ask asks the person, unless the question is already waiting.
func (c *Client) ask(ctx context.Context, f *received) {
	if c.cfg.approver == nil || f.ID == "" {
		return
	}
	ctx, first := c.asked.add(ctx, f.ID)
	if !first {
		return
	}
	left := time.Duration(min(max(f.ExpiresMS, 0), maxDeadlineMS)) * time.Millisecond
	question := Question{
		ID: f.ID, Tool: f.Tool, Args: f.Args, Text: f.ArgsText, Reason: f.Reason, Remarks: f.Remarks,
	}
	c.asked.done.Go(func() {
		defer c.asked.remove(question.ID, nil)
		ctx, stop := context.WithTimeout(ctx, left)
		defer stop()
		d := c.decision(ctx, question)
		if ctx.Err() != nil || d != AllowOnce && d != AllowAlways && d != Deny {
			return
		}
		if frame, err := decisionFrame(question.ID, d); err == nil {
			c.send(frame)
		}
	})
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
