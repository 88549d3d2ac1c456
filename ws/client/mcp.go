package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	pathMCP = "/ws/mcp"
	maxLine = 16 << 20 // bytes of one message of an MCP server; the gateway has its own limits

	// lostWait is how long the client tries to send on the current connection that a call is lost, before it leaves
	// that to the next connection.
	lostWait = time.Second

	// serverWriteTimeout is how long an MCP server may take to read one message. Meanwhile the client reads nothing
	// from the gateway.
	serverWriteTimeout = 10 * time.Second

	// maxOpenCalls bounds the remembered call ids, and maxCallID each of them, in bytes. A gateway has fewer calls in
	// flight at one device, and shorter ids.
	maxOpenCalls = 4096
	maxCallID    = 256
)

// RunMCP connects an MCP server to the gateway, whose address ends with /ws/mcp, and keeps it connected as Run does.
// Each line from the server is a message to the gateway, and each message from the gateway is a line to the server.
// Without a connection RunMCP reads nothing from the server, so the server's answers wait for the next connection. When
// the server ends, its unanswered calls are answered as lost.
//
// RunMCP returns ErrServer if the server's output ends, the server does not read a message within 10 s, or the gateway
// cannot speak MCP with it. The caller may then pass another server to RunMCP. RunMCP closes the server before it
// returns; closing must end the server's reads and writes. Neither Run nor another RunMCP may be active.
func (c *Client) RunMCP(ctx context.Context, server io.ReadWriteCloser) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("client: Run is already active")
	}
	defer c.running.Store(false)
	c.mu.Lock()
	if c.session == "" && c.cfg.deviceID == "" {
		c.session = rand.Text() // to resume after a reconnect; with a device id the gateway derives the session from it
	}
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	p := &mcpPipe{
		client: c, lines: make(chan []byte), server: server, giveUp: func() { cancel(ErrServer) },
		end: sync.OnceFunc(func() { _ = server.Close() }),
	}
	context.AfterFunc(ctx, p.end)
	defer func() {
		cancel(nil)
		p.end()
		p.reading.Wait()
		p.keepAnswer(p.unsent)
	}()
	p.reading.Go(func() { p.readLines(ctx) })
	err := c.stay(ctx, traffic{
		open:    func(*link) { c.cfg.onState(State{Phase: PhaseConnected, SessionID: c.SessionID()}) },
		send:    p.sendLines,
		receive: func(_ context.Context, _ *link, message []byte) { p.write(message) },
	})
	if errors.Is(context.Cause(ctx), ErrServer) {
		return ErrServer
	}
	return err
}

// introduceMCP adds the device's attributes to a URL, because MCP has no frame for them.
func (c *Client) introduceMCP(q url.Values) {
	for key, value := range map[string]string{
		"device_id": c.cfg.deviceID, "device_name": c.cfg.deviceName, "platform": c.cfg.platform, "resume": "true",
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	for key, value := range c.cfg.labels {
		q.Add("label", key+"="+value)
	}
}

// mcpPipe carries lines between a server and successive connections.
type mcpPipe struct {
	client  *Client
	server  io.ReadWriteCloser
	lines   chan []byte // lines of the server
	end     func()      // closes the server, which ends the reading
	giveUp  func()      // ends RunMCP
	reading sync.WaitGroup
	calls   mcpCalls

	unsent []byte // line that the last connection did not send; nil: none
}

// readLines reads the server's lines until they end. It ignores lines that are no JSON object, such as greetings.
func (p *mcpPipe) readLines(ctx context.Context) {
	defer p.giveUp()
	defer p.tellLost(ctx)
	scanner := bufio.NewScanner(p.server)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		line := bytes.TrimSpace(scanner.Bytes())
		if len(line) == 0 || line[0] != '{' {
			continue
		}
		p.calls.answered(line)
		select {
		case p.lines <- bytes.Clone(line):
		case <-ctx.Done():
			p.keepAnswer(bytes.Clone(line))
			return
		}
	}
	if err := scanner.Err(); err != nil && ctx.Err() == nil {
		p.client.cfg.log.Warn("reading from the MCP server failed", "error", err)
	}
}

// tellLost answers the open calls of a dead server. Answers that cannot be sent within lostWait are kept for the next
// connection, which has another server.
func (p *mcpPipe) tellLost(ctx context.Context) {
	late := time.After(lostWait)
	rest := append(p.calls.end(), nil) // nil is taken when the line before it has been sent
	for len(rest) > 0 {
		select {
		case p.lines <- rest[0]:
			rest = rest[1:]
			continue
		case <-ctx.Done():
		case <-late:
		}
		p.client.keepLost(rest[:len(rest)-1]...)
		return
	}
}

// keepAnswer keeps a line of the server for the next connection if it is an answer. The answered call is no longer open
// here, so nothing else would end it.
func (p *mcpPipe) keepAnswer(line []byte) {
	var r rpcMessage
	if line != nil && json.Unmarshal(line, &r) == nil && r.Method == "" {
		p.client.keepLost(line)
	}
}

// keepLost keeps answers for the next connection of an MCP server, at most maxOpenCalls of them.
func (c *Client) keepLost(answers ...[]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = append(c.lost, answers[:min(len(answers), maxOpenCalls-len(c.lost))]...)
}

func (c *Client) takeLost() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := c.lost
	c.lost = nil
	return lost
}

// write writes a message to the server. It closes the server if the write fails or takes longer than serverWait. If the
// server has already ended, write keeps the answer that the call is lost.
func (p *mcpPipe) write(message []byte) {
	log := p.client.cfg.log
	var r struct {
		rpcMessage
		Params struct{ Name string }
	}
	if json.Unmarshal(message, &r) == nil && r.Method == "tools/call" {
		log.Debug("call", "tool", r.Params.Name, "call", string(r.ID))
		if lost := p.calls.begin(r.ID); lost != nil {
			p.client.keepLost(lost)
			return
		}
	}
	late := time.AfterFunc(p.client.cfg.serverWait, func() {
		log.Warn("the MCP server does not read its input")
		p.end() // which ends the write
	})
	defer late.Stop()
	if _, err := p.server.Write(append(message, '\n')); err != nil {
		log.Debug("message not written to the MCP server", "error", err)
		p.end()
	}
}

// sendLines sends kept answers and then the server's lines until the connection ends.
func (p *mcpPipe) sendLines(linked context.Context, l *link) {
	lost := p.client.takeLost()
	for i, answer := range lost {
		if l.send(answer) != nil {
			p.client.keepLost(lost[i:]...)
			return
		}
	}
	for {
		if p.unsent == nil {
			select {
			case p.unsent = <-p.lines:
			case <-linked.Done():
				return
			}
		}
		if p.unsent != nil { // nil only waits until the line before it has been sent
			if err := l.send(p.unsent); err != nil {
				return
			}
		}
		p.unsent = nil
	}
}

// mcpCalls tracks the calls that an MCP server has not answered yet. It is safe for concurrent use.
type mcpCalls struct {
	mu    sync.Mutex
	open  map[string]bool // by id, as JSON
	ended bool            // the server has ended and sends no more answers
}

type rpcMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// begin records a call. If the server has ended, begin returns the answer that the call is lost.
func (m *mcpCalls) begin(id json.RawMessage) (lost []byte) {
	if len(id) == 0 || len(id) > maxCallID {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return lostAnswer(string(id))
	}
	if m.open == nil {
		m.open = make(map[string]bool)
	}
	if len(m.open) < maxOpenCalls {
		m.open[string(id)] = true
	}
	return nil
}

func (m *mcpCalls) answered(line []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r rpcMessage
	if len(m.open) > 0 && json.Unmarshal(line, &r) == nil && r.Method == "" {
		delete(m.open, string(r.ID))
	}
}

// end records that the server has ended. It returns the answers to the open calls.
func (m *mcpCalls) end() (lost [][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.open)) {
		lost = append(lost, lostAnswer(id))
	}
	m.open, m.ended = nil, true
	return lost
}

// lostAnswer returns the answer for a lost call. The code in its data is the gateway's.
func lostAnswer(id string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32000,"message":"The MCP server ended before it ` +
		`answered.","data":{"code":"lost"}}}`)
}
