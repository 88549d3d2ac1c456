package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"
)

// pathMCP is where devices that speak MCP connect.
const pathMCP = "/ws/mcp"

// maxLine is how many bytes one message of an MCP server may have. The gateway has limits of its own.
const maxLine = 16 << 20

// lostWait is how long the connection may take to send that a call is lost. Later it is said on the next connection.
const lostWait = time.Second

// serverWriteTimeout is how long an MCP server may take to read one message. Meanwhile nothing is read of the gateway.
const serverWriteTimeout = 10 * time.Second

// RunMCP connects an MCP server to the gateway, whose address ends with /ws/mcp, and keeps it connected as Run does: a
// line that is read of the server is a message to the gateway, and a message of the gateway is a line that is written
// to it. While there is no connection nothing is read, so what the server answers meanwhile is sent on the next one.
// Calls that the server has not answered when it ends are answered as lost.
// The error is ErrServer once the server's lines end, it does not read a message in 10 s, or the gateway cannot speak
// to it: another one may be given to RunMCP then. RunMCP closes the server at its end, which must end reading and
// writing. Neither Run nor another RunMCP may be active.
func (c *Client) RunMCP(ctx context.Context, server io.ReadWriteCloser) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("client: Run is active already")
	}
	defer c.running.Store(false)
	c.mu.Lock()
	if c.session == "" && c.cfg.deviceID == "" {
		c.session = rand.Text() // to come back to; else the gateway names it after the device
	}
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	p := &mcpPipe{
		client: c, lines: make(chan []byte), server: server, giveUp: func() { cancel(ErrServer) },
		end: sync.OnceFunc(func() { _ = server.Close() }),
	}
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		p.end()
	})
	defer func() {
		cancel(nil)
		<-closed
		p.reading.Wait()
		p.keepAnswer(p.unsent)
	}()
	p.reading.Go(func() { p.readLines(ctx) })
	err := c.stay(ctx, p.connect)
	if errors.Is(context.Cause(ctx), ErrServer) {
		return ErrServer
	}
	return err
}

// introduceMCP says in a URL which device this is, because MCP has no frame for it.
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

// mcpPipe carries lines between a server and one connection after the other.
type mcpPipe struct {
	client  *Client
	server  io.ReadWriteCloser
	lines   chan []byte // of the server
	end     func()      // closes the server, and so ends the reading of it
	giveUp  func()      // ends RunMCP
	reading sync.WaitGroup
	calls   mcpCalls

	unsent []byte // the line that the last connection did not take; nil: none
}

// readLines reads the server's lines until they end. What is no JSON object is no message: some servers greet.
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
		p.client.cfg.log.Warn("the MCP server can no longer be read", "error", err)
	}
}

// tellLost answers the calls that the server has not answered, now that it has ended. What cannot be sent soon is kept
// for the next connection, which has another server.
func (p *mcpPipe) tellLost(ctx context.Context) {
	late := time.NewTimer(lostWait)
	defer late.Stop()
	rest := append(p.calls.end(), nil) // which is taken when the one before it has been sent
	for len(rest) > 0 {
		select {
		case p.lines <- rest[0]:
			rest = rest[1:]
			continue
		case <-ctx.Done():
		case <-late.C:
		}
		p.client.keepLost(rest[:len(rest)-1]...)
		return
	}
}

// keepAnswer keeps a line of the server for the next connection if it is an answer. The call that it answers is no
// longer open here, so nothing else would end it.
func (p *mcpPipe) keepAnswer(line []byte) {
	var r rpcMessage
	if line != nil && json.Unmarshal(line, &r) == nil && r.Method == "" {
		p.client.keepLost(line)
	}
}

// keepLost keeps answers for the next connection of an MCP server, a bounded number of them.
func (c *Client) keepLost(answers ...[]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = append(c.lost, answers[:min(len(answers), maxOpenCalls-len(c.lost))]...)
}

// takeLost returns what keepLost has kept.
func (c *Client) takeLost() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := c.lost
	c.lost = nil
	return lost
}

// connect makes one connection and carries lines to its end.
func (p *mcpPipe) connect(ctx context.Context) (atLeast time.Duration, err error) {
	c := p.client
	c.cfg.onState(State{Phase: PhaseConnecting, SessionID: c.SessionID()})
	l, err := c.dial(ctx)
	if err != nil {
		if refused := (*RefusedError)(nil); errors.As(err, &refused) {
			return refused.retryAfter, err
		}
		return 0, err
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer l.conn.Close()
	defer l.closeWhenDone(ctx)()
	linked, unlink := context.WithCancel(ctx)
	defer unlink()
	writing.Go(func() { p.sendLines(linked, l) })
	c.cfg.onState(State{Phase: PhaseConnected, SessionID: c.SessionID()})
	return 0, l.readFrames(p.write)
}

// noteCall logs a call that a message is, if calls are logged.
func (p *mcpPipe) noteCall(message []byte) {
	log := p.client.cfg.log
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	if json.Unmarshal(message, &m) == nil && m.Method == "tools/call" {
		log.Debug("call", "tool", m.Params.Name, "call", string(m.ID))
	}
}

// write writes a message to the server. One that cannot be written to, or that does not read, is given up.
func (p *mcpPipe) write(message []byte) {
	p.noteCall(message)
	log := p.client.cfg.log
	if lost := p.calls.begin(message); lost != nil {
		p.client.keepLost(lost)
		return
	}
	late := time.AfterFunc(p.client.cfg.serverWait, func() {
		log.Warn("the MCP server does not read what it is sent")
		p.end() // and so the write
	})
	defer late.Stop()
	if _, err := p.server.Write(append(message, '\n')); err != nil {
		log.Debug("message not written to the MCP server", "error", err)
		p.end()
	}
}

// sendLines sends the server's lines until the connection ends.
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
		if p.unsent != nil { // nil only waits for what was sent before
			if err := l.send(p.unsent); err != nil {
				return
			}
		}
		p.unsent = nil
	}
}

// maxOpenCalls bounds the calls whose ids are remembered: more than a gateway has in flight at one device.
const maxOpenCalls = 4096

// maxCallID bounds the id of a call that is remembered, in bytes: those of a gateway are shorter.
const maxCallID = 256

// mcpCalls are the calls that an MCP server was given and has not answered. It is safe for concurrent use.
type mcpCalls struct {
	mu    sync.Mutex
	open  map[string]bool // by id, as JSON
	ended bool            // the server has ended, and answers nothing more
}

// rpcMessage is what is read of a message of JSON-RPC.
type rpcMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// begin notes a message of the gateway. It returns the answer to it if the server cannot give one, because it has
// ended.
func (m *mcpCalls) begin(message []byte) (lost []byte) {
	var r rpcMessage
	if json.Unmarshal(message, &r) != nil || r.Method != "tools/call" || len(r.ID) == 0 || len(r.ID) > maxCallID {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return lostAnswer(string(r.ID))
	}
	if m.open == nil {
		m.open = make(map[string]bool)
	}
	if len(m.open) < maxOpenCalls {
		m.open[string(r.ID)] = true
	}
	return nil
}

// answered notes a message of the server.
func (m *mcpCalls) answered(line []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r rpcMessage
	if len(m.open) > 0 && json.Unmarshal(line, &r) == nil && r.Method == "" {
		delete(m.open, string(r.ID))
	}
}

// end notes that the server has ended. It returns the answers to the calls that are open.
func (m *mcpCalls) end() (lost [][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.open)) {
		lost = append(lost, lostAnswer(id))
	}
	m.open, m.ended = nil, true
	return lost
}

// lostAnswer says that a call will not be answered. The code in its data is the gateway's own.
func lostAnswer(id string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32000,"message":"The MCP server ended before it ` +
		`answered.","data":{"code":"lost"}}}`)
}
