package mcpbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"time"

	"github.com/farhand/farhand/internal/ssereader"
	"github.com/farhand/farhand/registry/legible"
)

// JSON-RPC error codes.
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
var errNoAnswer = errors.New("the gateway has answered with something that is no answer to this request")

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
	revision, session := b.agreement()
	m.header(req.Header, revision, session)
	resp, err := b.Client.Do(req)
	if err != nil {
		return fmt.Errorf("no answer from the gateway at %s: %w", b.URL, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if m.Method == methodInitialize {
		b.noteSession(resp.Header.Get(headerSession))
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
		return fmt.Errorf("the answer of the gateway broke off: %w", err)
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
			return errors.New("the connection to the gateway ended before the answer came")
		case err != nil:
			return fmt.Errorf("the answer of the gateway broke off: %w", err)
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
	var r refusal
	var data any
	if errors.As(err, &r) && r.Code != "" {
		data = map[string]any{"code": r.Code, "status": r.Status}
	}
	if m.ID == nil { // shown on a terminal; the gateway's text is untrusted
		fmt.Fprintf(b.Log, "farhand mcp: %s\n", legible.Line(m.Method+": "+err.Error()))
		return
	}
	write(failure(m.ID, codeInternal, legible.Clean(err.Error()), data))
}

// failure returns an error as the answer to a request. A nil id is for a request whose id could not be read.
func failure(id json.RawMessage, code int, text string, data any) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
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
