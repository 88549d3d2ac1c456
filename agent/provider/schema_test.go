package provider_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

// Devices write schemas as they like; for one the vendors do not take they would refuse all of a conversation.
func TestSchemasAreMadeAcceptable(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"b":{"anyOf":[{}]},"a":{}}}`: `{"type":"object",` +
			`"properties":{"b":{"anyOf":[{}]},"a":{}}}`,
		`{"properties":{"b":{},"a":{}}}`:         `{"type":"object","properties":{"b":{},"a":{}}}`,
		`{}`:                                     `{"type":"object"}`,
		`true`:                                   `{"type":"object","properties":{}}`,
		`{"title":"x","type":["object","null"]}`: `{"type":"object","title":"x"}`,
		`{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}],"properties":{"b":{},"a":{}},"not":{}}`: `{` +
			`"type":"object","properties":{"b":{},"a":{}},` +
			`"description":"The arguments must also satisfy this JSON Schema: ` +
			`{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"not\":{}}"}`,
		`{"enum":[{"a":1}],"description":"One.","oneOf":[],"allOf":[]}`: `{"type":"object",` +
			`"description":"One. The arguments must also ` +
			`satisfy this JSON Schema: {\"enum\":[{\"a\":1}],\"oneOf\":[],\"allOf\":[]}"}`,
	} {
		onBoth(t, func(t *testing.T, b backend) {
			s := b.server(t, scripted.Reply(scripted.Text("ok")))
			r := ask("hi")
			r.Tools = []provider.Tool{{Name: "t", Parameters: json.RawMessage(schema)}}
			generate(t, b.model(s, options{}), r)
			if got := string(s.Requests()[0].Tools[0].Parameters); got != want {
				t.Errorf("%s became\n%s, want\n%s", schema, got, want)
			}
		})
	}
}

// A conversation its caller keeps may begin with the assistant, or with nobody.
func TestConversationsNeedNoUser(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.server(t, scripted.Reply(scripted.Text("one")), scripted.Reply(scripted.Text("two")))
		m := b.model(s, options{})
		generate(t, m, provider.Request{Messages: []provider.Message{{Role: provider.RoleAssistant,
			Content: "Welcome!"}, user("hi")}})
		generate(t, m, provider.Request{System: "Write a poem."})
		for i, want := range []int{2, 0} {
			got := s.Requests()[i].Messages
			if b.name == "anthropic" {
				if len(got) == 0 || got[0].Role != provider.RoleUser {
					t.Fatalf("request %d begins with %+v", i, got)
				}
				got = got[1:]
			}
			if len(got) != want {
				t.Errorf("request %d: %+v", i, got)
			}
		}
	})
}

// Turns side by side leave their connections to the next ones.
func TestConnectionsAreKept(t *testing.T) {
	const turns = 20
	var opened atomic.Int64
	var wave atomic.Pointer[sync.WaitGroup]
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all := wave.Load()
		all.Done()
		all.Wait() // so that as many connections are needed as there are turns
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(`data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}` +
			"\n\ndata: [DONE]\n\n"))
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	m := provider.NewOpenAI(provider.Config{Name: "m", BaseURL: server.URL})
	for range 3 {
		all := new(sync.WaitGroup)
		all.Add(turns)
		wave.Store(all)
		var running sync.WaitGroup
		for range turns {
			running.Go(func() {
				if _, err := m.Generate(deadline(t), ask("hi"), func(provider.Delta) {}); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
	}
	if n := opened.Load(); n > turns {
		t.Errorf("%d connections for %d turns at a time", n, turns)
	}
}
