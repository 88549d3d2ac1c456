package ws_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/client"
)

// lineServer is an MCP server that reads and writes lines, as one behind stdio. Calls are answered when the test says
// so.
type lineServer struct {
	in    *io.PipeReader // what it reads
	write *io.PipeWriter // that the client writes to
	read  *io.PipeReader // that the client reads
	out   *io.PipeWriter // what it says
	calls chan rpc
}

func newLineServer(t *testing.T) *lineServer {
	s := &lineServer{calls: make(chan rpc, 16)}
	s.in, s.write = io.Pipe()
	s.read, s.out = io.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.serve()
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
	})
	return s
}

func (s *lineServer) Read(p []byte) (int, error)  { return s.read.Read(p) }
func (s *lineServer) Write(p []byte) (int, error) { return s.write.Write(p) }

func (s *lineServer) Close() error {
	_ = s.read.Close()
	return s.write.Close()
}

func (s *lineServer) serve() {
	_, _ = fmt.Fprintln(s.out, "a server that greets on its output")
	for lines := bufio.NewScanner(s.in); lines.Scan(); {
		var m rpc
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			return
		}
		switch m.Method {
		case "initialize":
			s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, mcpServer))
		case "tools/list":
			s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, mcpTools("t")))
		case "tools/call":
			s.calls <- m
		}
	}
}

func (s *lineServer) say(line string) { _, _ = io.WriteString(s.out, line+"\n") }

// runMCP runs a server as a device until the test ends.
func (g *gateway) runMCP(
	address string, server io.ReadWriteCloser, options ...client.Option,
) (c *client.Client, done <-chan error) {
	g.t.Helper()
	options = append([]client.Option{
		client.WithToken(testToken), client.WithBackoff(time.Millisecond, 10*time.Millisecond),
	}, options...)
	c, err := client.New(address+"/ws/mcp", options...)
	must(g.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	result, finished := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(finished)
		result <- c.RunMCP(ctx, server)
	}()
	g.t.Cleanup(func() {
		cancel()
		<-finished
	})
	return c, result
}

// A server behind the SDK outlives its connections: what it answers meanwhile counts.
func TestClientRunsMCPServers(t *testing.T) {
	g := newGateway(t)
	server, relay := newLineServer(t), newRelay(t, g)
	connecting := make(chan struct{}, 100)
	c, done := g.runMCP(relay.url(), server, client.WithDevice("d1", "Desk", "linux"),
		client.WithLabels(map[string]string{"room": "hall"}), client.WithName("desk"),
		client.WithState(func(s client.State) {
			if s.Phase == client.PhaseConnecting {
				connecting <- struct{}{}
			}
		}))
	receive(t, connecting)
	g.offersMCP("d1", "t")
	s := g.session("d1").Session()
	if s.DeviceID != "d1" || s.DeviceName != "Desk" || s.Platform != "linux" || s.Labels["room"] != "hall" ||
		s.Name != "desk" || !s.Can(registry.CapabilityResume) || c.SessionID() != "" {
		t.Errorf("the session: %+v", s)
	}
	outcome := g.call("d1", "t", "{\n\"a\":\r\n[1, 2]}")
	call := receive(t, server.calls)
	if !strings.Contains(string(call.Params), `"arguments":{"a":[1,2]}`) { // on one line
		t.Errorf("the call: %s", call.Params)
	}
	back := make(chan struct{})
	relay.hold(back)
	relay.disconnect()
	g.waitReleased()
	receive(t, connecting) // an answer that is sent as the connection breaks would be lost
	server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"late"}]}}`, call.ID))
	close(back)
	if o := await(t, outcome); o.err != nil || o.result.Output != "late" {
		t.Errorf("%+v", o)
	}
	must(t, server.out.Close()) // it ends
	if err := receive(t, done); err != client.ErrServer {
		t.Errorf("the server has ended: %v", err)
	}
	g.waitReleased()
}

// A server that does not speak MCP is given up, so that it can be started anew; what ends a session ends RunMCP.
func TestClientGivesMCPServersUp(t *testing.T) {
	g := newGateway(t)
	server := newLineServer(t)
	_, done := g.runMCP(g.http.URL, server)
	var id string
	eventually(t, "the tool is there", func() bool {
		for _, l := range g.pod.Hub.All() {
			id = l.Session().Key.Session
			return len(l.Tools()) == 1
		}
		return false
	})
	must(t, g.pod.Hub.Kick(t.Context(), g.session(id).Session()))
	if err := receive(t, done); err == nil || !strings.Contains(err.Error(), "session_ended") {
		t.Errorf("%v", err)
	}
	in, out := io.Pipe()
	read, say := io.Pipe()
	go func() { // it answers everything with an error
		for lines := bufio.NewScanner(in); lines.Scan(); {
			var m rpc
			_ = json.Unmarshal(lines.Bytes(), &m)
			_, _ = fmt.Fprintf(say, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
		}
	}()
	_, done = g.runMCP(g.http.URL, &struct {
		io.Reader
		io.WriteCloser
	}{read, closers{out, say}})
	if err := receive(t, done); err != client.ErrServer {
		t.Errorf("%v", err)
	}
}

// closers is a pipe whose end ends another one.
type closers struct {
	*io.PipeWriter
	other *io.PipeWriter
}

func (c closers) Close() error {
	_ = c.other.Close()
	return c.PipeWriter.Close()
}
