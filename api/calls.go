package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

const (
	// writeMargin is how long after a call's deadline its answer may be written. A request that joins a call is
	// answered a few seconds after that deadline at the latest, and its caller then needs time to receive the answer.
	writeMargin = 10 * time.Second

	headerReplayed = "Idempotent-Replayed"
)

// spareBody is how many bytes besides its arguments a body may keep in memory until the call is recorded. Arguments in
// a longer body are copied.
const spareBody = 4 << 10

// keptAnswer is the maximum size of an answer buffer that is reused, in bytes.
const keptAnswer = 4 << 10

// appendAnswer appends the answer to a call that ran, whether its tool succeeded or not. Structured output is copied
// byte for byte.
func appendAnswer(b []byte, out *agent.Outcome) []byte {
	r := &out.Result
	b = strictjson.AppendString(append(b, `{"call_id":`...), out.CallID)
	b = strictjson.AppendString(append(b, `,"state":`...), string(r.State()))
	b = strconv.AppendBool(append(b, `,"success":`...), r.Success)
	b = strictjson.AppendString(append(b, `,"output":`...), r.Output)
	if !r.Structured.IsZero() {
		b = append(append(b, `,"structured":`...), r.Structured.Raw()...)
	}
	if len(r.Parts) > 0 {
		b = appendParts(append(b, `,"parts":`...), r.Parts)
	}
	if len(r.Violations) > 0 {
		violations, _ := json.Marshal(r.Violations) // cannot fail: strings
		b = append(append(b, `,"output_violations":`...), violations...)
	}
	if r.Error != "" {
		b = strictjson.AppendString(append(b, `,"error":`...), r.Error)
	}
	if out.Session.Key.Session != "" { // a built-in tool has none
		b = strictjson.AppendString(append(b, `,"session_id":`...), out.Session.Key.Session)
	}
	if out.Session.DeviceID != "" {
		b = strictjson.AppendString(append(b, `,"device_id":`...), out.Session.DeviceID)
	}
	b = strconv.AppendInt(append(b, `,"duration_ms":`...), out.Duration.Milliseconds(), 10)
	return append(b, "}\n"...)
}

// callTool serves both routes of calls: with and without a session in the path.
func (h *handler) callTool(c *gin.Context, _ *params) error {
	began := time.Now()
	req, err := h.readCall(c)
	if err != nil {
		return err
	}
	req.Release = takeBody(c)
	id, target, async := req.CallID, req.Target, req.Async // the rest of req is not referenced until the device answers
	out, err := h.Invoker.Invoke(c.Request.Context(), req)
	answerInTime(c, began)
	if out.Replayed && registry.AsError(err).Code != registry.CodeIdempotency {
		c.Header(headerReplayed, "true")
	}
	if out.CallID != id { // a replayed outcome has its own id
		noteCall(c, out.CallID)
	}
	switch {
	case err != nil:
		return h.explainTarget(target, err)
	case async, out.Async:
		return h.accept(c, out)
	default:
		return h.answer(c, &out)
	}
}

// explainTarget improves the error for an unknown user, if the gateway's credentials name no users.
func (h *handler) explainTarget(t registry.Target, err error) error {
	if t.UserID == "" || h.namesUsers || !errors.Is(err, registry.CodeSessionNotFound) {
		return err
	}
	e := *registry.AsError(err)
	e.Message = "This gateway's credentials name no users, so no session has a user_id. Leave it out of the target."
	return &e
}

func (h *handler) answer(c *gin.Context, out *agent.Outcome) error {
	kept, _ := h.answers.Get().(*[]byte)
	if kept == nil {
		kept = new([]byte)
	}
	body := appendAnswer((*kept)[:0], out)
	defer func() { // the bytes are not used after the write
		if cap(body) <= keptAnswer {
			*kept = body
		}
		h.answers.Put(kept)
	}()
	return h.writeBody(c, http.StatusOK, body)
}

// accept answers an asynchronous call with the location of its record.
func (h *handler) accept(c *gin.Context, out agent.Outcome) error {
	c.Header("Location", pathCalls+"/"+out.CallID)
	return h.writeJSON(c, http.StatusAccepted, wire.CallAccepted{
		CallID: out.CallID, Mode: registry.ModeAsync, State: out.State,
		SessionID: out.Session.Key.Session, DeviceID: out.Session.DeviceID, ApprovalID: out.Approval,
		Approvers: out.Approvers, Position: out.Position, ExpiresAt: optionalTime(out.Expires),
	})
}

// readCall converts an HTTP request to a request for the Invoker.
func (h *handler) readCall(c *gin.Context) (agent.Request, error) {
	r, err := readAs(h, c, parseCall)
	if err == nil {
		err = r.readKeyHeader(c.Request.Header.Values("Idempotency-Key"))
	}
	if err != nil {
		return agent.Request{}, err
	}
	if session := c.Param("id"); session != "" {
		if r.targeted && r.target.SessionID != session {
			return agent.Request{}, registry.Errorf(registry.CodeInvalidRequest,
				"The path names the session. Leave target out, or set its session_id to the same value.")
		}
		r.target.SessionID = session
	}
	tool := c.Param("name")
	if !registry.ValidToolName(tool) {
		return agent.Request{}, registry.Errorf(registry.CodeToolNotFound, "%.80q is not a valid tool name.", tool)
	}
	return agent.Request{
		Endpoint: agent.EndpointAPI,
		CallID:   notedCall(c), Caller: caller(c), Tool: tool, Args: r.args, Target: r.target, Select: r.sel,
		Order: r.order, Timeout: r.timeout, Async: r.async, IdempotencyKey: r.key, Queue: r.queue,
	}, nil
}

// callRequest is the body of a call.
type callRequest struct {
	args     registry.JSON // exactly as sent; none when absent
	targeted bool          // a target was given
	target   registry.Target
	timeout  time.Duration // zero when absent
	sel      registry.Select
	order    registry.Order
	async    bool
	key      string        // idempotency key; empty when absent
	queue    time.Duration // how long the call may wait for its device; zero when absent
}

// parseCall reads the body of a call. An empty body means {}.
func parseCall(body []byte) (callRequest, error) {
	var r callRequest
	if len(bytes.TrimSpace(body)) == 0 {
		return r, nil
	}
	fields, err := readBodyObject(body, "args", "target", "timeout_ms", "mode", "idempotency_key", "select", "queue",
		"ordered")
	if err != nil {
		return r, err
	}
	for _, f := range fields {
		if err := r.readField(f); err != nil {
			return r, err
		}
	}
	if len(body) > r.args.Len()+spareBody {
		r.args = r.args.Clone()
	}
	return r, nil
}

func (r *callRequest) readField(f strictjson.Member) (err error) {
	text := f.Value
	switch string(f.Name) {
	case "args":
		if r.args = f.Checked(); !r.args.IsObject() {
			err = wrongType("args", "a JSON object")
		}
	case "target":
		err = r.readTarget(text)
	case "timeout_ms":
		r.timeout, err = readTimeout(text)
	case "mode":
		mode, wrong := readEither(text, "mode", registry.ModeSync, registry.ModeAsync)
		r.async, err = mode == registry.ModeAsync, wrong
	case "idempotency_key":
		r.key, err = readString(text, "idempotency_key")
	case "queue":
		r.queue, err = readQueue(text)
	case "ordered":
		r.order, err = readOrder(text)
	case "select":
		r.sel, err = readEither(text, "select", registry.SelectAny, registry.SelectNewest)
	}
	return err // readBodyObject rejects all other names
}

func (r *callRequest) readTarget(text json.RawMessage) error {
	fields, err := readObject(text, "target", "session_id", "device_id", "user_id", "labels")
	if err != nil {
		return err
	}
	r.targeted = true
	for name, into := range map[string]*string{
		"session_id": &r.target.SessionID, "device_id": &r.target.DeviceID, "user_id": &r.target.UserID,
	} {
		if text, ok := fields.get(name); ok {
			if *into, err = readString(text, "target."+name); err != nil {
				return err
			}
		}
	}
	if text, ok := fields.get("labels"); ok {
		r.target.Labels, err = readLabels(text)
	}
	return err
}

// readOrder reads the field ordered: a boolean, or "tool".
func readOrder(text json.RawMessage) (registry.Order, error) {
	switch string(text) {
	case "true":
		return registry.OrderSession, nil
	case "false":
		return registry.OrderNone, nil
	case `"tool"`:
		return registry.OrderTool, nil
	default:
		return registry.OrderNone, wrongType("ordered", `true, false or "tool"`)
	}
}

func readLabels(text json.RawMessage) (map[string]string, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil || fields == nil {
		return nil, wrongType("target.labels", "a JSON object")
	}
	if len(fields) > registry.MaxLabels { // the store looks up each, and no session has more
		return nil, registry.Errorf(registry.CodeInvalidRequest, "target.labels: at most %d are allowed.",
			registry.MaxLabels)
	}
	labels := make(map[string]string, len(fields))
	for key, value := range fields {
		var s string
		if value[0] != '"' || json.Unmarshal(value, &s) != nil {
			return nil, wrongType("target.labels."+key, "a string")
		}
		labels[key] = s // an empty value matches a label that is present and empty
	}
	return labels, nil
}

// readQueue reads how long a call may wait for its device.
func readQueue(text json.RawMessage) (time.Duration, error) {
	fields, err := readObject(text, "queue", "ttl_ms")
	if err != nil {
		return 0, err
	}
	ttl, ok := fields.get("ttl_ms")
	if !ok {
		return 0, wrongType("queue", "an object with ttl_ms")
	}
	return readMillis("queue.ttl_ms", ttl)
}

// readTimeout accepts any whole number above zero. A number too large for a duration means the longest allowed time.
func readTimeout(text json.RawMessage) (time.Duration, error) { return readMillis("timeout_ms", text) }

func readMillis(field string, text json.RawMessage) (time.Duration, error) {
	ms, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil && !(errors.Is(err, strconv.ErrRange) && ms > 0) || ms <= 0 {
		return 0, wrongType(field, "a whole number of milliseconds above zero")
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, nil
}

// readKeyHeader takes the key from the header Idempotency-Key. Two different keys are rejected: with either of them, a
// retry could run the tool twice.
func (r *callRequest) readKeyHeader(values []string) error {
	switch {
	case len(values) == 0:
		return nil
	case len(values) > 1 || values[0] == "":
		return registry.Errorf(registry.CodeInvalidRequest,
			"The header Idempotency-Key must appear once and must not be empty.")
	case r.key != "" && r.key != values[0]:
		return registry.Errorf(registry.CodeInvalidRequest,
			"The header Idempotency-Key and the field \"idempotency_key\" differ. Send only one of them, or the same "+
				"value.")
	}
	r.key = values[0]
	return nil
}

// recordOf returns a whole record. It sets OutputKept to false if the tool's output was not stored.
func recordOf(r registry.Record) wire.CallRecord {
	shown := summaryOf(r)
	switch {
	case r.Result == nil:
	case r.Brief:
		shown.OutputKept = new(bool)
	default:
		shown.Output, shown.Structured = &r.Result.Output, r.Result.Structured
		shown.Parts, shown.Violations = r.Result.Parts, r.Result.Violations
	}
	return shown
}

// summaryOf returns a record without its tool's output.
func summaryOf(r registry.Record) wire.CallRecord {
	shown := wire.CallRecord{
		CallID: r.CallID, Tool: r.Tool, SessionID: r.SessionID, DeviceID: r.DeviceID, UserID: r.UserID,
		Source: r.Source, TurnID: r.Turn, TraceID: r.TraceID, Mode: r.Mode, State: r.State, Status: r.State.Status(),
		Dispatched: r.Dispatched, Late: r.Late, Timeline: each(r.Timeline, stepOf),
		ParentID: r.Parent, TimeoutMS: r.TimeoutMS, ArgsDigest: r.ArgsDigest, Pod: r.Pod, Owner: r.Owner,
		ApprovalID: r.Approval,
	}
	if g := r.Group.With(r.Result); g != nil {
		shown.Mode, shown.Counts = g.Mode, g.Counts
	}
	if r.State == registry.StateQueued {
		shown.ExpiresAt = shownTime(r.Deadline)
	}
	switch {
	case r.Result != nil:
		shown.Success, shown.Error = &r.Result.Success, r.Result.Error
	case r.State.Final():
		_, err := r.Outcome()
		p := auth.ProblemOf(registry.AsError(err))
		shown.Retryable, shown.Problem = p.Retryable, &wire.CallProblem{Code: p.Code, Detail: p.Detail}
	}
	return shown
}

func stepOf(s registry.Step) wire.CallStep { return wire.CallStep{State: s.State, At: shownTime(s.At)} }

func shownTime(t time.Time) string { return t.UTC().Format(timeFormat) }

// optionalTime returns "" for the zero time.
func optionalTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return shownTime(t)
}
