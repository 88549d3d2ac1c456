package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// restartable is a server at one address that stops and starts.
type restartable struct {
	t       *testing.T
	addr    string
	handler http.Handler
	server  *http.Server

	listener net.Listener
}

func newRestartable(t *testing.T, h http.Handler) *restartable {
	t.Helper()
	r := &restartable{t: t, addr: "127.0.0.1:0", handler: h}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *restartable) start() {
	r.t.Helper()
	listener, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr, r.listener = listener.Addr().String(), listener
	r.server = &http.Server{Handler: r.handler}
	r.server.SetKeepAlivesEnabled(false) // each request has a connection of its own, so none is lost with one
	go func(s *http.Server) { _ = s.Serve(listener) }(r.server)
}

// stop closes the listener and every connection.
func (r *restartable) stop() { _ = r.server.Close() }

func (r *restartable) url() string { return "http://" + r.addr }

// ended is the outcome of a call that runs beside the test.
type ended struct {
	res registry.Result
	err error
}

// begin calls a tool beside the test.
func begin(t *testing.T, tool agent.Tool, args string) <-chan ended {
	t.Helper()
	done := make(chan ended, 1)
	go func() {
		res, err := call(t, tool, args)
		done <- ended{res, err}
	}()
	return done
}

// A call whose connection the server refuses has not been dispatched, and the tools are not offered until the server
// is back. A call that comes meanwhile waits for it, within its own time.
func TestRefusedDialIsNotDispatched(t *testing.T) {
	server := newRestartable(t, evil{})
	servers := open(t, nil, upstream.Server{Name: "evil", URL: server.url()})
	tools := until(t, servers, has("evil__do"))
	server.stop()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := tools["evil__do"].Execute(ctx, []byte(`{}`))
		cancel()
		e := registry.AsError(err)
		if e.Code != registry.CodeNotConnected || !e.Retryable() || e.RetryAfter <= 0 {
			t.Errorf("%+v", e)
		}
		if why(tools["evil__do"]) == "" {
			t.Error("the tool is offered")
		}
	}
	waits := begin(t, tools["evil__do"], `{}`)
	server.start()
	if got := <-waits; got.err != nil || got.res.Output != "done" {
		t.Errorf("a call that waited: %+v", got)
	}
	n := servers.Status()[0].Calls
	if n.Answered != 1 || n.Rejected != 2 || n.Ended != 0 || n.Lost != 0 || n.Took <= 0 {
		t.Errorf("counted %+v", n)
	}
}

// A server that takes no new connections has the calls it began answered.
func TestCallInFlightOutlivesARefusedDial(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	handler := evil{call: func(w http.ResponseWriter, _ *http.Request, m message) {
		if calls.Add(1) == 1 {
			close(begun)
			<-finish
		}
		reply(w, m, `{"content":[{"type":"text","text":"done"}]}`)
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	servers := open(t, nil, upstream.Server{Name: "evil", URL: "http://" + listener.Addr().String()})
	tool := until(t, servers, has("evil__do"))["evil__do"]
	first := begin(t, tool, `{}`)
	<-begun
	listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for err == nil { // connections that were open already may serve some
		_, err = tool.Execute(ctx, []byte(`{}`))
		server.SetKeepAlivesEnabled(false)
	}
	if !errors.Is(err, registry.CodeNotConnected) {
		t.Errorf("a call after it: %v", err)
	}
	until(t, servers, func(tools map[string]agent.Tool) bool { return why(tools["evil__do"]) != "" })
	close(finish)
	if got := <-first; got.err != nil || got.res.Output != "done" {
		t.Errorf("the call in flight: %+v", got)
	}
}

// A call that the server has, and whose stream cannot be opened again, may have run: it is not made again, and nobody
// is told that it was not dispatched.
func TestCallWhoseStreamIsLost(t *testing.T) {
	var calls atomic.Int32
	var server *restartable
	server = newRestartable(t, evil{call: func(w http.ResponseWriter, _ *http.Request, m message) {
		if calls.Add(1) > 1 {
			reply(w, m, `{"content":[]}`)
			return
		}
		_ = server.listener.Close() // the stream cannot be opened again
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 1\nretry: 1\ndata: \n\n")
	}})
	servers := open(t, nil, upstream.Server{Name: "evil", URL: server.url()})
	tool := until(t, servers, has("evil__do"))["evil__do"]
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := tool.Execute(ctx, []byte(`{}`))
	if e := registry.AsError(err); e.Dispatched == registry.DispatchedNo || calls.Load() != 1 {
		t.Errorf("%v, dispatched %v, %d calls", err, e.Dispatched, calls.Load())
	}
}

// withSessions is a server whose sessions end when it restarts.
type withSessions struct {
	evil
	session atomic.Int32
	refuse  func(w http.ResponseWriter, m message) // what a request of another session gets
}

func (s *withSessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	m := parse(body)
	now := fmt.Sprint("s", s.session.Load())
	if m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", now)
	} else if got := r.Header.Get("Mcp-Session-Id"); got != "" && got != now {
		s.refuse(w, m)
		return
	}
	s.answer(w, r, m)
}

// The first call after a restart, which the server refuses because it does not know the session, is made again in a new
// session, and runs once.
func TestFirstCallAfterARestartOfSessions(t *testing.T) {
	rpc := func(status, code int) func(http.ResponseWriter, message) {
		return func(w http.ResponseWriter, m message) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"No valid session"}}`, code)
		}
	}
	for name, refuse := range map[string]func(http.ResponseWriter, message){
		"404":           func(w http.ResponseWriter, _ message) { http.Error(w, "no session", http.StatusNotFound) },
		"400":           func(w http.ResponseWriter, _ message) { http.Error(w, "no session", http.StatusBadRequest) },
		"404 of JSON":   rpc(http.StatusNotFound, -32001),
		"400 of JSON":   rpc(http.StatusBadRequest, -32000),
		"an odd answer": rpc(http.StatusBadRequest, -32600),
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			run := func(w http.ResponseWriter, _ *http.Request, m message) {
				reply(w, m, fmt.Sprintf(`{"content":[{"type":"text","text":"call %d"}]}`, calls.Add(1)))
			}
			s := &withSessions{refuse: refuse, evil: evil{call: run}}
			servers := open(t, nil, upstream.Server{Name: "evil", URL: serve(t, s)})
			tool := until(t, servers, has("evil__do"))["evil__do"]
			s.session.Add(1)
			if res, err := call(t, tool, `{}`); err != nil || !res.Success || res.Output != "call 1" {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// A call that a server refuses by itself does not cost the others their connection.
func TestRefusedCallKeepsTheConnection(t *testing.T) {
	var begun atomic.Int32
	s := &withSessions{evil: evil{call: func(w http.ResponseWriter, _ *http.Request, m message) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Not today"}}`, m.ID)
	}, ping: func(w http.ResponseWriter, _ *http.Request, m message) { reply(w, m, `{}`) },
		begin: func() { begun.Add(1) }}}
	servers := open(t, nil, upstream.Server{Name: "evil", URL: serve(t, s)})
	tool := until(t, servers, has("evil__do"))["evil__do"]
	before := begun.Load()
	for range 3 {
		if res, err := call(t, tool, `{}`); err != nil || res.Success || !strings.Contains(res.Error, "Not today") {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if n := begun.Load() - before; n != 0 {
		t.Errorf("connected again %d times", n)
	}
}

// What a server, or a proxy before it, answers to one call does not cost the others their connection: tenants share it.
func TestOddAnswerKeepsTheConnection(t *testing.T) {
	status := func(code int, kind, body string) func(http.ResponseWriter, message) {
		return func(w http.ResponseWriter, _ message) {
			w.Header().Set("Content-Type", kind)
			if code == 303 {
				w.Header().Set("Location", "https://login.example")
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tt := range map[string]struct {
		answer func(w http.ResponseWriter, m message)
		failed string // the text of a failed tool; empty: the outcome is not known
	}{
		"302":               {status(302, "text/html", "sign in"), "HTTP status 302"},
		"303 to elsewhere":  {status(303, "text/html", "sign in"), "HTTP status 303"},
		"400":               {status(400, "text/html", "bad"), "HTTP status 400"},
		"401":               {status(401, "text/html", "who"), "HTTP status 401"},
		"403 of a firewall": {status(403, "text/html", "<html>blocked</html>"), "HTTP status 403"},
		"404":               {status(404, "text/html", "none"), "HTTP status 404"},
		"413 of a proxy":    {status(413, "text/html", "too large"), "HTTP status 413"},
		"403 of JSON": {status(403, "application/json", `{"error":{"code":-1,"message":"Not today"}}`),
			"Not today"},
		"500":                {status(500, "text/plain", "oops"), ""},
		"501":                {status(501, "text/plain", "no"), ""},
		"524 of a proxy":     {status(524, "text/html", "a timeout occurred"), ""},
		"204":                {status(204, "text/html", ""), ""},
		"200 of a web page":  {status(200, "text/html", "<html>blocked</html>"), ""},
		"200 of no JSON":     {status(200, "application/json", "<html>"), ""},
		"200 of other JSON":  {status(200, "application/json", `{"error":"slow down"}`), ""},
		"another version":    {status(200, "application/json", `{"jsonrpc":"1.0","id":1,"result":{}}`), ""},
		"an event of others": {status(200, "text/event-stream", "data: {\"error\":\"slow down\"}\n\n"), ""},
		"a line of others":   {status(200, "text/event-stream", "<html>\n\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun, calls atomic.Int32
			running, finish := make(chan struct{}), make(chan struct{})
			servers := open(t, nil, upstream.Server{Name: "evil", URL: serve(t, evil{
				begin: func() { begun.Add(1) },
				call: func(w http.ResponseWriter, r *http.Request, m message) {
					if calls.Add(1) > 1 {
						tt.answer(w, m)
						return
					}
					close(running)
					select {
					case <-finish:
						reply(w, m, `{"content":[{"type":"text","text":"done"}]}`)
					case <-r.Context().Done():
					}
				},
			})})
			tool := until(t, servers, has("evil__do"))["evil__do"]
			before := begun.Load()
			first := begin(t, tool, `{}`)
			<-running
			res, err := call(t, tool, `{}`)
			if e := registry.AsError(err); tt.failed == "" && e.Code != registry.CodeLost ||
				tt.failed != "" && (err != nil || res.Success || !strings.Contains(res.Error, tt.failed)) {
				t.Errorf("%+v, %v", res, err)
			}
			close(finish)
			if got := <-first; got.err != nil || got.res.Output != "done" {
				t.Errorf("another call: %+v", got)
			}
			if n := begun.Load() - before; n != 0 || calls.Load() != 2 {
				t.Errorf("connected again %d times, %d calls", n, calls.Load())
			}
		})
	}
}

// A server, or a proxy before it, that refuses the cancellation of a call, or the answer to what it has asked for, does
// not cost the others their connection.
func TestRefusedNotificationKeepsTheConnection(t *testing.T) {
	for _, status := range []int{302, 303, 400, 403, 404, 413, 501, 524} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			where := "" // a redirect need not say where
			if status == 303 {
				where = "https://login.example"
			}
			t.Parallel()
			var begun, calls, refused atomic.Int32
			finish := make(chan struct{})
			e := evil{begin: func() { begun.Add(1) }, call: func(w http.ResponseWriter, r *http.Request, m message) {
				switch calls.Add(1) {
				case 1:
					send := events(w)
					_ = send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
					<-finish
					_ = send(fmt.Sprintf(fine, m.ID))
				default:
					hang(r)
				}
			}}
			servers := open(t, nil, upstream.Server{Name: "evil", URL: serve(t, http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
					m := parse(body)
					if r.Method == http.MethodPost && (m.Method == "" || m.Method == "notifications/cancelled") {
						refused.Add(1)
						w.Header().Set("Location", where)
						w.WriteHeader(status)
						return
					}
					r.Body = io.NopCloser(strings.NewReader(string(body)))
					e.ServeHTTP(w, r)
				}))})
			tool := until(t, servers, has("evil__do"))["evil__do"]
			before := begun.Load()
			first := begin(t, tool, `{}`)
			for refused.Load() < 1 {
				time.Sleep(time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := tool.Execute(ctx, []byte(`{}`)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the second call: %v", err)
			}
			for began := time.Now(); refused.Load() < 2 && time.Since(began) < 10*time.Second; {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(50 * time.Millisecond)
			close(finish)
			if got := <-first; got.err != nil || got.res.Output != "fine" {
				t.Errorf("another call: %+v", got)
			}
			if n := begun.Load() - before; n != 0 {
				t.Errorf("connected again %d times", n)
			}
		})
	}
}

// A server that takes no cancellations does not have other calls wait for a connection: cancellations in flight use few
// of the connections.
func TestCancellationsThatAreNotTaken(t *testing.T) {
	const connections = 2*8 + 8        // of a server, with the default of calls
	var calls, held, most atomic.Int32 // most: cancellations held at a time
	e := evil{call: func(w http.ResponseWriter, r *http.Request, m message) {
		if calls.Add(1) <= 60 {
			hang(r)
			return
		}
		reply(w, m, `{"content":[{"type":"text","text":"done"}]}`)
	}}
	servers := open(t, nil, upstream.Server{Name: "evil", URL: serve(t, http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
			if parse(body).Method == "notifications/cancelled" {
				n := held.Add(1)
				defer held.Add(-1)
				for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
				}
				hang(r)
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			e.ServeHTTP(w, r)
		}))})
	tool := until(t, servers, has("evil__do"))["evil__do"]
	for range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := tool.Execute(ctx, []byte(`{}`)); err == nil {
			t.Error("a call succeeded")
		}
		cancel()
	}
	calls.Store(60)
	testkit.Eventually(t, "a cancellation arrives", func() bool { return most.Load() > 0 })
	if res, err := call(t, tool, `{}`); err != nil || res.Output != "done" {
		t.Errorf("%+v, %v", res, err)
	}
	if n := most.Load(); n > connections/2 {
		t.Errorf("%d cancellations at a time, of %d connections", n, connections)
	}
}

// A tool that has its server ask for something at each call loses its own answers, not those of other calls.
func TestCallsThatAskAllTheTime(t *testing.T) {
	var begun, calls atomic.Int32
	finish := make(chan struct{})
	servers := open(t, nil, upstream.Server{Name: "evil", URL: serve(t, evil{
		begin: func() { begun.Add(1) },
		call: func(w http.ResponseWriter, r *http.Request, m message) {
			send := events(w)
			if calls.Add(1) == 1 {
				<-finish
			} else {
				_ = send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
			}
			_ = send(fmt.Sprintf(fine, m.ID))
		},
	})})
	tool := until(t, servers, has("evil__do"))["evil__do"]
	before, lost := begun.Load(), 0
	first := begin(t, tool, `{}`)
	for calls.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 80 {
		if _, err := call(t, tool, `{}`); errors.Is(err, registry.CodeLost) {
			lost++
		}
	}
	close(finish)
	if got := <-first; got.err != nil || got.res.Output != "fine" {
		t.Errorf("another call: %+v", got)
	}
	if n := begun.Load() - before; n != 0 || lost == 0 {
		t.Errorf("connected again %d times, %d calls were lost", n, lost)
	}
}

// A program that ended while nobody called it is started again for the next call.
func TestCallAfterAProgramEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	s := stdio(t, "good")
	s.Command = []string{"/bin/sh", "-c", `echo $$ > "$0"; exec "$1"`, file, s.Command[0]}
	servers := open(t, withHost(t), s)
	tools := until(t, servers, has("prog__echo"))
	var pid int
	text, _ := os.ReadFile(file)
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	before := servers.Live()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-before.Changed
	if res, err := call(t, tools["prog__echo"], `{"text":"again"}`); err != nil || res.Output != "again" {
		t.Errorf("%+v, %v", res, err)
	}
}

// A call of a tool that is not known yet waits for the first answer of its server; that of another name does not.
func TestAwaitFirstAnswer(t *testing.T) {
	answers := make(chan struct{})
	url := serve(t, evil{list: func(w http.ResponseWriter, r *http.Request, m message) {
		select {
		case <-answers:
		case <-r.Context().Done():
		}
		reply(w, m, `{"tools":[`+oneTool+`]}`)
	}})
	servers := open(t, nil, upstream.Server{Name: "evil", URL: url})
	later := time.Now().Add(20 * time.Second)
	for name, owned := range map[string]bool{
		"evil__do": true, "evil__": true, "evil": false, "other__do": false, "evil_do": false,
	} {
		if servers.Owns(name) != owned {
			t.Errorf("owns %q: %t", name, !owned)
		}
	}
	if err := servers.Await(t.Context(), "other__do", later); err != nil {
		t.Errorf("of no server: %v", err)
	}
	err := servers.Await(t.Context(), "evil__do", time.Now().Add(10*time.Millisecond))
	if e := registry.AsError(err); e.Code != registry.CodeNotConnected || !e.Retryable() || e.RetryAfter <= 0 {
		t.Errorf("without an answer: %v", err)
	}
	close(answers)
	if err := servers.Await(t.Context(), "evil__do", later); err != nil {
		t.Errorf("with one: %v", err)
	}
	if len(servers.Live().Tools) != 1 {
		t.Error("the tool is not there")
	}
}
