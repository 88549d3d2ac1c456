package mcpbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"reflect"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/ssereader"
	"github.com/farhand/farhand/registry/textsafe"
)

const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeInternal       = -32603
)

// refusal is an HTTP error that is not a JSON-RPC message.
type refusal struct {
	Status int
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Error implements error. The text says what to do.
func (r refusal) Error() string {
	switch {
	case r.Detail == "":
		return fmt.Sprintf("The server answered %d %s, and is not a Farhand gateway.", r.Status,
			http.StatusText(r.Status))
	case r.Status == http.StatusUnauthorized:
		return r.Detail + " `farhand mcp` takes its token from --token or FARHAND_TOKEN."
	}
	return r.Detail
}

// errNoAnswer is the error of a request if the gateway's response is not an answer to it.
var errNoAnswer = errors.New("the gateway's response does not answer this request")

// post sends a message and passes each message of the response to write, the answer to a request last. It returns nil
// if the response was complete.
func (b *bridge) post(ctx context.Context, m message, line []byte, write func([]byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL, bytes.NewReader(line))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if b.Token != "" {
		req.Header.Set("Authorization", "Bearer "+b.Token)
	}
	b.setHeaders(req.Header, m)
	resp, err := b.Client.Do(req)
	if err != nil {
		return fmt.Errorf("no answer from the gateway at %s: %w", b.URL, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if m.Method == methodInitialize {
		b.mu.Lock() // without its session name, a cancellation could hit the request of another client of this token
		b.session = resp.Header.Get(headerSession)
		b.mu.Unlock()
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" && resp.StatusCode < 300 {
		if err := passEvents(resp.Body, m.ID, write); err != nil {
			return err
		}
		awaitEnd(resp.Body, cancel)
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, MaxMessage+1))
	if err != nil {
		return fmt.Errorf("the gateway's response was cut off: %w", err)
	}
	if len(text) > MaxMessage {
		return fmt.Errorf("the answer is longer than %d MiB", MaxMessage>>20)
	}
	return passAnswer(m.ID, resp.StatusCode, text, write)
}

// passAnswer passes on an answer that is one message. Protocol errors also have an HTTP status, and no id if the
// gateway could not read it. id is the request's, nil for a notification.
func passAnswer(id json.RawMessage, status int, text []byte, write func([]byte)) error {
	var known struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   json.RawMessage `json:"error"`
		refusal
	}
	err := json.Unmarshal(text, &known)
	isMessage := err == nil && known.JSONRPC != ""
	switch {
	case id == nil && (isMessage || len(text) > 0 && text[0] == '[' && json.Valid(text)), answers(text, id):
		write(text)
		return nil
	case id == nil && status < 300 && len(text) == 0: // a notification was accepted
		return nil
	case isMessage && known.Error != nil && (known.ID == nil || string(known.ID) == "null"):
		write(mustJSON(map[string]json.RawMessage{"jsonrpc": json.RawMessage(`"2.0"`), "id": id, "error": known.Error}))
		return nil
	case isMessage, len(text) == 0 && status < 300, len(text) > 0 && text[0] == '[':
		return errNoAnswer
	}
	return refusal{Status: status, Code: known.Code, Detail: known.Detail}
}

// passEvents passes on the messages of a stream, up to and including the answer to the request.
func passEvents(stream io.Reader, id json.RawMessage, write func([]byte)) error {
	for events := ssereader.New(stream, MaxMessage); ; {
		event, err := events.Next()
		switch {
		case err != nil && id == nil:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the connection to the gateway ended before the answer arrived")
		case err != nil:
			return fmt.Errorf("the gateway's response was cut off: %w", err)
		case len(event.Data) == 0:
			continue // keeps the connection open
		case !json.Valid(event.Data):
			return errNoAnswer
		}
		write(event.Data)
		if id != nil && answers(event.Data, id) {
			return nil
		}
	}
}

// A stream may continue for so many bytes, and so long, after its answer for its connection to be reused.
const (
	endBytes = 4 << 10
	endTime  = time.Second
)

// awaitEnd reads a stream to its end, which follows right after the answer, so that the connection can be reused.
// cancel ends the request.
func awaitEnd(stream io.Reader, cancel func()) {
	late := time.AfterFunc(endTime, cancel)
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, stream, endBytes)
}

// answers reports whether a message answers the request with this id. The gateway may encode the id differently.
func answers(text []byte, id json.RawMessage) bool {
	var m message
	if id == nil || json.Unmarshal(text, &m) != nil || m.Method != "" {
		return false
	}
	var asked, answered any
	return bytes.Equal(m.ID, id) || m.ID != nil && json.Unmarshal(id, &asked) == nil &&
		json.Unmarshal(m.ID, &answered) == nil && reflect.DeepEqual(asked, answered)
}

// failWith answers a request that failed on the way. Errors of notifications, which have no answer, go to the log.
func (b *bridge) failWith(m message, err error, write func([]byte)) {
	code, data := codeInternal, any(nil)
	if err == errTaken {
		code = codeInvalidRequest
	}
	if r, ok := errors.AsType[refusal](err); ok && r.Code != "" {
		data = map[string]any{"code": r.Code, "status": r.Status}
	}
	if m.ID == nil { // shown on a terminal; the gateway's text is untrusted
		fmt.Fprintf(b.Log, "farhand mcp: %s\n", textsafe.Line(m.Method+": "+err.Error()))
		return
	}
	write(failure(m.ID, code, textsafe.Clean(err.Error()), data))
}

// failure returns an error as the answer to a request. A nil id, for a request whose id could not be read, is null.
func failure(id json.RawMessage, code int, text string, data any) []byte {
	type rpcError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	return mustJSON(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", id, rpcError{code, text, data}})
}

// Backoff before the bridge reopens a stream that broke.
const (
	minDelay = 500 * time.Millisecond
	maxDelay = 30 * time.Second
)

// noteVersion returns the answer to initialize as the client receives it. It stores the revision, and declares that
// changes of lists are sent. The gateway cannot send them to a client of an older revision; the bridge does.
func (b *bridge) noteVersion(text []byte) []byte {
	var answer, result, capabilities map[string]json.RawMessage
	if json.Unmarshal(text, &answer) != nil || json.Unmarshal(answer["result"], &result) != nil || result == nil {
		return text
	}
	b.mu.Lock()
	_ = json.Unmarshal(result["protocolVersion"], &b.negotiated)
	b.mu.Unlock()
	_ = json.Unmarshal(result["capabilities"], &capabilities)
	for _, name := range []string{"tools", "resources"} {
		var list map[string]json.RawMessage
		if json.Unmarshal(capabilities[name], &list) == nil && list != nil {
			list["listChanged"] = json.RawMessage("true")
			capabilities[name] = mustJSON(list)
		}
	}
	result["capabilities"] = mustJSON(capabilities)
	answer["result"] = mustJSON(result)
	return mustJSON(answer)
}

// followChanges subscribes to changes of the lists for a client of an older revision, once.
func (b *bridge) followChanges(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.following || b.negotiated == "" {
		return
	}
	b.following = true
	const line = `{"jsonrpc":"2.0","id":"farhand-mcp-changes","method":"subscriptions/listen","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"farhand mcp","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}},` +
		`"notifications":{"toolsListChanged":true,"resourcesListChanged":true}}}`
	var listen message
	_ = json.Unmarshal([]byte(line), &listen) // cannot fail: a constant
	b.running.Go(func() { b.listen(ctx, listen, []byte(line), b.writeChange) })
}

// writeChange writes a notification in the form of older revisions, and drops all other messages of the stream.
func (b *bridge) writeChange(text []byte) {
	var m message
	if json.Unmarshal(text, &m) == nil && m.ID == nil && m.Method != methodAcknowledged && m.Method != "" {
		b.out.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q}`, m.Method))
	}
}

// listen passes on a stream of notifications. It reopens a stream that breaks, and then reports every list it follows
// as changed, because notifications may have been missed. The client receives one acknowledgement. It receives an
// answer only if the gateway rejects the request or has nothing to send.
func (b *bridge) listen(ctx context.Context, m message, line []byte, write func([]byte)) {
	s := stream{id: m.ID, write: write}
	for delay := minDelay; ; delay = min(2*delay, maxDelay) {
		s.acknowledged = false
		err := b.post(ctx, m, line, s.pass)
		r, refused := errors.AsType[refusal](err)
		refused = refused && r.Status < http.StatusInternalServerError && r.Status != http.StatusTooManyRequests
		switch {
		case ctx.Err() != nil, s.over:
			return
		case refused, errors.Is(err, errNoAnswer) && s.lists == nil:
			b.failWith(m, err, write)
			return
		case s.acknowledged:
			delay = minDelay
		}
		if pause.For(ctx, delay/2+rand.N(delay/2)) != nil {
			return
		}
	}
}

// stream is a stream of notifications across reconnects.
type stream struct {
	id           json.RawMessage
	write        func([]byte)
	lists        []string // that the gateway reports; nil: not accepted yet
	acknowledged bool     // on this connection
	over         bool     // the gateway has answered that nothing will follow
}

func (s *stream) pass(text []byte) {
	var m struct {
		Method string
		Params struct{ Notifications map[string]any }
	}
	_ = json.Unmarshal(text, &m)
	switch {
	case m.Method == "":
		if len(s.lists) == 0 { // else the stream ends because its pod stops
			s.over = true
			s.write(text)
		}
	case m.Method != methodAcknowledged:
		s.write(text)
	case s.lists == nil:
		s.acknowledged, s.lists = true, []string{}
		for _, list := range []string{"tools", "prompts", "resources"} {
			if m.Params.Notifications[list+"ListChanged"] == true {
				s.lists = append(s.lists, list)
			}
		}
		s.write(text)
	default:
		s.acknowledged = true
		for _, list := range s.lists {
			s.write(fmt.Appendf(nil,
				`{"jsonrpc":"2.0","method":"notifications/%s/list_changed","params":{"_meta":{%q:%s}}}`,
				list, metaSubscription, s.id))
		}
	}
}

func mustJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
