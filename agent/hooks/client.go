package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	// answerSpare is how much longer than the question an answer may be, in bytes.
	answerSpare = 64 << 10

	// maxHeld is how many bytes of questions and answers one hook holds at once, about. A question that is longer waits
	// until it is alone.
	maxHeld = 64 << 20
)

// client asks one hook.
type client struct {
	url       string
	signer    *webhooks.Webhook
	http      *http.Client
	transport *http.Transport
	slots     *share.Pool // of questions at once
	held      *share.Pool // of bytes
}

func newClient(cfg Config) (*client, error) {
	signer, err := webhooks.NewWebhook(string(cfg.Secret))
	if err != nil {
		return nil, errors.New("secret: must be Base64")
	}
	transport := publicnet.Guard{AllowPrivate: cfg.AllowPrivate}.Transport(cfg.Timeout)
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = cfg.Concurrent, cfg.Concurrent
	return &client{
		url: cfg.URL, signer: signer, transport: transport,
		slots: halfEach(int64(cfg.Concurrent)), held: halfEach(maxHeld),
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // where a redirect leads to, nobody has configured
		}},
	}, nil
}

// halfEach returns a pool of which an identity has what its tenant has at most.
func halfEach(all int64) *share.Pool {
	return share.New(share.Bounds{Pod: all, Identity: max(all/2, 1)})
}

// ask sends an owner's question whose text takes about size bytes in it, and returns the answer. It waits its turn
// within ctx.
func (c *client) ask(
	ctx context.Context, of share.Owner, id string, size int, body func() ([]byte, error),
) ([]byte, error) {
	return c.send(ctx, of, id, size, body, func(status int) bool { return status == http.StatusOK })
}

// tell sends a message, of which nothing but the status of the answer counts.
func (c *client) tell(ctx context.Context, of share.Owner, id string, body func() ([]byte, error)) error {
	_, err := c.send(ctx, of, id, 0, body, func(status int) bool { return status >= 200 && status < 300 })
	return err
}

// send makes one request, and returns the body of an answer whose status is good.
func (c *client) send(
	ctx context.Context, of share.Owner, id string, size int, body func() ([]byte, error), good func(status int) bool,
) ([]byte, error) {
	slot, err := c.slots.Acquire(ctx, of, 1)
	if err != nil {
		return nil, fmt.Errorf("%w: as many others are being asked as may be at once", errBusy)
	}
	defer slot.Release()
	held, err := c.held.Acquire(ctx, of, int64(3*size+answerSpare)) // the text, the question and the answer
	if err != nil {
		return nil, fmt.Errorf("%w: others are too long", errBusy)
	}
	defer held.Release()
	text, err := body()
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, id, text)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL
		}
		return nil, err
	}
	defer resp.Body.Close()
	if !good(resp.StatusCode) {
		return nil, fmt.Errorf("%w: status %d", errAnswer, resp.StatusCode)
	}
	limit := len(text) + answerSpare
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	if err == nil && len(answer) > limit {
		err = fmt.Errorf("%w: longer than %d bytes", errAnswer, limit)
	}
	return answer, err
}

// request makes the signed request of a question.
func (c *client) request(ctx context.Context, id string, text []byte) (*http.Request, error) {
	now := time.Now()
	signature, err := c.signer.Sign(id, now, text)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "farhand")
	req.Header.Set(webhooks.HeaderWebhookID, id)
	req.Header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(webhooks.HeaderWebhookSignature, signature)
	return req, nil
}

// close closes the connections that nobody uses.
func (c *client) close() { c.transport.CloseIdleConnections() }

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
