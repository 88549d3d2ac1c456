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

	"github.com/farhand/farhand/internal/ssereader"
)

// Codes of JSON-RPC.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeInternal       = -32603
)

// refusal is an answer of HTTP that is no message.
type refusal struct {
	Status int
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Error implements error, with what to do.
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

// post sends a message and passes each message of the answer to write. A nil error says that the answer was whole.
func (b *bridge) post(ctx context.Context, m message, line []byte, write func([]byte)) error {
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
		return passEvents(resp.Body, m.ID, write)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, MaxMessage+1))
	if err != nil {
		return fmt.Errorf("the answer of the gateway broke off: %w", err)
	}
	if len(text) > MaxMessage {
		return fmt.Errorf("the answer is longer than %d MiB", MaxMessage>>20)
	}
	return passAnswer(resp.StatusCode, text, write)
}

// passAnswer passes an answer on that is one message. Errors of the protocol have a status besides.
func passAnswer(status int, text []byte, write func([]byte)) error {
	var known struct {
		JSONRPC string `json:"jsonrpc"`
		refusal
	}
	err := json.Unmarshal(text, &known)
	switch {
	case err == nil && known.JSONRPC != "" || len(text) > 0 && text[0] == '[' && json.Valid(text):
		write(text)
		return nil
	case status < 300 && len(text) == 0: // a notification was taken
		return nil
	}
	return refusal{Status: status, Code: known.Code, Detail: known.Detail}
}

// passEvents passes on the messages of a stream, up to the answer to the request.
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
			continue // there to keep the connection open
		}
		write(event.Data)
		if id != nil && answers(event.Data, id) {
			return nil
		}
	}
}

// answers reports whether a message is the answer to the request with an id.
func answers(text []byte, id json.RawMessage) bool {
	var m message
	return json.Unmarshal(text, &m) == nil && m.Method == "" && bytes.Equal(m.ID, id)
}

// failWith answers a request that failed on the way. What no request is told of goes to the log.
func (b *bridge) failWith(m message, err error, write func([]byte)) {
	var r refusal
	var data any
	if errors.As(err, &r) && r.Code != "" {
		data = map[string]any{"code": r.Code, "status": r.Status}
	}
	if m.ID == nil {
		fmt.Fprintf(b.Log, "farhand mcp: %s: %v\n", m.Method, err)
		return
	}
	write(failure(m.ID, codeInternal, err.Error(), data))
}

// failure is an error as the answer to a request; a nil id is for what could not be read.
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
