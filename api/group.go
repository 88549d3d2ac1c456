package api

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/group"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// mediaJSON is the media type of the table.
const mediaJSON = "application/json"

// callDevices serves POST /api/calls: a call of the tool call_devices, whose rows are written as they come.
func (h *handler) callDevices(c *gin.Context, _ *params) error {
	if h.Groups == nil {
		return registry.Errorf(registry.CodeNotFound, "This gateway makes no group calls.")
	}
	req, err := h.readGroup(c)
	if err != nil {
		return err
	}
	release, err := h.reserveStream(h.owner(c))
	if err != nil {
		return err
	}
	defer release()
	a := newGroupAnswer(c, h.responses, h.owner(c))
	req.Local = h.Groups.Tool(agent.SessionContext{
		Key: registry.Key{Tenant: req.Caller.Tenant}, Caller: req.Caller, Channel: agent.ChannelCall,
	}, a)
	finishWritingBy(c, time.Now().Add(h.MaxCallTimeout+agent.MaxApprovalTimeout+writeMargin))
	mode := req.Local.(agent.GroupTool).GroupMode(req.Args.Raw())
	failure, gone := a.serve(c, ssewriter.Heartbeat, mode, func(ctx context.Context) (agent.Outcome, error) {
		res, err := h.Invoker.Invoke(ctx, req)
		if err == nil && !a.begun() {
			err = h.replayGroup(ctx, c, a, res)
		}
		return res, err
	})
	if gone != nil {
		h.Log.Debug("answer to a group call cut off", "error", gone)
	}
	return failure
}

// readGroup converts the request to a call of the tool call_devices.
func (h *handler) readGroup(c *gin.Context) (agent.Request, error) {
	type read struct {
		callRequest
		args registry.JSON
	}
	r, err := readAs(h, c, func(body []byte) (r read, err error) {
		r.args, err = parseGroup(body, &r.callRequest)
		return r, err
	})
	if err == nil {
		err = r.readKeyHeader(c.Request.Header.Values("Idempotency-Key"))
	}
	return agent.Request{
		Endpoint: agent.EndpointAPI, CallID: notedCall(c), Caller: caller(c), Tool: group.Name, Args: r.args,
		Timeout: r.timeout, IdempotencyKey: r.key,
	}, err
}

// parseGroup returns the arguments of the tool, which checks them by its schema. The arguments for the devices stay as
// sent.
func parseGroup(body []byte, call *callRequest) (registry.JSON, error) {
	whole := "a whole number above zero"
	r, err := readRequest[wire.GroupRequest](orNothing(body), map[string]string{
		"args": "a JSON object", "target": "a JSON object whose lists and labels have strings", "quorum": whole,
		"stagger_ms": whole, "timeout_ms": whole, "device_timeout_ms": whole, "concurrency": whole,
		"queue": "an object with ttl_ms",
	})
	if err != nil {
		return registry.JSON{}, err
	}
	said := r.said
	switch {
	case said.Tool == "":
		return registry.JSON{}, missing("tool")
	case r.has("select") && said.Select != "all":
		return registry.JSON{}, wrongType("select", `"all"`)
	case r.has("target") && said.Target.IsZero():
		return registry.JSON{}, wrongType("target", "an object with user_id, labels, device_ids or session_ids")
	case r.has("idempotency_key") && said.IdempotencyKey == "":
		return registry.JSON{}, wrongType("idempotency_key", "a text")
	}
	if text, ok := r.fields.get("timeout_ms"); ok {
		if call.timeout, err = readTimeout(text); err != nil {
			return registry.JSON{}, err
		}
	}
	call.key = said.IdempotencyKey
	var queue *group.Queue
	if said.Queue != nil {
		queue = &group.Queue{TTLMS: said.Queue.TTLMS}
	}
	args, err := json.Marshal(group.Args{
		Tool: said.Tool, Mode: said.Mode, Quorum: said.Quorum, StaggerMS: said.StaggerMS,
		TimeoutMS: said.DeviceTimeoutMS, Concurrency: said.Concurrency, Queue: queue,
		Devices: group.Devices{
			All: said.Target.IsZero(), UserID: said.Target.UserID, Labels: said.Target.Labels,
			DeviceIDs: said.Target.DeviceIDs, SessionIDs: said.Target.SessionIDs,
		},
	})
	if err != nil {
		return registry.JSON{}, err
	}
	if text, ok := r.fields.get("args"); ok {
		args = append(append(append(args[:len(args)-1], `,"args":`...), text...), '}')
	}
	return registry.ParseJSON(args)
}

// groupAnswer writes the answer to a group call. It implements group.Sink. It is safe for concurrent use: with an
// idempotency key the call outlives its request, and rows that come after detach are dropped.
type groupAnswer struct {
	format ssewriter.Format
	memory *byteBudget // of rows over smallResponse bytes, from when their devices have answered
	by     share.Owner

	dropped atomic.Bool // out is nil

	mu     sync.Mutex
	out    *ssewriter.TurnStream // nil: detached
	id     string                // of the parent call; empty: not begun
	mode   string
	rows   int
	counts registry.GroupCounts
}

// newGroupAnswer returns an answer in the format that the request accepts: server-sent events, lines, or a table.
func newGroupAnswer(c *gin.Context, memory *byteBudget, by share.Owner) *groupAnswer {
	a := &groupAnswer{memory: memory, by: by}
	accepted := strings.Join(c.Request.Header.Values("Accept"), ",")
	switch {
	case strings.Contains(accepted, ssewriter.Events().MediaType):
		a.format = ssewriter.Events()
	case strings.Contains(accepted, mediaNDJSON):
		a.format = ssewriter.Format{MediaType: mediaNDJSON, Heartbeat: "\n"}
	default:
		a.format = ssewriter.Format{MediaType: mediaJSON, Heartbeat: "\n"}
	}
	return a
}

// serve calls run and writes the answer. A refusal is returned, unless the answer has begun with a heartbeat: then the
// answer says it.
func (a *groupAnswer) serve(
	c *gin.Context, grace time.Duration, mode string, run func(context.Context) (agent.Outcome, error),
) (failure, gone error) {
	return ssewriter.Serve(c.Request.Context(), c, a.format, grace,
		func(ctx context.Context, out *ssewriter.TurnStream) (func(), error) {
			defer a.detach()
			a.attach(out)
			res, err := run(ctx)
			if err != nil && !a.begun() {
				return func() {
					a.attach(out)
					a.Begin(notedCall(c), mode)
					a.end(res, err)
				}, err
			}
			a.end(res, err)
			return func() {}, nil
		})
}

func (a *groupAnswer) attach(out *ssewriter.TurnStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.out = out
	a.dropped.Store(out == nil)
}

func (a *groupAnswer) detach() { a.attach(nil) }

func (a *groupAnswer) begun() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id != ""
}

// Begin implements group.Sink.
func (a *groupAnswer) Begin(callID, mode string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.id, a.mode = callID, mode
	head, _ := json.Marshal(map[string]string{"call_id": callID, "mode": mode}) // cannot fail: texts
	if a.format.MediaType == mediaJSON {
		a.sendLocked(append(head[:len(head)-1], `,"results":[`...))
		return
	}
	a.sendLocked(a.framed("call", head))
}

// preparedRow is a row as it is sent, and the memory for it; nil: it needs none.
type preparedRow struct {
	text []byte
	held *reservation
}

// Prepare implements group.Sink. The row replaces the result, and waits in the memory for responses until the caller
// has read it: devices can answer with more than a pod has. A result without room is only in the record of its call.
func (a *groupAnswer) Prepare(ctx context.Context, r *group.Row) {
	if a.dropped.Load() { // the lock is held while a row is written
		r.Outcome.Result = registry.Result{}
		return
	}
	row := &preparedRow{text: a.encode(r)}
	r.Outcome.Result = registry.Result{}
	if len(row.text) > smallResponse {
		var err error
		if row.held, err = a.memory.reserveRow(ctx, a.by, int64(len(row.text))); err != nil {
			e := *registry.AsError(err)
			e.Message = "This pod's memory for responses, or your share of it, has no room for the output. GET " +
				pathCalls + "/" + r.Outcome.CallID + " returns it, unless it was too long to be stored."
			r.Err = e.With(registry.DispatchedYes)
			row.text = a.encode(r)
		}
	}
	r.Prepared = row
}

// encode returns a row as it is sent, but for the comma before it.
func (a *groupAnswer) encode(r *group.Row) []byte {
	if r.Err == nil && r.State.Answered() {
		return a.frame("result", func(b []byte) []byte { return appendAnswer(b, &r.Outcome) })
	}
	row, _ := json.Marshal(groupResultOf(*r)) // cannot fail: texts
	return a.framed("result", row)
}

// Put implements group.Sink.
func (a *groupAnswer) Put(r group.Row) {
	row, _ := r.Prepared.(*preparedRow)
	a.mu.Lock()
	defer a.mu.Unlock()
	r.CountIn(&a.counts)
	if row == nil {
		return
	}
	if row.held == nil {
		a.rowLocked(row.text)
		return
	}
	defer row.held.release()
	a.rowLocked(nil)
	if a.out != nil {
		a.out.SendParts(row.text, smallResponse, row.held.nextPart)
	}
}

// rowLocked writes a row, or what comes before one that follows.
func (a *groupAnswer) rowLocked(row []byte) {
	a.rows++
	if a.format.MediaType == mediaJSON && a.rows > 1 {
		row = append([]byte{','}, row...)
	}
	if len(row) > 0 {
		a.sendLocked(row)
	}
}

// frame returns one event, or one line that names its type, or only the data in a table. appendData appends the data,
// an object.
func (a *groupAnswer) frame(kind string, appendData func([]byte) []byte) []byte {
	prefix, end := "", ""
	switch a.format.MediaType {
	case mediaNDJSON:
		prefix, end = `{"type":"`+kind+`"`, "\n"
	case ssewriter.Events().MediaType:
		prefix, end = "event: "+kind+"\ndata: ", "\n\n"
	}
	text := bytes.TrimSuffix(appendData([]byte(prefix)), []byte("\n"))
	ssewriter.OneLine(text[len(prefix):]) // or a device could write rows of other devices
	if a.format.MediaType == mediaNDJSON {
		text[len(prefix)] = ',' // instead of the brace
	}
	return append(text, end...)
}

func (a *groupAnswer) framed(kind string, data []byte) []byte {
	return a.frame(kind, func(b []byte) []byte { return append(b, data...) })
}

func (a *groupAnswer) sendLocked(text []byte) {
	if a.out != nil {
		a.out.SendRaw(text)
	}
}

// end writes how the call ended.
func (a *groupAnswer) end(out agent.Outcome, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	tail := struct {
		State   registry.State       `json:"state"`
		Counts  registry.GroupCounts `json:"counts"`
		Error   string               `json:"error,omitempty"`
		Problem *wire.CallProblem    `json:"problem,omitempty"`
	}{State: out.State, Counts: a.counts, Error: out.Result.Error}
	if note := (&registry.GroupNote{}).With(&out.Result); note.Counts != nil {
		tail.Counts = *note.Counts
	}
	if err != nil {
		e := registry.AsError(err)
		p := auth.ProblemOf(e)
		tail.State, tail.Problem = group.StateOf(e), &wire.CallProblem{Code: p.Code, Detail: p.Detail}
	}
	text, _ := json.Marshal(tail) // cannot fail: texts and numbers
	if a.format.MediaType == mediaJSON {
		a.sendLocked(append(append([]byte("],"), text[1:]...), '\n'))
		return
	}
	head, _ := json.Marshal(map[string]string{"call_id": a.id, "mode": a.mode})
	a.sendLocked(a.framed("done", append(append(head[:len(head)-1], ','), text[1:]...)))
}

// groupResultOf returns the row of a device without a result.
func groupResultOf(r group.Row) wire.GroupResult {
	shown := wire.GroupResult{
		CallID: r.Outcome.CallID, SessionID: r.SessionID, DeviceID: r.DeviceID, State: r.State,
		Position: r.Outcome.Position, ExpiresAt: optionalTime(r.Outcome.Expires),
	}
	if r.Err != nil {
		p := auth.ProblemOf(r.Err)
		shown.Dispatched, shown.Problem = r.Err.Dispatched, &wire.CallProblem{Code: p.Code, Detail: p.Detail}
	}
	return shown
}

// replayGroup writes the rows of an earlier call with the same idempotency key, from the records of its children: as
// far as the feed has them, and without outputs. It may read the whole feed, and costs as much as a list of calls.
func (h *handler) replayGroup(ctx context.Context, c *gin.Context, a *groupAnswer, out agent.Outcome) error {
	noteCall(c, out.CallID)
	c.Header(headerReplayed, "true")
	held, err := h.responses.reserve(ctx, h.owner(c), pageCost)
	if err != nil {
		return err
	}
	defer held.release()
	rec, err := h.Calls.Get(ctx, caller(c).Tenant, out.CallID)
	if err != nil {
		return err
	}
	a.Begin(out.CallID, summaryOf(rec).Mode)
	for q := (registry.CallQuery{Tenant: rec.Tenant, Parent: rec.CallID, Limit: maxReplayed}); ; {
		children, next, err := h.Calls.List(ctx, q)
		if err != nil {
			return err
		}
		for _, child := range children {
			s := summaryOf(child)
			row, _ := json.Marshal(wire.GroupResult{ // cannot fail: texts
				CallID: s.CallID, SessionID: s.SessionID, DeviceID: s.DeviceID, State: s.State, Success: s.Success,
				Error: s.Error, Problem: s.Problem, Dispatched: s.Dispatched,
			})
			a.mu.Lock()
			a.rowLocked(a.framed("result", row))
			a.mu.Unlock()
		}
		if next == "" {
			return nil
		}
		q.Before = next
	}
}

// maxReplayed is how many records are read at a time.
const maxReplayed = 100
