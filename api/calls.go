package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

const (
	// writeMargin is how long after a call's deadline its answer may be written. A request that joins a call is
	// answered a few seconds after that call's deadline at the latest, and then its caller has to receive the answer.
	writeMargin = 10 * time.Second

	headerReplayed = "Idempotent-Replayed"
)

// spareBody is how many bytes beside its arguments a body may keep in memory until the call is recorded. Arguments in a
// longer body are copied.
const spareBody = 4 << 10

// keptAnswer bounds the memory of an answer that is kept for the next one, in bytes.
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
		violations, _ := json.Marshal(r.Violations) // cannot fail: texts
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

// callAccepted is the answer to an asynchronous call, which goes on by itself.
type callAccepted struct {
	CallID    string         `json:"call_id"`
	Mode      string         `json:"mode"`
	State     registry.State `json:"state"`
	SessionID string         `json:"session_id,omitempty"`
	DeviceID  string         `json:"device_id,omitempty"`

	// ApprovalID is the approval that the call waits for. Its time starts when somebody allows it.
	ApprovalID string `json:"approval_id,omitempty"`

	// Approvers are who may decide about it, as far as that is known.
	Approvers []string `json:"approvers,omitempty"`
}

// callTool serves both routes of calls: with a session in the path and without.
func (h *handler) callTool(c *gin.Context, _ params) error {
	began := time.Now()
	req, err := h.readCall(c)
	if err != nil {
		return err
	}
	req.Release = takeBody(c)
	id, target, async := req.CallID, req.Target, req.Async // the rest of it is not kept until the device answers
	out, err := h.Invoker.Invoke(c.Request.Context(), req)
	answerInTime(c, began)
	if out.Replayed && registry.AsError(err).Code != registry.CodeIdempotency {
		c.Header(headerReplayed, "true")
	}
	if out.CallID != id { // a replayed one has its own
		noteCall(c, out.CallID)
	}
	switch {
	case err != nil:
		return h.explainTarget(target, err)
	case async:
		return h.accept(c, out)
	default:
		return h.answer(c, &out)
	}
}

// explainTarget adds to an unknown user that the gateway's credentials name no users, if that is so.
func (h *handler) explainTarget(t registry.Target, err error) error {
	if t.UserID == "" || h.namesUsers || !errors.Is(err, registry.CodeSessionNotFound) {
		return err
	}
	e := *registry.AsError(err)
	e.Message = "No session belongs to a user: the credentials of this gateway name no users. " +
		"Leave user_id out of the target."
	return &e
}

// answer writes the result of a call.
func (h *handler) answer(c *gin.Context, out *agent.Outcome) error {
	kept, _ := h.answers.Get().(*[]byte)
	if kept == nil {
		kept = new([]byte)
	}
	body := appendAnswer((*kept)[:0], out)
	defer func() { // nothing uses the bytes once they are written
		if cap(body) <= keptAnswer {
			*kept = body
		}
		h.answers.Put(kept)
	}()
	return h.writeBody(c, http.StatusOK, body)
}

// accept answers an asynchronous call with the place of its record.
func (h *handler) accept(c *gin.Context, out agent.Outcome) error {
	c.Header("Location", pathCalls+"/"+out.CallID)
	return h.writeJSON(c, http.StatusAccepted, callAccepted{
		CallID: out.CallID, Mode: registry.ModeAsync, State: out.State,
		SessionID: out.Session.Key.Session, DeviceID: out.Session.DeviceID, ApprovalID: out.Approval,
		Approvers: out.Approvers,
	})
}

// readCall turns a request into one for the Invoker.
func (h *handler) readCall(c *gin.Context) (agent.Request, error) {
	body, err := h.readBody(c)
	if err != nil {
		return agent.Request{}, err
	}
	r, err := parse(c, h.Invoker, body, parseCall)
	if err != nil {
		return agent.Request{}, err
	}
	if err := r.readKeyHeader(c.Request.Header.Values("Idempotency-Key")); err != nil {
		return agent.Request{}, err
	}
	if len(body) > r.args.Len()+spareBody {
		r.args = r.args.Clone()
	}
	if session := c.Param("id"); session != "" {
		if r.targeted && r.target.SessionID != session {
			return agent.Request{}, registry.Errorf(registry.CodeInvalidRequest,
				"The path names the session. Leave target out, or let its session_id be the same.")
		}
		r.target.SessionID = session
	}
	tool := c.Param("name")
	if !registry.ValidToolName(tool) {
		return agent.Request{}, registry.Errorf(registry.CodeToolNotFound, "No tool can have the name %.80q.", tool)
	}
	return agent.Request{
		Endpoint: agent.EndpointAPI,
		CallID:   notedCall(c), Caller: caller(c), Tool: tool, Args: r.args, Target: r.target, Select: r.sel,
		Timeout: r.timeout, Async: r.async, IdempotencyKey: r.key,
	}, nil
}
