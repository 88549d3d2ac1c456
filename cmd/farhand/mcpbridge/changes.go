package mcpbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// Backoff before the bridge reopens a stream that broke.
const (
	minDelay = 500 * time.Millisecond
	maxDelay = 30 * time.Second
)

// agreement returns the revision and session that initialize agreed on, empty if there was none.
func (b *bridge) agreement() (revision, session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.negotiated, b.session
}

// noteSession keeps the session name that initialize gave the client. The bridge sends it with each message. Without
// it, a cancellation could hit the request of another client with the same token.
func (b *bridge) noteSession(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session = name
}

// noteVersion returns the answer to initialize as the client receives it. It stores the revision, and declares that
// changes of lists are sent. The gateway cannot send them to a client of an older revision; the bridge does.
func (b *bridge) noteVersion(text []byte) []byte {
	var answer map[string]json.RawMessage
	var result, capabilities map[string]json.RawMessage
	if json.Unmarshal(text, &answer) != nil || json.Unmarshal(answer["result"], &result) != nil ||
		result == nil {
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
	if err := json.Unmarshal([]byte(line), &listen); err != nil {
		panic(err)
	}
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
	ctx, done, ok := b.begin(ctx, m.ID)
	if !ok {
		write(failure(m.ID, codeInvalidRequest, "A request with this id is under way.", nil))
		return
	}
	defer done()
	s := stream{id: m.ID, write: write}
	for delay := minDelay; ; delay = min(2*delay, maxDelay) {
		s.acknowledged = false
		err := b.post(ctx, m, line, s.pass)
		var r refusal
		switch {
		case ctx.Err() != nil, s.over:
			return
		case errors.As(err, &r) && r.Status < http.StatusInternalServerError && r.Status != http.StatusTooManyRequests:
			b.failWith(m, err, write)
			return
		case errors.Is(err, errNoAnswer) && s.lists == nil:
			b.failWith(m, err, write)
			return
		case s.acknowledged:
			delay = minDelay
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay/2 + rand.N(delay/2)):
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

// pass handles a message of the stream.
func (s *stream) pass(text []byte) {
	var m struct {
		Method string
		Params struct {
			Notifications struct{ ToolsListChanged, PromptsListChanged, ResourcesListChanged bool }
		}
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
		s.acknowledged = true
		s.lists = []string{}
		told := m.Params.Notifications
		for list, tells := range map[string]bool{
			"tools": told.ToolsListChanged, "prompts": told.PromptsListChanged, "resources": told.ResourcesListChanged,
		} {
			if tells {
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

// mustJSON encodes a value that was decoded from JSON before.
func mustJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
