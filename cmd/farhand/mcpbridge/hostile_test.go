package mcpbridge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/cmd/farhand/mcpbridge"
	"github.com/farhand/farhand/internal/testkit"
)

// Whatever a gateway answers to a request, the client gets one answer with its own id.
func TestEveryRequestIsAnswered(t *testing.T) {
	t.Parallel()
	const events = "text/event-stream"
	for name, tc := range map[string]struct {
		kind, body, want string
		status           int
	}{
		"another id":            {"", `{"jsonrpc":"2.0","id":2,"result":{}}`, "does not answer", 200},
		"no id":                 {"", `{"jsonrpc":"2.0","result":{}}`, "does not answer", 200},
		"a notification":        {"", `{"jsonrpc":"2.0","method":"x"}`, "does not answer", 200},
		"a request":             {"", `{"jsonrpc":"2.0","id":1,"method":"x"}`, "does not answer", 200},
		"an array":              {"", `[{"jsonrpc":"2.0","id":1,"result":{}}]`, "does not answer", 200},
		"nothing":               {"", "", "does not answer", 200},
		"nothing, taken":        {"", "", "does not answer", 202},
		"text":                  {"", "hello", "is not a Farhand gateway", 200},
		"JSON of another kind":  {"", `{"ok":true}`, "is not a Farhand gateway", 200},
		"an error without id":   {"", `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"odd"}}`, "odd", 400},
		"the id in another way": {"", `{"jsonrpc":"2.0","id":1.0,"result":{"fine":1}}`, "fine", 200},
		"no events":             {events, "", "ended before", 200},
		"events of others": {events, "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n",
			"ended before", 200},
		"an event that is no JSON": {events, "data: {\n\n", "does not answer", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if tc.kind != "" {
					w.Header().Set("Content-Type", tc.kind)
				}
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			}))
			for _, method := range []string{"tools/call", "initialize", "subscriptions/listen"} {
				if method == "subscriptions/listen" && tc.kind == events {
					continue // a stream that breaks is asked for again
				}
				p := bridge(t, mcpbridge.Config{URL: url})
				p.say(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{}}`, method)
				got := p.hear()
				for !strings.Contains(got, `"id":1`) { // what is no answer is passed on before
					got = p.hear()
				}
				if !strings.Contains(got, tc.want) {
					t.Errorf("%s: %s", method, got)
				}
				if rest := p.end(); len(rest) > 0 {
					t.Errorf("%s: answered again: %q", method, rest)
				}
			}
		})
	}
}

// logText is a log that a bridge writes.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// What a gateway says does nothing to the terminal that shows it.
func TestLogIsClean(t *testing.T) {
	t.Parallel()
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"code":"forbidden","detail":"a\u001b]0;owned\u0007\u001b[2Jb\nc\u202ed"}`)
	}))
	var log logText
	p := bridge(t, mcpbridge.Config{URL: url, Log: &log})
	p.say(`{"jsonrpc":"2.0","method":"notifications/x\u001b[31m"}`)
	p.end()
	if got := log.String(); got != "farhand mcp: notifications/x: ab cd\n" {
		t.Errorf("logged %q", got)
	}
}

// endless answers every request with a stream that keeps the connection open and says nothing.
func endless(t *testing.T) (url string, begun <-chan struct{}) {
	started := make(chan struct{}, 1)
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		started <- struct{}{}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := io.WriteString(w, ": there\n\n"); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})), started
}

// A bridge does not outlive a client that has said its last word, whatever the gateway does.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	url, begun := endless(t)
	p := bridge(t, mcpbridge.Config{URL: url, Linger: 50 * time.Millisecond})
	p.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
	<-begun
	if rest := p.end(); len(rest) != 1 || !strings.Contains(rest[0], `"id":1`) {
		t.Errorf("at the end %q", rest)
	}
}

// A bridge ends when its output has no reader, even while its input is open.
func TestClientIsGone(t *testing.T) {
	t.Parallel()
	url, begun := endless(t)
	in, say := io.Pipe()
	read, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	client := &http.Client{Transport: &http.Transport{}}
	ended := make(chan error, 1)
	go func() {
		ended <- mcpbridge.Run(t.Context(), mcpbridge.Config{URL: url, Client: client}, in, out)
		client.CloseIdleConnections()
	}()
	defer say.Close() // the read of in is left behind until then
	fmt.Fprintln(say, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
	<-begun
	read.Close()
	select {
	case <-ended:
	case <-time.After(testkit.Limit):
		t.Fatal("the bridge outlives its client")
	}
}

// traced tells of every connection that waits for its next request.
type traced struct {
	http.RoundTripper
	idle chan error
}

func (r traced) RoundTrip(req *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{PutIdleConn: func(err error) { r.idle <- err }}
	return r.RoundTripper.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
}

// The connection of an answer in a stream is used again once the gateway has ended the stream. It is not waited for if
// the gateway does not.
func TestConnectionsOfStreamsAreUsedAgain(t *testing.T) {
	t.Parallel()
	heard := make(chan struct{})
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-heard:
		case <-r.Context().Done():
		}
	}))
	inner := &http.Transport{}
	t.Cleanup(inner.CloseIdleConnections)
	connections := traced{inner, make(chan error, 8)}
	p := bridge(t, mcpbridge.Config{URL: url, Client: &http.Client{Transport: connections}})
	p.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
	p.hear() // before the stream has ended
	heard <- struct{}{}
	select {
	case err := <-connections.idle:
		if err != nil {
			t.Errorf("the connection is not kept: %v", err)
		}
	case <-time.After(testkit.Limit):
		t.Fatal("the connection was closed")
	}
	p.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
	p.hear()
	if rest := p.end(); len(rest) > 0 { // although this stream does not end
		t.Errorf("%q", rest)
	}
}

// A bridge ends with its context although its client reads nothing: what it writes is left behind.
func TestAClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	flows := make(chan struct{}, 1)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		flows <- struct{}{}
		<-r.Context().Done()
	}))
	in, say := io.Pipe()
	read, out := io.Pipe()
	client := &http.Client{Transport: &http.Transport{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- mcpbridge.Run(ctx, mcpbridge.Config{URL: url, Client: client}, in, out)
		client.CloseIdleConnections()
	}()
	defer read.Close() // the write is left behind until then
	defer say.Close()
	fmt.Fprintln(say, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
	testkit.Receive(t, "a message", flows)
	cancel()
	testkit.Receive(t, "the end", ended)
}
