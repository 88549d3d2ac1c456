package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/internal/webhook"
	"github.com/farhand/farhand/registry"
)

const (
	// answerSpare is how many bytes longer than its question an answer may be.
	answerSpare = 64 << 10

	// maxHeld is the approximate limit of bytes of questions and answers that one hook holds at once. A larger question
	// waits until it is the only one.
	maxHeld = 64 << 20
)

// client sends requests to one hook.
type client struct {
	url       string
	signer    webhook.Signer
	http      *http.Client
	transport *http.Transport
	slots     *share.Pool // of concurrent questions
	buffered  *share.Pool // of bytes
}

func newClient(cfg Config) (*client, error) {
	signer, err := webhook.NewSigner(string(cfg.Secret))
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	transport := publicnet.Guard{AllowPrivate: cfg.AllowPrivate}.Transport(cfg.Timeout)
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = cfg.Concurrent, cfg.Concurrent
	return &client{
		url: cfg.URL, signer: signer, transport: transport,
		slots: halfEach(int64(cfg.Concurrent)), buffered: halfEach(maxHeld),
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the target of a redirect is not configured
		}},
	}, nil
}

// halfEach returns a pool of which one identity may use its tenant's whole share, at most half of the pool.
func halfEach(all int64) *share.Pool {
	return share.New(share.Bounds{Pod: all, Identity: max(all/2, 1)})
}

// send sends an owner's question and returns the answer, if its status is between 200 and maxStatus. size is the
// approximate length of the question's variable texts, in bytes. It waits for a slot within ctx.
func (c *client) send(
	ctx context.Context, of share.Owner, id string, size, maxStatus int, body func() ([]byte, error),
) ([]byte, error) {
	slot, err := c.slots.Acquire(ctx, of, 1)
	if err != nil {
		return nil, fmt.Errorf("%w: all concurrent requests are in use", errBusy)
	}
	defer slot.Release()
	memory, err := c.buffered.Acquire(ctx, of, int64(3*size+answerSpare)) // the text, the question and the answer
	if err != nil {
		return nil, fmt.Errorf("%w: other requests are too long", errBusy)
	}
	defer memory.Release()
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
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK || resp.StatusCode > maxStatus {
		return nil, fmt.Errorf("%w: status %d", errAnswer, resp.StatusCode)
	}
	limit := len(text) + answerSpare
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	if err == nil && len(answer) > limit {
		err = fmt.Errorf("%w: longer than %d bytes", errAnswer, limit)
	}
	return answer, err
}

// request returns the signed request for a question.
func (c *client) request(ctx context.Context, id string, text []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "farhand")
	trace.Inject(ctx, req.Header)
	c.signer.Sign(req.Header, id, time.Now(), text)
	return req, nil
}

// close closes idle connections.
func (c *client) close() { c.transport.CloseIdleConnections() }

// Types of questions, and the suffixes of their ids. The prefix is the call's id.
const (
	typeBefore  = "tool.call.before"
	typeAfter   = "tool.call.after"
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
	DeadlineMS int64         `json:"deadline_ms"` // time left to answer
	Args       registry.JSON `json:"args,omitzero"`
	Result     *result       `json:"result,omitempty"`
}

// caller is the caller of the tool.
type caller struct {
	Tenant string   `json:"tenant"`
	User   string   `json:"user,omitempty"`
	Roles  []string `json:"roles,omitempty"` // only before the call
}

// result is the tool's result: Structured if it is JSON other than a string, else Output; both if a hook made them
// differ.
type result struct {
	Success    bool          `json:"success"`
	Output     *string       `json:"output,omitempty"`
	Structured registry.JSON `json:"structured,omitzero"`
	Error      string        `json:"error,omitempty"`
	Parts      []part        `json:"parts,omitempty"`
}

// part describes a part of a result. Its data stays in the gateway.
type part struct {
	Index int `json:"index"` // by which an answer keeps it
	registry.Part
}

// questionOf returns a question about a call, without arguments and result.
func (h *Hook) questionOf(kind string, inv agent.Invocation) question {
	return question{
		Type: kind, Hook: h.cfg.Name, CallID: inv.CallID, Tool: inv.Spec.Name,
		Source: inv.Source, SessionID: inv.Session.Key.Session, DeviceID: inv.Session.DeviceID, Turn: inv.Turn,
		Caller: caller{Tenant: inv.Caller.Tenant, User: inv.Caller.User},
	}
}

// resultOf returns a result in the form for questions.
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

// size returns the approximate size of a result in a question, in bytes.
func (r *result) size() int {
	n := r.Structured.Len() + sizeOf(r.Error)
	if r.Output != nil {
		n += sizeOf(*r.Output)
	}
	const names = 60 // bytes of the member names of a part
	for i := range r.Parts {
		n += names + len(r.Parts[i].MIMEType) + sizeOf(r.Parts[i].Name)
	}
	return n
}

// sizeOf returns the size of a text as JSON, in bytes. It can be six times the size in memory.
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

// encode returns the body of a question that must be answered by limit.
func (q question) encode(limit time.Time) ([]byte, error) {
	q.Timestamp, q.DeadlineMS = time.Now().UTC(), max(time.Until(limit).Milliseconds(), 1)
	return encode(q)
}

// encode returns a body as a line of JSON.
func encode(body any) ([]byte, error) {
	text, err := strictjson.Encode(body)
	return append(text, '\n'), err
}

// Reach asks whether the service of a hook answers, without a question to it: it sends OPTIONS, with neither a body
// nor a signature, to the hook's URL. Any answer will do, since services need not know OPTIONS. It returns the status.
func Reach(ctx context.Context, cfg Config) (status string, err error) {
	c, err := newClient(cfg.withDefaults())
	if err != nil {
		return "", err
	}
	defer c.close()
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, c.url, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("User-Agent", "farhand")
	resp, err := c.http.Do(req)
	if err != nil {
		return "", withoutURL(err)
	}
	return resp.Status, resp.Body.Close()
}

// withoutURL returns an error of the HTTP client without the URL, which may have a secret.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}
