package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

// stdioServer is an MCP server over pipes, driven by hand.
type stdioServer struct {
	io.Reader // what it says
	in        *io.PipeWriter

	heard *bufio.Reader // what it is sent
	read  *io.PipeReader
	say   *io.PipeWriter
}

func newStdioServer() *stdioServer {
	read, in := io.Pipe()
	out, say := io.Pipe()
	return &stdioServer{Reader: out, in: in, heard: bufio.NewReader(read), read: read, say: say}
}

func (s *stdioServer) Write(p []byte) (int, error) { return s.in.Write(p) }

// Close ends reading and writing, as RunMCP asks for.
func (s *stdioServer) Close() error {
	_ = s.in.Close()
	_ = s.read.Close()
	return s.say.Close()
}

// hears reads what it is sent, to the message that has the text. Between messages there may be empty lines.
func (s *stdioServer) hears(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := s.heard.ReadString('\n')
		must(t, err)
		if strings.Contains(line, text) {
			return
		}
	}
}

func (s *stdioServer) line(t *testing.T, text string) {
	t.Helper()
	_, err := io.WriteString(s.say, text+"\n")
	must(t, err)
}

// startMCP runs a server as a device of a fake gateway until the test ends.
func startMCP(
	t *testing.T, f *fake, server io.ReadWriteCloser, options ...client.Option,
) (*client.Client, <-chan error) {
	t.Helper()
	c, err := client.New(f.http.URL+"/ws/mcp",
		append([]client.Option{client.WithBackoff(time.Millisecond, 5*time.Millisecond)}, options...)...)
	must(t, err)
	ctx, cancel := newContext()
	done, finished := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(finished)
		done <- c.RunMCP(ctx, server)
	}()
	t.Cleanup(func() {
		cancel()
		wait(t, finished)
	})
	return c, done
}

// A server's lines are messages, and messages are lines for it, on one connection after the other.
func TestRunMCP(t *testing.T) {
	t.Parallel()
	f, s := newFake(t), newStdioServer()
	c, done := startMCP(t, f, s, client.WithDevice("d1", "Desk", "linux"),
		client.WithLabels(map[string]string{"room": "hall"}))
	p := wait(t, f.conns)
	for key, want := range map[string]string{"device_id": "d1", "device_name": "Desk", "platform": "linux",
		"label": "room=hall", "resume": "true"} {
		if got := p.query[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if c.RunMCP(t.Context(), s) == nil {
		t.Error("two of them run at a time")
	}
	p.send(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"})
	if text, err := s.heard.ReadString('\n'); err != nil || !strings.Contains(text, `"ping"`) {
		t.Errorf("the server was sent %q, %v", text, err)
	}
	s.line(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	if m := p.raw(); m["id"] != 1.0 {
		t.Errorf("the gateway was sent %v", m)
	}
	p.close(websocket.CloseServiceRestart, "")
	p = wait(t, f.conns)
	s.line(t, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	if m := p.raw(); m["id"] != 2.0 {
		t.Errorf("the next connection was sent %v", m)
	}
	must(t, s.say.Close()) // the server ends
	if err := wait(t, done); !errors.Is(err, client.ErrServer) {
		t.Errorf("the server has ended: %v", err)
	}
}

// Calls that a server was given and has not answered when it ends are answered at once, on the connection there is.
func TestRunMCPServerThatCrashes(t *testing.T) {
	t.Parallel()
	f, s := newFake(t), newStdioServer()
	c, done := startMCP(t, f, s)
	p := wait(t, f.conns)
	for _, id := range []any{"a", "b", 7} {
		p.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": "tools/call"})
	}
	p.send(map[string]any{"jsonrpc": "2.0", "id": "list", "method": "tools/list"})
	s.hears(t, `"list"`) // the last of them
	s.line(t, `{"jsonrpc":"2.0","id":"b","result":{}}`)
	if m := p.raw(); m["id"] != "b" {
		t.Fatalf("the gateway was sent %v", m)
	}
	must(t, s.say.Close())
	for _, id := range []any{"a", 7.0} {
		m := p.raw()
		failed, _ := m["error"].(map[string]any)
		if data, _ := failed["data"].(map[string]any); m["id"] != id || data["code"] != "lost" {
			t.Errorf("of the call %v the gateway was sent %v", id, m)
		}
	}
	p.ends()
	if err := wait(t, done); !errors.Is(err, client.ErrServer) {
		t.Errorf("the server has ended: %v", err)
	}

	// A server that does not read is closed; what it was given while nothing could be sent is said on the next
	// connection.
	s = newStdioServer()
	ctx, cancel := newContext()
	defer cancel()
	again := make(chan error, 1)
	go func() { again <- c.RunMCP(ctx, s) }()
	p = wait(t, f.conns)
	p.send(map[string]any{"jsonrpc": "2.0", "id": "c", "method": "tools/call"})
	s.hears(t, `"c"`)
	f.refuses.Store(true)
	p.close(websocket.CloseServiceRestart, "")
	testkit.Eventually(t, "the client has noticed", func() bool { return f.refused.Load() > 0 })
	must(t, s.say.Close())
	if err := wait(t, again); !errors.Is(err, client.ErrServer) {
		t.Errorf("the server has ended: %v", err)
	}
	f.refuses.Store(false)
	s = newStdioServer()
	go func() { again <- c.RunMCP(ctx, s) }()
	p = wait(t, f.conns)
	if m := p.raw(); m["id"] != "c" {
		t.Errorf("the next connection was sent %v", m)
	}
	cancel()
	p.ends()
	<-again
}

// A line that is no message is not sent.
func TestRunMCPGarbage(t *testing.T) {
	t.Parallel()
	f, s := newFake(t), newStdioServer()
	c, _ := startMCP(t, f, s, client.WithToken("t"), client.WithLogger(slog.New(slog.DiscardHandler)))
	p := wait(t, f.conns)
	if id := c.SessionID(); id == "" || len(p.query["session_id"]) != 1 || p.query["session_id"][0] != id {
		t.Errorf("session %q, the URL has %q", id, p.query["session_id"])
	}
	for _, text := range []string{"Server is running on stdio", "", "  \t", "[1]", "\x00\xff\x1b[0m", `"text"`} {
		s.line(t, text)
	}
	s.line(t, `  {"jsonrpc":"2.0","id":3,"result":{}}`+"\r")
	if m := p.raw(); m["id"] != 3.0 {
		t.Errorf("the gateway was sent %v", m)
	}
}

// A message that is too long ends the server.
func TestRunMCPTooLong(t *testing.T) {
	t.Parallel()
	f, s := newFake(t), newStdioServer()
	_, done := startMCP(t, f, s)
	wait(t, f.conns)
	chunk := []byte(`{"` + strings.Repeat("x", 1<<20))
	for range 32 {
		if _, err := s.say.Write(chunk); err != nil {
			break
		}
	}
	if err := wait(t, done); !errors.Is(err, client.ErrServer) {
		t.Errorf("a message without an end: %v", err)
	}
}

// A server that does not read what it is sent, or cannot be written to, ends.
func TestRunMCPServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	f, s := newFake(t), newStdioServer()
	_, done := startMCP(t, f, s, client.WithServerWait(time.Millisecond))
	wait(t, f.conns).send(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"})
	if err := wait(t, done); !errors.Is(err, client.ErrServer) {
		t.Errorf("a server that does not read: %v", err)
	}

	s = newStdioServer()
	_, done = startMCP(t, f, s)
	must(t, s.read.Close())
	wait(t, f.conns).send(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"})
	if err := wait(t, done); !errors.Is(err, client.ErrServer) {
		t.Errorf("a server that cannot be written to: %v", err)
	}
}

// What ends a session for good ends RunMCP, and so does its context.
func TestRunMCPEnds(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	_, done := startMCP(t, f, newStdioServer())
	wait(t, f.conns).close(websocket.CloseNormalClosure, "session_ended")
	if err := wait(t, done); !errors.Is(err, client.ErrEnded) {
		t.Errorf("the session has ended: %v", err)
	}

	c, err := client.New(f.http.URL + "/ws/mcp")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.RunMCP(ctx, newStdioServer()); !errors.Is(err, context.Canceled) {
		t.Errorf("its context has ended: %v", err)
	}
}

// An answer that RunMCP had read when it ended is sent on the next connection.
func TestRunMCPKeepsAnAnswerWhenItEnds(t *testing.T) {
	t.Parallel()
	f, s := newFake(t), newStdioServer()
	f.refuses.Store(true)
	c, err := client.New(f.http.URL+"/ws/mcp", client.WithBackoff(time.Millisecond, 5*time.Millisecond))
	must(t, err)
	ctx, cancel := newContext()
	done := make(chan error, 1)
	go func() { done <- c.RunMCP(ctx, s) }()
	s.line(t, `{"jsonrpc":"2.0","id":"late","result":{}}`) // it has been read then
	cancel()
	wait(t, done)
	f.refuses.Store(false)
	ctx, cancel = newContext()
	go func() { done <- c.RunMCP(ctx, newStdioServer()) }()
	if m := wait(t, f.conns).raw(); m["id"] != "late" {
		t.Errorf("the next connection was sent %v", m)
	}
	cancel()
	wait(t, done)
}
