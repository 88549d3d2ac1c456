package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

const (
	maxPending      = 1024             // calls that run or wait for a slot; a gateway has far fewer in flight
	maxPendingBytes = 64 << 20         // of these calls; beyond it, a call starts only alone
	defaultDeadline = 30 * time.Second // of a request without deadline_ms

	// deadlineGrace is how long the context of Call.Awaited lives beyond the deadline. Without it, a handler that gives
	// up at the deadline would race the gateway's timer, and the same slow tool would sometimes time out and sometimes
	// fail.
	deadlineGrace = 250 * time.Millisecond

	// lateLimit is how long after its deadline a handler may still run for a late answer. Gateways keep the call's
	// record about as long.
	lateLimit = resendFor

	// maxDeadlineMS keeps a huge deadline_ms from overflowing a time.Duration.
	maxDeadlineMS = int64(24 * time.Hour / time.Millisecond)
)

// calls tracks the calls that run or wait, and the answers of those that ended, so that each call id is answered once.
type calls struct {
	slots chan struct{} // capacity: calls that may run at once
	done  sync.WaitGroup

	mu      sync.Mutex
	pending map[string]pending
	held    int // bytes of pending
	answers answers
	journal *journal // nil: none
	ended   bool     // Run ends: no call starts

	slotsAsked map[string]chan<- *received // by call
}

// pending is a call that runs or waits.
type pending struct {
	cancel context.CancelCauseFunc
	size   int // bytes that it holds
}

// isFull reports whether there is no room for another call of this size. c.mu must be held.
func (c *calls) isFull(size int) bool {
	return len(c.pending) >= maxPending || c.held+size > maxPendingBytes && len(c.pending) > 0
}

// reopen lets calls start, for a new Run.
func (c *calls) reopen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = false
}

// end lets no more calls start, and waits for the answers of the running ones, at most for a time. Their contexts have
// ended.
func (c *calls) end(atMost time.Duration) {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	answered := make(chan struct{})
	go func() { // ends before Run, which waits for the same
		c.done.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(atMost):
	}
}

// startCall runs a call unless its id is known. A call that already runs continues. A call that was answered gets the
// same answer again without running again.
func (c *Client) startCall(ctx context.Context, f *received) {
	if f.ID == "" || len(f.ID) > maxCallID { // ids are kept long after their calls
		c.cfg.log.Warn("call without an id, or with a long one, ignored", "tool", truncate(f.Name, maxCallID))
		return
	}
	timeout := defaultDeadline
	if f.DeadlineMS != nil {
		timeout = time.Duration(min(*f.DeadlineMS, maxDeadlineMS)) * time.Millisecond
	}
	size := len(f.ID) + len(f.Name) + len(f.Args) + len(f.Trace)
	call := Call{ID: f.ID, Tool: f.Name, Args: f.Args, Deadline: time.Now().Add(timeout), Traceparent: f.Trace}
	c.calls.mu.Lock()
	if c.calls.ended {
		c.calls.mu.Unlock()
		return
	}
	frame, answered := c.calls.answers.get(call.ID)
	_, running := c.calls.pending[call.ID]
	if answered || running || c.calls.isFull(size) {
		c.calls.mu.Unlock()
		switch {
		case answered:
			c.send(frame)
		case !running:
			c.send(c.failure(call.ID, "the device has too many calls waiting"))
		}
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c.calls.pending[call.ID] = pending{cancel, size}
	c.calls.held += size
	c.calls.done.Go(func() { // with the lock, so that end waits for it
		defer cancel(nil)
		ctx, stop := context.WithDeadline(ctx, call.Deadline.Add(lateLimit))
		defer stop()
		c.runHandler(ctx, call)
	})
	c.calls.mu.Unlock()
}

func (c *Client) cancelCall(id, reason string) {
	c.calls.mu.Lock()
	call := c.calls.pending[id]
	c.calls.mu.Unlock()
	if call.cancel != nil {
		call.cancel(fmt.Errorf("cancelled by the gateway: %s", reason))
	}
}

// runHandler waits for a slot, at most as long as the caller waits, runs the handler and sends its answer. It also
// answers if the handler panics or ends its goroutine.
func (c *Client) runHandler(ctx context.Context, call Call) {
	var frame []byte
	var failed error // error of the handler
	began := time.Now()
	defer func() {
		if p := recover(); p != nil {
			c.cfg.log.Error("panic in a tool's handler", "tool", call.Tool, "panic", p, "stack", string(debug.Stack()))
			frame = c.failure(call.ID, fmt.Sprintf("panic: %v", p))
		}
		if frame == nil { // runtime.Goexit
			frame = c.failure(call.ID, "the handler exited without a result")
		}
		c.cfg.log.Debug("call answered", "tool", call.Tool, "call", call.ID, "took", time.Since(began), "error", failed)
		c.answer(call.ID, frame)
	}()
	c.cfg.log.Debug("call", "tool", call.Tool, "call", call.ID)
	if err := c.takeSlot(ctx, call); err != nil {
		frame = c.failure(call.ID, "not started: "+err.Error())
		return
	}
	defer func() { <-c.calls.slots }()
	handler, problem := c.handler(call.Tool)
	switch {
	case len(call.Args) == 0 || string(call.Args) == "null":
		call.Args = json.RawMessage("{}")
	case call.Args[0] != '{':
		handler, problem = nil, "the arguments are not an object"
	}
	if handler == nil {
		frame = c.failure(call.ID, problem)
		return
	}
	if err := c.calls.note(callPrefix+call.ID, keptCall{At: began.UnixMilli()}, true); err != nil {
		frame = c.failure(call.ID, "not started: the device cannot record the call: "+err.Error())
		return
	}
	call.client, call.ctx = c, ctx
	defer c.acceptLater(call.ID)() // runs before the answer is sent, because deferred functions run in reverse order
	output, err := handler(ctx, call)
	if err != nil {
		failed, frame = err, c.failure(call.ID, err.Error())
		return
	}
	frame = c.success(call.ID, output)
}

// takeSlot waits for a slot. It fails if the caller stops waiting or the call is cancelled, so such calls never start.
func (c *Client) takeSlot(ctx context.Context, call Call) error {
	ctx, stop := call.Awaited(ctx)
	defer stop()
	select {
	case c.calls.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handler returns the handler of a tool, or the text to fail with.
func (c *Client) handler(tool string) (Handler, string) {
	c.mu.Lock()
	o, known := c.offers[tool]
	c.mu.Unlock()
	switch {
	case !known:
		return nil, fmt.Sprintf("Unknown tool %q", tool)
	case o.handler != nil:
		return o.handler, ""
	case c.cfg.fallback != nil:
		return c.cfg.fallback, ""
	default:
		return nil, "No handler registered"
	}
}

// answer stores the answer and sends it if there is a connection. Otherwise resend sends it on the next connection.
func (c *Client) answer(id string, frame []byte) {
	now := time.Now()
	if err := c.calls.note(callPrefix+id, keptCall{At: now.UnixMilli(), Frame: string(frame)}, true); err != nil {
		c.cfg.log.Error("answer not recorded", "call", id, "error", err)
	}
	c.calls.mu.Lock()
	c.calls.held -= c.calls.pending[id].size
	delete(c.calls.pending, id)
	c.calls.forget(c.calls.answers.put(id, frame, now))
	c.calls.mu.Unlock()
	l := c.current()
	if l == nil {
		return
	}
	c.calls.mu.Lock()
	_, toSend := c.calls.answers.claim(id, l.number) // false if resend has already sent it
	c.calls.mu.Unlock()
	if toSend {
		c.sendOn(l, frame)
	}
}

// resend sends the answers on a new connection that were not acknowledged on an earlier one. They may have been lost,
// and the gateway keeps their calls open for a while.
func (c *Client) resend(ctx context.Context, l *link) {
	select {
	case <-l.started:
	case <-ctx.Done():
		return
	}
	for {
		c.calls.mu.Lock()
		frame, ok := c.calls.answers.claimNext(l.number, time.Now())
		c.calls.mu.Unlock()
		if !ok || c.pace.wait(ctx) != nil || !c.sendOn(l, frame) {
			return
		}
	}
}

func (c *Client) success(id string, output any) []byte {
	var parts []Part
	if r, ok := output.(Result); ok {
		output, parts = r.Output, r.Parts
	}
	if raw, ok := output.(json.RawMessage); ok && len(raw) == 0 {
		output = nil
	}
	frame, err := resultFrame(id, output, parts)
	switch {
	case err != nil:
		return c.failure(id, "the output cannot be sent as JSON: "+err.Error())
	case len(frame) > c.answerLimit():
		return c.failure(id, fmt.Sprintf("the output is too large: %d bytes, at most %d can be sent",
			len(frame), c.answerLimit()))
	}
	return frame
}

func (c *Client) failure(id, text string) []byte {
	if limit := c.frameLimit() / 8; len(text) > limit { // JSON may need six bytes for one
		text = text[:limit]
	}
	return sent{Type: "tool_error", ID: id, Error: &text, Success: new(false)}.encode()
}

// Bounds of the stored answers. They answer repeated requests, and are sent again until they are acknowledged.
const (
	maxAnswers     = 1024
	maxAnswerBytes = 16 << 20
	resendFor      = 15 * time.Minute
)

// answers keeps the latest answers by call id. It is not safe for concurrent use.
type answers struct {
	byID  map[string]*answer
	order []*answer // oldest first
	size  int       // bytes of frames
}

type answer struct {
	id           string
	frame        []byte // as it was sent
	at           time.Time
	link         int64 // last connection it was sent on; zero: none
	acknowledged bool
}

func (a *answers) get(id string) ([]byte, bool) {
	if kept := a.byID[id]; kept != nil {
		return kept.frame, true
	}
	return nil, false
}

// put stores the first answer of a call and drops the oldest answers beyond the bounds. It returns their calls.
func (a *answers) put(id string, frame []byte, now time.Time) (dropped []string) {
	if _, there := a.byID[id]; there {
		return nil
	}
	if a.byID == nil {
		a.byID = make(map[string]*answer)
	}
	kept := &answer{id: id, frame: frame, at: now}
	a.byID[id] = kept
	a.order = append(a.order, kept)
	a.size += len(frame)
	for len(a.order) > maxAnswers || a.size > maxAnswerBytes && len(a.order) > 1 {
		oldest := a.order[0]
		a.order[0] = nil
		a.order = a.order[1:]
		a.size -= len(oldest.frame)
		delete(a.byID, oldest.id)
		dropped = append(dropped, oldest.id)
	}
	return dropped
}

// acknowledge returns the answer, nil if it is not stored.
func (a *answers) acknowledge(id string) *answer {
	kept := a.byID[id]
	if kept != nil {
		kept.acknowledged = true
	}
	return kept
}

// claim returns the frame of an answer to send on a connection. It returns false if the answer was already sent there,
// is acknowledged or is not stored.
func (a *answers) claim(id string, link int64) ([]byte, bool) {
	kept := a.byID[id]
	if kept == nil || kept.acknowledged || kept.link == link {
		return nil, false
	}
	kept.link = link
	return kept.frame, true
}

// claimNext is claim for the oldest answer to send on a connection.
func (a *answers) claimNext(link int64, now time.Time) ([]byte, bool) {
	for _, kept := range a.order {
		if now.Sub(kept.at) > resendFor {
			continue
		}
		if frame, ok := a.claim(kept.id, link); ok {
			return frame, true
		}
	}
	return nil, false
}

// errUploading is the error of an upload while another upload of the same call waits for its slot.
var errUploading = errors.New("client: one file of a call is uploaded at a time")

// Upload uploads a file that is too large for a result. It returns the part to put into the result instead of p. It
// reads exactly size bytes of file. It works only while the call runs, for one file at a time.
func (c Call) Upload(ctx context.Context, p Part, size int64, file io.Reader) (Part, error) {
	if c.client == nil {
		return p, errors.New("client: the Call does not come from a Client")
	}
	slot, err := c.client.askSlot(ctx, c.ID, p, size)
	if err != nil {
		return p, err
	}
	web := newWeb(c.client.url, c.client.cfg.tls)
	web.client.Timeout = 0 // ctx ends with the call
	defer web.client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, web.base.JoinPath(slot).String(),
		io.LimitReader(file, size))
	if err != nil {
		return p, err
	}
	req.ContentLength = size
	req.Header.Set("Content-Type", p.MIMEType)
	resp, err := web.client.Do(req)
	if err != nil {
		return p, fmt.Errorf("client: upload: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return p, refusal(resp)
	}
	p.Data, p.URL, p.Size = nil, slot, size
	return p, nil
}

func (c *Client) askSlot(ctx context.Context, call string, p Part, size int64) (string, error) {
	frame, err := encode(struct {
		Type     string `json:"type"`
		ID       string `json:"id"`
		MIMEType string `json:"mime_type"`
		Size     int64  `json:"size"`
		Name     string `json:"name,omitempty"`
	}{"upload_request", call, p.MIMEType, size, p.Name})
	if err != nil {
		return "", err
	}
	answer := make(chan *received, 1)
	c.calls.mu.Lock()
	if _, there := c.calls.slotsAsked[call]; there {
		c.calls.mu.Unlock()
		return "", errUploading
	}
	c.calls.slotsAsked[call] = answer
	c.calls.mu.Unlock()
	defer func() {
		c.calls.mu.Lock()
		delete(c.calls.slotsAsked, call)
		c.calls.mu.Unlock()
	}()
	c.send(frame)
	select {
	case slot := <-answer:
		if slot.URL == "" {
			return "", fmt.Errorf("client: the gateway takes no file: %s", slot.Refuse)
		}
		return slot.URL, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (c *Client) slotCame(f *received) {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if answer := c.calls.slotsAsked[f.ID]; answer != nil {
		select {
		case answer <- f:
		default: // already answered
		}
	}
}
