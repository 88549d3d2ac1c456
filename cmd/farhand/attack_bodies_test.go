package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// statuses counts the answers an attacker got.
type statuses struct {
	mu sync.Mutex
	by map[int]int
}

func (s *statuses) add(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = make(map[int]int)
	}
	s.by[status]++
}

// attackPost sends a body and returns the status of its answer, zero without one.
func attackPost(ctx context.Context, url, body string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// shapes are texts of about 1 MB that are expensive to read.
func shapes() map[string]string {
	return map[string]string{
		"objects": `[` + repeated(130_000, constantly(`{"":1}`)) + `]`,
		"numbers": `[` + repeated(490_000, constantly(`1`)) + `]`,
		"keys":    `{` + repeated(90_000, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }) + `}`,
		"escapes": `"` + strings.Repeat(`\u0061`, 160_000) + `"`,
	}
}

// Very many bodies of the largest size at once, on every route that takes one.
func TestAttackLargeBodies(t *testing.T) {
	const callers = 45
	a := startAttacked(t, 1)
	url := a.pods[0].url
	tools := []definition{{"plain", json.RawMessage(`{}`)},
		{"checked", json.RawMessage(
			`{"properties":{"a":{"type":["array","object","string"],"items":{"not":{"const":2}}}}}`)}}
	call := func(tool string) func(string) (string, string) {
		return func(value string) (string, string) {
			return "/api/sessions/attacker/tools/" + tool + "/call", `{"timeout_ms":3000,"args":{"a":` + value + `}}`
		}
	}
	for name, route := range map[string]func(value string) (path, body string){
		"no_schema": call("plain"),
		"schema":    call("checked"),
		"unknown":   call("nothing"),
		"no_call": func(value string) (string, string) {
			return "/api/tools/plain/call", `{"nothing":` + value + `}`
		},
		"message": func(value string) (string, string) {
			return "/api/sessions/attacker/messages", `{"content":"x","nothing":` + value + `}`
		},
		"completion": func(value string) (string, string) {
			return "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"metadata":` + value + `}`
		},
	} {
		t.Run(name, func(t *testing.T) {
			var paths, bodies []string
			for _, value := range shapes() {
				path, body := route(value)
				paths, bodies = append(paths, path), append(bodies, body)
			}
			var answers statuses
			// One of its own for each attack, because a device that is too slow for the calls is disconnected.
			conn := dialRaw(t, url, "attacker")
			if rejected := registerRaw(t, conn, tools); len(rejected) > 0 {
				t.Fatalf("rejected: %q", rejected)
			}
			go answerAll(conn)
			a.under(t, attackTime, func(ctx context.Context) {
				var attackers sync.WaitGroup
				for i := range callers {
					attackers.Go(func() {
						for n := i; ctx.Err() == nil; n++ {
							answers.add(attackPost(ctx, url+paths[n%len(paths)], bodies[n%len(bodies)]))
						}
					})
				}
				attackers.Wait()
			})
			t.Logf("the attacker's answers: %v", answers.by)
			a.peakBelow(t, 400)
			a.calmWithin(t, time.Second)
		})
	}
}

// answerAll answers every call to a device with success.
func answerAll(conn *websocket.Conn) {
	_ = conn.SetReadDeadline(time.Time{})
	for {
		var f struct{ Type, ID string }
		if conn.ReadJSON(&f) != nil {
			return
		}
		if f.Type == "tool_call_request" {
			_ = conn.WriteJSON(map[string]any{"type": "tool_result", "id": f.ID, "output": "ok", "success": true})
		}
	}
}

// Very many bodies that are announced, begun, and never come to their end.
func TestAttackUnsentBodies(t *testing.T) {
	a := startAttacked(t, 1)
	const length = 1 << 20
	for name, tt := range map[string]struct{ connections, announced, sent int }{
		"nearly_whole": {1000, length, length - 1000},
		"announced":    {6000, 64 << 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Repeat(" ", tt.sent)
			a.under(t, attackTime, func(ctx context.Context) {
				var attackers sync.WaitGroup
				for range tt.connections {
					attackers.Go(func() {
						conn, err := (&net.Dialer{}).DialContext(ctx, "tcp",
							strings.TrimPrefix(a.pods[0].url, "http://"))
						if err != nil {
							return
						}
						defer conn.Close()
						deadline, _ := ctx.Deadline()
						_ = conn.SetDeadline(deadline)
						_, err = fmt.Fprintf(conn, "POST /api/sessions/honest/tools/echo/call HTTP/1.1\r\n"+
							"Host: pod\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
							"Content-Length: %d\r\n\r\n%s", fleetToken, tt.announced, body)
						if err == nil {
							_, _ = io.Copy(io.Discard, conn)
						}
						<-ctx.Done()
					})
				}
				attackers.Wait()
			})
			a.peakBelow(t, 400)
			a.calmWithin(t, time.Second)
		})
	}
}

// Calls with large arguments to devices that never answer are held as long as they may take.
func TestAttackHeldArguments(t *testing.T) {
	const devices, calls = 24, 64
	a := startAttacked(t, 1)
	url := a.pods[0].url
	for i := range devices {
		conn := dialRaw(t, url, fmt.Sprint("mute-", i))
		registerRaw(t, conn, []definition{{"work", json.RawMessage(`{}`)}})
		go func() {
			_ = conn.SetReadDeadline(time.Time{})
			for {
				if _, _, err := conn.ReadMessage(); err != nil {
					return
				}
			}
		}()
	}
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			body := `{"timeout_ms":9000,"mode":"` + mode + `","args":{"a":"` + strings.Repeat("a", 1_000_000) + `"}}`
			var answers statuses
			a.under(t, 10*time.Second, func(ctx context.Context) {
				var attackers sync.WaitGroup
				for i := range devices * calls {
					attackers.Go(func() {
						answers.add(attackPost(ctx,
							fmt.Sprintf("%s/api/sessions/mute-%d/tools/work/call", url, i%devices), body))
					})
				}
				attackers.Wait()
				<-ctx.Done()
			})
			t.Logf("the attacker's answers: %v", answers.by)
			a.peakBelow(t, 400)
			a.calmWithin(t, 2*time.Second)
		})
	}
}
