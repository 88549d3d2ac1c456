package upstream_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/internal/secret"
	"github.com/farhand/farhand/registry"
)

// Whatever a server answers to one call, other calls on its connection go on, and the connection stays.
func TestOddAnswersEndTheirOwnCall(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, m message, n int32){
		"303 same host page": func(w http.ResponseWriter, m message, _ int32) {
			w.Header().Set("Location", "/login")
			w.WriteHeader(303)
		},
		"302 same host 404": func(w http.ResponseWriter, m message, _ int32) {
			w.Header().Set("Location", "/none")
			w.WriteHeader(302)
		},
		"session id changes": func(w http.ResponseWriter, m message, n int32) {
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", n))
			reply(w, m, `{"content":[]}`)
		},
		"stream not resumable": func(w http.ResponseWriter, m message, _ int32) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: 1\nretry: 1\ndata: \n\n")
		},
		"retry loop": func(w http.ResponseWriter, m message, _ int32) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: 7\nretry: 1\ndata: \n\n")
		},
		"reopening is cut off": func(w http.ResponseWriter, m message, _ int32) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: 8\nretry: 1\ndata: \n\n")
		},
		"404 as a stream": func(w http.ResponseWriter, m message, _ int32) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusNotFound)
		},
		"403 as a stream": func(w http.ResponseWriter, m message, _ int32) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusForbidden)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun, calls atomic.Int32
			running, finish := make(chan struct{}), make(chan struct{})
			e := evil{
				begin: func() { begun.Add(1) },
				call: func(w http.ResponseWriter, r *http.Request, m message) {
					if n := calls.Add(1); n > 1 {
						answer(w, m, n)
						return
					}
					close(running)
					select {
					case <-finish:
						reply(w, m, `{"content":[{"type":"text","text":"done"}]}`)
					case <-r.Context().Done():
					}
				},
			}
			servers := open(t, nil, upstream.Server{Name: "evil", URL: serve(t, http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.URL.Path == "/login":
						w.Header().Set("Content-Type", "text/html")
						_, _ = io.WriteString(w, "<html>")
					case r.URL.Path == "/none":
						http.NotFound(w, r)
					case r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == "8":
						panic(http.ErrAbortHandler)
					case r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == "7":
						w.Header().Set("Content-Type", "text/event-stream")
						fmt.Fprint(w, "id: 7\nretry: 1\ndata: \n\n")
					default:
						e.ServeHTTP(w, r)
					}
				}))})
			tool := until(t, servers, has("evil__do"))["evil__do"]
			before := begun.Load()
			first := begin(t, tool, `{}`)
			<-running
			odd := 4
			if name == "reopening is cut off" {
				odd = 1 // the SDK tries again for many seconds: a server may restart
			}
			for range odd {
				if res, err := call(t, tool, `{}`); err == nil && res.Success && name != "session id changes" {
					t.Errorf("%+v", res)
				}
			}
			close(finish)
			got := <-first
			if got.err != nil || got.res.Output != "done" {
				t.Errorf("another call: %+v", got)
			}
			if n := begun.Load() - before; n != 0 {
				t.Errorf("connected again %d times", n)
			}
		})
	}
}

// Errors of a server do not repeat the headers that it was given, however it writes them.
func TestErrorsRepeatNoSecret(t *testing.T) {
	const token = "abc/def+ghi/jkl12345"
	for name, answer := range map[string]func(w http.ResponseWriter, m message){
		"isError result": func(w http.ResponseWriter, m message) {
			reply(w, m, `{"isError":true,"content":[{"type":"text","text":"401 for Bearer `+token+`"}]}`)
		},
		"escaped refusal": func(w http.ResponseWriter, m message) {
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error":{"code":-1,"message":"bad token `+strings.ReplaceAll(token, "/", `\/`)+`"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			servers := open(t, nil, upstream.Server{
				Name: "evil", Headers: map[string]secret.Text{"Authorization": "Bearer " + token},
				URL: serve(t, evil{call: func(w http.ResponseWriter, r *http.Request, m message) { answer(w, m) }}),
			})
			res, err := call(t, until(t, servers, has("evil__do"))["evil__do"], `{}`)
			if err != nil || res.Success || strings.Contains(res.Error+res.Output, token) {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// A server may end each stream and be polled. Calls of one tenant that share its pace wait for each other.
func TestServersMayBePolled(t *testing.T) {
	t.Parallel()
	var begun, gets atomic.Int32
	start := time.Now()
	e := evil{begin: func() { begun.Add(1) }, call: func(w http.ResponseWriter, r *http.Request, m message) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "id: %s-0\nretry: 10\ndata: \n\n", m.ID)
	}}
	servers := open(t, nil, upstream.Server{Name: "evil", MaxCalls: 12, URL: serve(t, http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if last := r.Header.Get("Last-Event-ID"); r.Method == http.MethodGet && last != "" {
				n := gets.Add(1)
				w.Header().Set("Content-Type", "text/event-stream")
				id, _, _ := strings.Cut(last, "-")
				if time.Since(start) > 5*time.Second {
					fmt.Fprintf(w, "data: "+fine+"\n\n", id)
					return
				}
				fmt.Fprintf(w, "id: %s-%d\nretry: 10\ndata: \n\n", id, n)
				return
			}
			e.ServeHTTP(w, r)
		}))})
	tool := until(t, servers, has("evil__do"))["evil__do"]
	before := begun.Load()
	start = time.Now()
	var all []<-chan ended
	for range 6 {
		all = append(all, begin(t, tool, `{}`))
	}
	for _, c := range all {
		got := <-c
		if got.err != nil || !got.res.Success {
			t.Errorf("%+v", got)
		}
	}
	if n := begun.Load() - before; n != 0 {
		t.Errorf("connected again %d times", n)
	}
}

// The MCP library panics about some messages, and serves requests that the gateway offers nothing for. Neither ends the
// pod, another call or the connection, and no request of the server becomes one of the gateway.
func TestMessagesThatTheLibraryDoesNotBear(t *testing.T) {
	for name, said := range map[string]string{
		"elicitation": `{"jsonrpc":"2.0","method":"notifications/elicitation/complete"}`,
		"null":        `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":null}`,
		"completion": `{"jsonrpc":"2.0","id":"q","method":"completion/complete","params":{"argument":{"name":"a",` +
			`"value":"b"},"ref":{"type":"ref/prompt","name":"x"}}}`,
		"result": `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"inputRequests":{"a":null}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun, asked atomic.Int32
			taken := make(chan string, 2)
			servers := open(t, nil, upstream.Server{Name: "evil", URL: serve(t, http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
					m := parse(body)
					if len(body) == 0 { // it opens or ends a stream
						w.WriteHeader(http.StatusMethodNotAllowed)
						return
					}
					if m.Method == "completion/complete" {
						asked.Add(1)
					}
					evil{
						begin: func() { begun.Add(1) },
						take:  func(*http.Request) { taken <- string(body) },
						call: func(w http.ResponseWriter, r *http.Request, m message) {
							send := events(w)
							if name == "result" {
								_ = send(fmt.Sprintf(said, m.ID))
								return
							}
							if _ = send(said); name == "completion" {
								select {
								case answer := <-taken:
									if !strings.Contains(answer, "-32601") {
										t.Errorf("the gateway answered %s", answer)
									}
								case <-r.Context().Done():
								}
							}
							_ = send(fmt.Sprintf(fine, m.ID))
						},
					}.answer(w, r, m)
				}))})
			tool := until(t, servers, has("evil__do"))["evil__do"]
			before := begun.Load()
			for range 2 {
				res, err := call(t, tool, `{}`)
				if name == "result" && !errors.Is(err, registry.CodeLost) || name != "result" && res.Output != "fine" {
					t.Errorf("%+v, %v", res, err)
				}
			}
			if n := begun.Load() - before; n != 0 || asked.Load() != 0 {
				t.Errorf("connected again %d times, asked the server %d times", n, asked.Load())
			}
		})
	}
}
