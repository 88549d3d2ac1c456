package openclaw_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// proxy stands between a node and its pods. It writes down every frame, checks it against the published schema, and
// reports violations when the test ends.
type proxy struct {
	t      testing.TB
	addr   string
	schema *schema

	mu     sync.Mutex
	pods   []string // addresses; the first that accepts a connection is used
	frames []frame
	closes []int // codes with which pods closed connections
	wrong  []string
	conns  map[*websocket.Conn]bool
	copies sync.WaitGroup
}

// frame is what one side sent.
type frame struct {
	fromNode bool
	envelope
	text string
}

// startProxy starts a proxy to pods.
func startProxy(t testing.TB, pods ...string) *proxy {
	t.Helper()
	p := &proxy{t: t, pods: pods, schema: readSchema(t), conns: map[*websocket.Conn]bool{}}
	server := httptest.NewServer(p)
	p.addr = server.Listener.Addr().String()
	t.Cleanup(func() {
		server.Close()
		p.cut()
		p.copies.Wait()
		for _, w := range p.wrong[:min(len(p.wrong), 10)] {
			t.Error("against the published schema: " + w)
		}
	})
	return p
}

// cut breaks the open connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// ServeHTTP connects a node to a pod.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pod := p.dial(r.URL)
	if pod == nil {
		http.Error(w, "no pod accepts connections", http.StatusBadGateway)
		return
	}
	node, err := (&websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}).Upgrade(w, r, nil)
	if err != nil {
		_ = pod.Close()
		return
	}
	if !p.keep(node, pod) {
		return
	}
	talk := &dialogues{d: p.schema.dialogue()}
	p.copies.Add(2)
	go p.copy(node, pod, true, talk)
	go p.copy(pod, node, false, talk)
}

// dialogues lets both directions use a dialogue.
type dialogues struct {
	mu sync.Mutex
	d  *dialogue
}

func (p *proxy) dial(u *url.URL) *websocket.Conn {
	p.mu.Lock()
	pods := p.pods
	p.mu.Unlock()
	for _, addr := range pods {
		dialer := &websocket.Dialer{HandshakeTimeout: 20 * time.Second,
			NetDial: func(network, a string) (net.Conn, error) {
				return net.DialTimeout(network, a, time.Second)
			}}
		conn, resp, err := dialer.Dial("ws://"+addr+u.RequestURI(), nil)
		if resp != nil {
			_ = resp.Body.Close()
		}
		if err == nil {
			return conn
		}
	}
	return nil
}

func (p *proxy) keep(conns ...*websocket.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

// copy passes on what one side sends, until it ends.
func (p *proxy) copy(from, to *websocket.Conn, fromNode bool, talk *dialogues) {
	defer p.copies.Done()
	for {
		kind, text, err := from.ReadMessage()
		if err != nil {
			p.end(from, to, fromNode, err)
			return
		}
		p.write(text, fromNode, talk)
		if to.WriteMessage(kind, text) != nil {
			_ = from.Close()
			return
		}
	}
}

// end passes on a close frame, or breaks the other connection.
func (p *proxy) end(from, to *websocket.Conn, fromNode bool, err error) {
	deadline := time.Now().Add(time.Second)
	if closed, ok := err.(*websocket.CloseError); ok && closed.Code != websocket.CloseAbnormalClosure &&
		closed.Code != websocket.CloseNoStatusReceived {
		_ = to.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(closed.Code, closed.Text), deadline)
		if !fromNode {
			p.mu.Lock()
			p.closes = append(p.closes, closed.Code)
			p.mu.Unlock()
		}
	}
	_ = from.Close()
	time.AfterFunc(200*time.Millisecond, func() { _ = to.Close() }) // the close frame arrives first
}

func (p *proxy) write(text []byte, fromNode bool, talk *dialogues) {
	f := frame{fromNode: fromNode, text: string(text)}
	_ = json.Unmarshal(text, &f.envelope) // check reports what is wrong
	talk.mu.Lock()
	err := talk.d.check(text)
	talk.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames = append(p.frames, f)
	if err != nil {
		p.wrong = append(p.wrong, side(fromNode)+" sent "+f.text[:min(len(f.text), 500)]+": "+err.Error())
	}
}

func side(node bool) string {
	if node {
		return "the node"
	}
	return "Farhand"
}

// count returns how many frames of one side contain all words.
func (p *proxy) count(fromNode bool, words ...string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
next:
	for _, f := range p.frames {
		if f.fromNode != fromNode {
			continue
		}
		for _, word := range words {
			if !strings.Contains(f.text, word) {
				continue next
			}
		}
		n++
	}
	return n
}

// asked reports whether a node has sent a text.
func (p *proxy) asked(text string) bool { return p.count(true, text) > 0 }

// closedWith reports whether a pod has closed a connection with a code.
func (p *proxy) closedWith(code int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.closes {
		if c == code {
			return true
		}
	}
	return false
}
