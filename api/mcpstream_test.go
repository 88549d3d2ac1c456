package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// reports answers after three reports of progress, of which the last says nothing new.
func (f *fleet) reports(d **device) func(routing.DeviceCall) (registry.Result, bool) {
	return func(c routing.DeviceCall) (registry.Result, bool) {
		total := 100.0
		for i, p := range []float64{0, 50, 50} {
			f.must((*d).local.Progress(c.ID, &p, &total, fmt.Sprint("step ", i), "part"))
		}
		return registry.NewResult(true, registry.MustJSON(`"done"`), ""), true
	}
}

// What a device reports reaches the client before the result, all of it and in order, however quick the call is.
func TestMCPProgress(t *testing.T) {
	onEachStore(t, setup{}, func(f *fleet) {
		var d *device
		d = f.connect(0, session("s1"), f.reports(&d), tools("t")...)
		for _, token := range []string{`"word"`, `17`} {
			r := f.send(request{
				method: http.MethodPost, path: "/mcp", pod: 1,
				header: http.Header{"Accept": {"application/json, text/event-stream"}},
				body: `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"t",` +
					`"_meta":{"progressToken":` + token + `}}}`,
			})
			if r.header.Get("Content-Type") != "text/event-stream" || r.header.Get("X-Farhand-Call-Id") == "" {
				f.Fatalf("%d %v %s", r.status, r.header, r.body)
			}
			events, last := parseEvents(f.T, bytes.NewReader(r.body)), -1.0
			for i, e := range events[:len(events)-1] {
				var n struct {
					Method string
					Params struct {
						ProgressToken   json.RawMessage
						Progress, Total float64
						Message         string
					}
				}
				f.must(json.Unmarshal(e.data, &n))
				if n.Method != "notifications/progress" || string(n.Params.ProgressToken) != token ||
					n.Params.Progress <= last || n.Params.Total != 100 ||
					n.Params.Message != fmt.Sprintf("step %d\npart", i) {
					f.Errorf("%s after %v", e.data, last)
				}
				last = n.Params.Progress
			}
			if len(events) != 4 || !strings.Contains(string(events[3].data), `"done"`) {
				f.Errorf("%s", r.body)
			}
		}
	})
}

// What a device spreads over lines is one event all the same.
func TestMCPEventsAreOnOneLine(t *testing.T) {
	f := newFleet(t, setup{})
	var d *device
	d = f.connect(0, session("s1"), func(c routing.DeviceCall) (registry.Result, bool) {
		f.must(d.local.Progress(c.ID, nil, nil, "step", ""))
		return registry.NewResult(true, registry.MustJSON("{\r\n \"a\":\n1}"), ""), true
	}, tools("t")...)
	r := f.send(request{
		method: http.MethodPost, path: "/mcp", header: http.Header{"Accept": {"text/event-stream, application/json"}},
		body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}}`,
	})
	events := parseEvents(t, bytes.NewReader(r.body))
	var got struct {
		Result struct {
			StructuredContent struct{ A int }
		}
	}
	f.must(json.Unmarshal(events[len(events)-1].data, &got))
	if got.Result.StructuredContent.A != 1 {
		t.Errorf("%s", r.body)
	}
}

// listening is an open stream of subscriptions/listen.
type listening struct {
	*testing.T
	messages chan string // closed at the end of the stream
	leave    context.CancelFunc
}

// listen opens a stream of somebody, and reads the acknowledgement.
func (f *fleet) listen(pod int, who, path, wanted string) *listening {
	f.Helper()
	l, resp := f.tryListen(pod, who, path, wanted)
	if resp.StatusCode != http.StatusOK {
		f.Fatalf("%s: %d", path, resp.StatusCode)
	}
	if ack := l.next(); !strings.Contains(ack, "notifications/subscriptions/acknowledged") ||
		!strings.Contains(ack, `"io.modelcontextprotocol/subscriptionId":"l1"`) ||
		!strings.Contains(ack, `"notifications":{`+wanted+`}`) {
		f.Fatalf("%s: %s", path, ack)
	}
	return l
}

func (f *fleet) tryListen(pod int, who, path, wanted string) (*listening, *http.Response) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.pods[pod].server.URL+path, strings.NewReader(
		`{"jsonrpc":"2.0","id":"l1","method":"subscriptions/listen","params":{"notifications":{`+wanted+`},`+
			mcpMeta+`}}`))
	f.must(err)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + who, "Content-Type": "application/json",
		"Accept":               "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
	} {
		req.Header.Set(name, value)
	}
	resp, err := f.pods[pod].server.Client().Do(req)
	f.must(err)
	l := &listening{T: f.T, messages: make(chan string, 64), leave: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(l.messages)
		defer resp.Body.Close()
		if resp.Header.Get("Content-Type") != "text/event-stream" {
			return
		}
		in := bufio.NewReader(resp.Body)
		for e, ok := readEvent(f.T, in); ok; e, ok = readEvent(f.T, in) {
			l.messages <- string(e.data)
		}
	}()
	f.Cleanup(func() { cancel(); <-done })
	return l, resp
}

// next returns the next message, empty at the end of the stream.
func (l *listening) next() string {
	l.Helper()
	return await(l.T, "a message", l.messages)
}

const (
	wantTools    = `"toolsListChanged":true`
	toolsChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{` +
		`"io.modelcontextprotocol/subscriptionId":"l1"}}}`
	wantResources = `"resourcesListChanged":true`
)

// Devices that come, change and go on one pod are heard of on another, and only by those who may see them.
func TestMCPListChanges(t *testing.T) {
	onEachStore(t, setup{change: withDeciders}, func(f *fleet) {
		here := f.connect(0, ofAnn("phone"), echo, tools("t")...)
		anne, bob := f.listen(1, "agent", "/mcp", wantTools), f.listen(1, "ben", "/mcp", wantTools)
		own := f.listen(1, "agent", "/mcp/sessions/phone", wantTools)
		other := f.listen(1, token, "/mcp/users/zed", wantTools)

		f.must(here.local.PutTools(f.Context(), tools("t", "u"), nil))
		for _, l := range []*listening{anne, own} {
			if got := l.next(); got != toolsChanged {
				f.Errorf("%s", got)
			}
		}
		f.connect(0, ofAnn("tablet"), echo, tools("t")...)
		if got := anne.next(); got != toolsChanged {
			f.Errorf("%s", got)
		}
		here.gone()
		if got := own.next(); got != toolsChanged { // not told of the tablet: this is the next thing it hears
			f.Errorf("%s", got)
		}
		for _, l := range []*listening{bob, other} { // what they could have heard has been heard by others
			select {
			case got := <-l.messages:
				f.Errorf("told of what is not theirs: %s", got)
			default:
			}
		}
	})
}

// A client hears of what it asked for, and of nothing when there is nothing.
func TestMCPListensToWhatItAskedFor(t *testing.T) {
	f := newFleet(t, setup{})
	none := f.listen(0, token, "/mcp", "")
	if got := none.next(); !strings.Contains(got, `"resultType":"complete"`) || none.next() != "" {
		t.Errorf("%s", got)
	}
	l := f.listen(0, token, "/mcp", wantResources)
	f.connect(0, session("s1"), echo, tools("t")...)
	if got := l.next(); !strings.Contains(got, "notifications/resources/list_changed") {
		t.Errorf("%s", got)
	}
	for path, want := range map[string]int{"/mcp/sessions/ghost": 404, "/mcp/sessions/s1": 200} {
		if l, resp := f.tryListen(0, token, path, wantTools); resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		} else {
			l.leave()
		}
	}
}

// A pod that stops ends its streams with the answer to the request, so that clients ask another.
func TestMCPListenEndsWithThePod(t *testing.T) {
	ctx, drain := context.WithCancel(t.Context())
	f := newFleet(t, setup{change: func(c *api.Config) { c.Draining = ctx }})
	l := f.listen(0, token, "/mcp", wantTools)
	drain()
	if got := l.next(); !strings.Contains(got, `"id":"l1","result":{"resultType":"complete"`) || l.next() != "" {
		t.Errorf("%s", got)
	}
}

// ending is an auth.Live whose identities end when the test says so.
type ending struct{ over chan struct{} }

func (e ending) Bind(ctx context.Context, _ *auth.Identity) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-e.over:
			cancel(registry.Errorf(registry.CodeUnauthenticated, "The key was revoked."))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

func (ending) Verify(context.Context, *auth.Identity) error { return nil }

// mayEnd authenticates everybody as somebody whose identity can end.
type mayEnd struct{}

func (mayEnd) Authenticate(context.Context, *http.Request, string) (auth.Identity, error) {
	return auth.Identity{
		Tenant: registry.DefaultTenant, Admin: true, Credential: "key:k", Expires: time.Now().Add(time.Hour),
	}, nil
}

// An identity that ends is told nothing more, and its calls end, also those that outlive their stream.
func TestMCPEndsWithItsIdentity(t *testing.T) {
	over := make(chan struct{})
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.Live = mayEnd{}, ending{over} }})
	d := f.connect(0, session("s1"), silent, tools("t")...)
	l := f.listen(0, token, "/mcp", wantTools)
	called := make(chan rpc, 1)
	go func() { called <- f.legacy(0, "/mcp", "tools/call", `"name":"t"`) }()
	id := d.delivered().ID
	close(over)
	if got := l.next(); got != "" {
		t.Errorf("told after the end: %s", got)
	}
	if got := d.cancelled(); got != id {
		t.Errorf("cancelled %s, want %s", got, id)
	}
	if got := await(t, "the answer", called); got.Error == nil || got.Error.Data.Dispatched != registry.DispatchedYes {
		t.Errorf("%+v", got)
	}
}

// The streams of one identity are as many as those of its feed.
func TestMCPStreamsAreBounded(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.MaxCallerStreams = 3 }})
	for range 3 {
		f.listen(0, token, "/mcp", wantTools)
	}
	if _, resp := f.tryListen(0, token, "/mcp", wantTools); resp.Header.Get("Content-Type") == "text/event-stream" {
		t.Error("a fourth stream")
	}
}

// A client of the newest revision cancels by leaving.
func TestMCPCancelByLeaving(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	d := f.connect(0, session("s1"), silent, tools("t")...)
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s := f.sdkSession(client, "/mcp", "")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "t"})
		ended <- err
	}()
	id := d.delivered().ID
	cancel()
	if got := d.cancelled(); got != id {
		t.Errorf("cancelled %s, want %s", got, id)
	}
	if err := await(t, "the end of the call", ended); err == nil {
		t.Error("a cancelled call has a result")
	}
}

// A call with a long body ends when its client hangs up, in every revision: what is reserved for its body is not kept
// for a caller that is gone.
func TestMCPLongCallEndsWithItsConnection(t *testing.T) {
	for _, revision := range []string{"2024-11-05", "2025-06-18", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			f := newFleet(t, setup{change: func(c *api.Config) { c.MaxRequestBytes = 1 << 20 }})
			d := f.connect(0, session("s1"), silent, tools("t")...)
			call := func(ctx context.Context, n int) error {
				_, err := f.try(request{
					method: http.MethodPost, path: "/mcp", ctx: ctx,
					header: http.Header{"Mcp-Protocol-Version": {revision}, "Mcp-Session-Id": {"a"}},
					body: fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t",`+
						`"arguments":{"a":%q}}}`, n, strings.Repeat("a", 800_000)),
				})
				return err
			}
			for n := range 3 {
				ctx, leave := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- call(ctx, n) }()
				id := d.delivered().ID // so there was room for it
				leave()
				if err := await(t, "the client to leave", ended); err == nil {
					t.Error("answered")
				}
				if got := d.cancelled(); got != id {
					t.Errorf("cancelled %s, not %s", got, id)
				}
			}
		})
	}
}

// A client of an earlier revision cancels with a message, which reaches the call whatever pod it comes to. Nobody else
// can cancel it, and that its stream breaks cancels nothing.
func TestMCPCancelByMessage(t *testing.T) {
	onEachStore(t, setup{change: withDeciders}, func(f *fleet) {
		d := f.connect(0, ofAnn("phone"), silent, tools("t")...)
		head := func(who, session string) http.Header {
			return http.Header{"Authorization": {"Bearer " + who}, "Mcp-Session-Id": {session}}
		}
		ctx, leave := context.WithCancel(f.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := f.try(request{
				method: http.MethodPost, path: "/mcp", pod: 0, header: head("agent", "a"), ctx: ctx,
				body: `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}`,
			})
			ended <- err
		}()
		id := d.delivered().ID
		leave()
		if err := await(f.T, "the client to leave", ended); err == nil {
			f.Error("answered")
		}
		cancel := func(who, session, id string) {
			f.send(request{
				method: http.MethodPost, path: "/mcp", pod: 1, header: head(who, session),
				body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`,
			}).want(http.StatusAccepted)
		}
		again := f.rpc(request{
			method: http.MethodPost, path: "/mcp", pod: 0, header: head("agent", "a"),
			body: `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}`,
		})
		if again.Error == nil || again.Error.Code != -32600 {
			f.Errorf("an id that is in use: %+v", again)
		}
		cancel("ben", "a", "3")
		cancel("agent", "b", "3")
		cancel("agent", "a", `"3"`)
		cancel("agent", "a", "{}")
		select {
		case got := <-d.cancels:
			f.Errorf("somebody else cancelled %s", got)
		default:
		}
		cancel("agent", "a", "3")
		if got := d.cancelled(); got != id {
			f.Errorf("cancelled %s, want %s", got, id)
		}
	})
}

// A request that its client has cancelled with a message is not answered, also if its answer has begun as a stream:
// SDKs report an answer that nobody waits for as a fault.
func TestMCPCancelledRequestIsNotAnswered(t *testing.T) {
	f := newFleet(t, setup{pods: 2, change: withDeciders})
	d := f.connect(0, ofAnn("phone"), silent, tools("t")...)
	for name, accept := range map[string]string{
		"plain": "application/json", "a stream": "application/json, text/event-stream",
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.pods[0].server.URL+"/mcp",
				strings.NewReader(`{"jsonrpc":"2.0","id":3,"method":"tools/call",`+
					`"params":{"name":"t","_meta":{"progressToken":1}}}`))
			f.must(err)
			header := http.Header{"Authorization": {"Bearer agent"}, "Mcp-Session-Id": {"a"}, "Accept": {accept}}
			req.Header = header.Clone()
			req.Header.Set("Content-Type", "application/json")
			begun, rest, status := make(chan string, 1), make(chan string, 1), 0
			go func() {
				defer close(rest)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					rest <- err.Error()
					return
				}
				defer resp.Body.Close()
				body := bufio.NewReader(resp.Body)
				for line := ""; resp.StatusCode == 200 && err == nil && !strings.HasPrefix(line, "data:"); {
					line, err = body.ReadString('\n')
				}
				begun <- ""
				text, _ := io.ReadAll(body)
				status = resp.StatusCode
				rest <- string(text)
			}()
			c, streams := d.delivered(), strings.Contains(accept, "stream")
			if streams {
				done := 0.5
				f.must(d.local.Progress(c.ID, &done, nil, "half", ""))
				await(t, "the stream to begin", begun)
			}
			f.send(request{
				method: http.MethodPost, path: "/mcp", pod: 1, header: header,
				body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`,
			}).want(http.StatusAccepted)
			text := await(t, "the end of the request", rest)
			if streams && status != 200 || !streams && status != 202 || strings.Contains(text, "{") {
				t.Errorf("%d %s", status, text)
			}
			d.cancelled()
		})
	}
}

// balanced sends each request of a client to another pod.
type balanced struct {
	f *fleet
	n chan int // the next pod
}

func (b balanced) RoundTrip(r *http.Request) (*http.Response, error) {
	n := <-b.n
	b.n <- n + 1
	r = r.Clone(r.Context())
	r.URL.Host = strings.TrimPrefix(b.f.pods[n%len(b.f.pods)].server.URL, "http://")
	r.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultTransport.RoundTrip(r)
}

// sdkSession connects a client of the Go SDK, whose requests are spread over all pods.
func (f *fleet) sdkSession(client *sdk.Client, path, revision string) *sdk.ClientSession {
	f.Helper()
	b := balanced{f: f, n: make(chan int, 1)}
	b.n <- 0
	s, err := client.Connect(f.Context(), &sdk.StreamableClientTransport{
		Endpoint: "http://fleet" + path, HTTPClient: &http.Client{Transport: b},
	}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	f.must(err)
	f.Cleanup(func() {
		_ = s.Close() // its streams may have ended before
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return s
}

// The Go SDK's client works with any pod, in both kinds of revisions.
func TestMCPWithTheSDK(t *testing.T) {
	for _, revision := range []string{"", "2025-11-25"} {
		t.Run("revision "+revision, func(t *testing.T) {
			f := newFleet(t, setup{pods: 3})
			var d *device
			d = f.connect(0, session("s1"), f.reports(&d), tools("t", "u")...)
			changed, told := make(chan struct{}, 8), make(chan string, 8)
			client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
				ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} },
				ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
					told <- r.Params.Message
				},
			})
			s := f.sdkSession(client, "/mcp", revision)
			list, err := s.ListTools(t.Context(), nil)
			f.must(err)
			if len(list.Tools) != 2 || list.Tools[0].Name != "t" {
				t.Errorf("%+v", list.Tools)
			}
			params := &sdk.CallToolParams{Name: "t"}
			params.SetProgressToken("p")
			res, err := s.CallTool(t.Context(), params)
			f.must(err)
			if text, ok := res.Content[0].(*sdk.TextContent); !ok || text.Text != "done" {
				t.Errorf("%+v", res.Content[0])
			}
			for i := range 3 {
				if got := await(t, "progress", told); got != fmt.Sprintf("step %d\npart", i) {
					t.Errorf("%q", got)
				}
			}
			read, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "farhand://sessions/s1"})
			f.must(err)
			if !strings.Contains(read.Contents[0].Text, `"s1"`) {
				t.Errorf("%s", read.Contents[0].Text)
			}
			if revision == "" {
				f.connect(1, session("s2"), echo, tools("v")...)
				await(t, "a change", changed)
			}
		})
	}
}
