package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// said is a frame of the gateway's, or an event of a turn, which says the same.
type said struct {
	Type         string          `json:"type"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Args         json.RawMessage `json:"args"`
	Output       string          `json:"output"`
	Status       string          `json:"status"`
	Content      string          `json:"content"`
	FullResponse string          `json:"full_response"`
	Title        string          `json:"title"`
	Message      string          `json:"message"`
	Code         string          `json:"code"`
	Messages     json.RawMessage `json:"messages"`
	Tokens       int             `json:"estimated_tokens"`
	Resumed      bool            `json:"resumed"`
	MessageCount int             `json:"message_count"`
	Dropped      int             `json:"dropped"`
}

// closed is the type of what is heard last on a socket that was closed in good order: Code is the close code.
const closed = "closed"

// ended reports whether it is the last of a turn.
func (s said) ended() bool { return s.Type == "done" || s.Type == "aborted" || s.Type == "error" }

// ofType matches by type.
func ofType(types ...string) func(said) bool {
	return func(s said) bool {
		for _, t := range types {
			if s.Type == t {
				return true
			}
		}
		return false
	}
}

// inbox is what a client received, in order. One goroutine of a test reads it.
type inbox struct {
	t   testing.TB
	who string

	mu      sync.Mutex
	heard   []said
	over    bool
	why     error         // it ended, of a phone
	changed chan struct{} // closed at the next change

	read int // of the goroutine that reads
}

func newInbox(t testing.TB, who string) *inbox {
	return &inbox{t: t, who: who, changed: make(chan struct{})}
}

func (b *inbox) put(s said) { b.change(func() { b.heard = append(b.heard, s) }) }
func (b *inbox) end()       { b.change(func() { b.over = true }) }

func (b *inbox) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.changed)
	b.changed = make(chan struct{})
}

// until returns what is heard from where the last call ended to the first that matches.
func (b *inbox) until(what string, match func(said) bool) []said {
	b.t.Helper()
	deadline := time.After(waitLimit)
	for from := b.read; ; {
		b.mu.Lock()
		heard, over, changed := b.heard, b.over, b.changed
		b.mu.Unlock()
		for b.read < len(heard) {
			b.read++
			if match(heard[b.read-1]) {
				return heard[from:b.read]
			}
		}
		if over {
			b.t.Fatalf("%s: the stream ended before %s (%v); heard %+v", b.who, what, b.why, heard[from:])
		}
		select {
		case <-changed:
		case <-deadline:
			b.t.Fatalf("%s: no %s in %v; heard %+v", b.who, what, waitLimit, heard[from:])
		}
	}
}

// first returns the next that matches.
func (b *inbox) first(what string, match func(said) bool) said {
	b.t.Helper()
	all := b.until(what, match)
	return all[len(all)-1]
}

// all returns what was heard until now.
func (b *inbox) all() []said {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.heard)
}

// holds waits until what was heard is enough, beside the goroutine that reads. It reports false if nothing more will
// come.
func (b *inbox) holds(enough func([]said) bool) bool {
	deadline := time.After(waitLimit)
	for {
		b.mu.Lock()
		over, changed := b.over, b.changed
		b.mu.Unlock()
		if enough(b.all()) {
			return true
		}
		if over {
			return false
		}
		select {
		case <-changed:
		case <-deadline:
			return false
		}
	}
}

// has reports whether something was heard, at any time.
func (b *inbox) has(match func(said) bool) bool {
	return slices.ContainsFunc(b.all(), match)
}

// phone is a device that talks. It speaks the protocol by itself: no SDK of ours stands between the gateway and the
// test.
type phone struct {
	*inbox
	session string
	opening said // session_start
	conn    *websocket.Conn
	work    func(p *phone, call said) (output string, ok bool) // ok false: no answer
	write   sync.Mutex
	done    sync.WaitGroup
}

// toolsOfPhone are what a phone offers from the start.
var toolsOfPhone = []string{"echo", "other"}

// connectPhone connects a device and waits until its tools are registered. With work nil its tools return their
// arguments.
func connectPhone(t testing.TB, url, session string, work func(*phone, said) (string, bool)) *phone {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/ws/chat?session_id="+session,
		http.Header{"Authorization": {"Bearer " + fleetToken}})
	if err != nil {
		t.Fatalf("%s: %v", session, err)
	}
	if work == nil {
		work = func(_ *phone, call said) (string, bool) { return string(call.Args), true }
	}
	conn.SetPingHandler(func(data string) error { // gorilla's own breaks the connection of a machine that stalls
		_ = conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(waitLimit))
		return nil
	})
	p := &phone{inbox: newInbox(t, "phone "+session), session: session, conn: conn, work: work}
	p.done.Go(p.listen)
	t.Cleanup(p.disconnect)
	p.opening = p.first("session_start", ofType("session_start"))
	p.send(map[string]any{"type": "connect", "v": 1, "capabilities": []string{"cancel", "drain"}})
	p.offer(toolsOfPhone...)
	return p
}

func (p *phone) listen() {
	defer p.end()
	for {
		var f said
		if err := p.conn.ReadJSON(&f); err != nil {
			if c, ok := errors.AsType[*websocket.CloseError](err); ok {
				p.put(said{Type: closed, Code: strconv.Itoa(c.Code)})
			}
			p.change(func() { p.why = err })
			return
		}
		p.put(f)
		if f.Type == "tool_call_request" {
			p.done.Go(func() {
				if output, ok := p.work(p, f); ok {
					p.send(map[string]any{"type": "tool_result", "id": f.ID, "output": output, "success": true})
				}
			})
		}
	}
}

// send writes a frame. What a connection that is gone does not take shows in what is not heard.
func (p *phone) send(frame map[string]any) {
	p.write.Lock()
	defer p.write.Unlock()
	_ = p.conn.WriteJSON(frame)
}

// offer registers tools and waits until they are.
func (p *phone) offer(names ...string) {
	p.t.Helper()
	p.register(names...)
	p.first("tools_registered", ofType("tools_registered"))
}

func (p *phone) register(names ...string) {
	tools := make([]any, len(names))
	for i, name := range names {
		tools[i] = map[string]any{"name": name, "description": "returns its arguments",
			"parameters": map[string]any{"type": "object"}}
	}
	p.send(map[string]any{"type": "register_tools", "tools": tools})
}

// disconnect disconnects. It may be called again.
func (p *phone) disconnect() {
	p.conn.Close()
	p.done.Wait()
}

// post says something over HTTP and returns what is streamed. disconnect ends it; it may be called again, and is when
// the
// test ends.
func post(t testing.TB, url, session string, body map[string]any) (events *inbox, disconnect func()) {
	t.Helper()
	body["stream"], body["results"] = true, "plain"
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	events = newInbox(t, "caller of "+session)
	var done sync.WaitGroup
	done.Go(func() {
		defer events.end()
		listen(ctx, events, url+"/api/sessions/"+session+"/messages", raw)
	})
	disconnect = func() { cancel(); done.Wait() }
	t.Cleanup(disconnect)
	return events, disconnect
}

// listen puts the events of a turn into the inbox. A refusal is heard as an error, with the code the chat knows it by.
func listen(ctx context.Context, events *inbox, url string, body []byte) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		events.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return // the caller hung up, or the pod is gone
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var p problem
		_ = json.NewDecoder(resp.Body).Decode(&p)
		code, message, ok := strings.Cut(p.Detail, ": ")
		if !ok {
			code, message = string(p.Code), p.Detail
		}
		events.put(said{Type: "error", Code: code, Message: message, Status: string(p.Code)})
		return
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxChatEvent)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			var s said
			if err := json.Unmarshal(data, &s); err != nil {
				events.t.Errorf("event %s: %v", data, err)
			}
			events.put(s)
		}
	}
}
