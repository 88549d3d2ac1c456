package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/ws/client"
)

// intruder is a socket with a valid token.
type intruder struct {
	conn  *websocket.Conn
	calls chan string   // ids of the calls it was asked for
	ended chan struct{} // closed when the gateway has closed it
}

// intrude opens a socket for a session, says of itself what connect holds, if anything, and offers the tools of the
// victim.
func intrude(t *testing.T, url, session, connect string) *intruder {
	t.Helper()
	header := http.Header{"Authorization": {"Bearer " + fleetToken}}
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/ws/chat?session_id="+session,
		header)
	if err != nil {
		t.Errorf("dial: %v", err)
		return nil
	}
	i := &intruder{conn: conn, calls: make(chan string, 1024), ended: make(chan struct{})}
	go func() {
		defer close(i.ended)
		for {
			var f struct{ Type, ID string }
			if err := conn.ReadJSON(&f); err != nil {
				return
			}
			if f.Type == "tool_call_request" {
				select {
				case i.calls <- f.ID:
				default: // one too many is as bad as many
				}
				_ = conn.WriteJSON(map[string]any{"type": "tool_result", "id": f.ID, "output": "forged"})
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-i.ended })
	if connect != "" {
		_ = conn.WriteMessage(websocket.TextMessage, []byte(connect))
		_ = conn.WriteMessage(websocket.TextMessage,
			[]byte(`{"type":"register_tools","tools":[{"name":"echo"},{"name":"slow"}]}`))
	}
	return i
}

// answer sends an answer to a call as its device would.
func (i *intruder) answer(id string) {
	_ = i.conn.WriteJSON(map[string]any{"type": "tool_result", "id": id, "output": "forged"})
}

// slowTool tells the id of each call and answers when it is released.
func slowTool() (tool client.Option, asked chan string, release chan struct{}) {
	asked, release = make(chan string, 16), make(chan struct{})
	return client.WithTool(client.Tool{Name: "slow", Description: "takes its time"},
		func(ctx context.Context, c client.Call) (any, error) {
			asked <- c.ID
			select {
			case <-release:
				return "true", nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}), asked, release
}

// TestAttackTakeover: an attacker with the ids of a session, its device and its call in flight gets none of
// them, from either pod, with any name, and neither does the record of the call.
func TestAttackTakeover(t *testing.T) {
	a := startAttacked(t, 2)
	tool, asked, release := slowTool()
	connectDevice(t, a.pods[0].url, "victim", client.WithDevice("phone-1", "phone", "android"), echoTool(), tool)
	forged := make(chan string, 16)
	a.under(t, time.Minute, func(ctx context.Context) {
		var started answer
		status, body := request(t, http.MethodPost, a.pods[1].url+"/api/sessions/victim/tools/slow/call",
			`{"mode":"async","args":{}}`)
		if status != http.StatusAccepted || json.Unmarshal(body, &started) != nil {
			t.Fatalf("%d %s", status, body)
		}
		id := <-asked
		var all sync.WaitGroup
		for _, connect := range []string{
			"", `{"type":"connect"}`, `{"type":"connect","device_id":"evil","capabilities":["resume","resume_token"]}`,
			`{"type":"connect","device_id":"phone-1","capabilities":["resume","resume_token"]}`,
			`{"type":"connect","device_id":"phone-1","capabilities":["resume"],` +
				`"resume_token":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`,
		} {
			for _, p := range a.pods {
				all.Go(func() {
					for range 3 {
						if i := intrude(t, p.url, "victim", connect); i != nil {
							i.answer(id)
							select {
							case <-i.ended:
							case <-time.After(waitLimit):
								t.Errorf("the intruder with %q was not sent away", connect)
							}
							if len(i.calls) > 0 {
								forged <- connect
							}
						}
					}
				})
			}
		}
		stop := make(chan struct{})
		var caller sync.WaitGroup
		caller.Go(func() { // the victim is served all the time, by itself
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				args := fmt.Sprintf(`{"n":%d}`, n)
				if got := callTool(t, a.pods[n%2].url, "/api/sessions/victim/tools/echo/call",
					`{"args":`+args+`}`); got.Output != args {
					t.Errorf("call %d of the victim: %+v", n, got)
				}
				waitFor(ctx, honestPause)
			}
		})
		all.Wait()
		close(stop)
		caller.Wait()
		close(release)
		eventually(t, waitLimit, "the call in flight has the victim's answer", func() bool {
			_, body := request(t, http.MethodGet, a.pods[1].url+"/api/calls/"+id, "")
			if strings.Contains(string(body), "forged") {
				t.Fatalf("forged: %s", body)
			}
			return strings.Contains(string(body), `"output":"true"`)
		})
	})
	close(forged)
	for connect := range forged {
		t.Errorf("an intruder with %q was given calls", connect)
	}
}

// TestAttackMassKick: one upgrade for each listed session, silent or with a name of its own, sends no device home.
// Devices of the command line are real processes.
func TestAttackMassKick(t *testing.T) {
	a := startAttacked(t, 2)
	const inProcess, processes = 60, 2
	var sessions []string
	var commands []*process
	for i := range inProcess {
		session := fmt.Sprintf("kicked-%d", i)
		connectDevice(t, a.pods[i%2].url, session, echoTool())
		sessions = append(sessions, session)
	}
	for i := range processes {
		session := fmt.Sprintf("command-%d", i)
		commands = append(commands, start(t, []string{"FARHAND_TOKEN=" + fleetToken}, farhandBinary,
			"device", "--server", a.pods[i].url, "--session", session, "--tools", "echo"))
		sessions = append(sessions, session)
	}
	// and the honest one
	eventually(t, waitLimit, "all devices are listed",
		func() bool { return len(toolsOf(t, a.pods[0].url)) == len(sessions)+1 })
	served := func(session string) bool {
		for _, p := range a.pods {
			if got := callTool(t, p.url, "/api/sessions/"+session+"/tools/echo/call",
				`{"args":{"text":"here"}}`); got.status != http.StatusOK ||
				!strings.Contains(got.Output, "here") {
				return false
			}
		}
		return true
	}
	a.under(t, 2*time.Minute, func(context.Context) {
		var all sync.WaitGroup
		gates := make(chan struct{}, 16)
		for i, session := range sessions {
			for _, connect := range []string{"",
				fmt.Sprintf(`{"type":"connect","device_id":"evil-%d","capabilities":["resume_token"]}`, i)} {
				all.Go(func() {
					gates <- struct{}{}
					intrude(t, a.pods[(i+1)%2].url, session, connect)
					<-gates
				})
			}
		}
		all.Wait()
		for _, session := range sessions {
			eventually(t, waitLimit, session+" is served", func() bool { return served(session) })
		}
	})
	for i, c := range commands {
		select {
		case <-c.done:
			t.Errorf("the process of command-%d has ended: %v", i, c.err)
		default:
		}
	}
}

// TestAttackAskingForTheHolder: claims by the thousand do not have a device pinged more than it has to answer, nor take
// its session by their number.
func TestAttackAskingForTheHolder(t *testing.T) {
	a := startAttacked(t, 2)
	header := http.Header{"Authorization": {"Bearer " + fleetToken}}
	dial := func(url string) (*websocket.Conn, error) {
		conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/ws/chat?session_id=asked",
			header)
		return conn, err
	}
	holder, err := dial(a.pods[0].url)
	if err != nil {
		t.Fatal(err)
	}
	var pings, claims atomic.Int64
	pong := holder.PingHandler()
	holder.SetPingHandler(func(data string) error { pings.Add(1); return pong(data) })
	registered, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			var f struct{ Type string }
			if err := holder.ReadJSON(&f); err != nil {
				ended <- err
				return
			}
			if f.Type == "tools_registered" {
				close(registered)
			}
		}
	}()
	_ = holder.WriteMessage(websocket.TextMessage,
		[]byte(`{"type":"connect","device_id":"d","capabilities":["resume"]}`))
	_ = holder.WriteMessage(websocket.TextMessage, []byte(`{"type":"register_tools","tools":[{"name":"x"}]}`))
	<-registered
	const length = 5 * time.Second
	a.under(t, time.Minute, func(context.Context) {
		var all sync.WaitGroup
		end := time.Now().Add(length)
		for w := range 12 {
			all.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					if conn, err := dial(a.pods[(w+i)%2].url); err == nil { // refused when there are too many
						claims.Add(1)
						_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"connect","device_id":"evil"}`))
						_, _, _ = conn.ReadMessage()
						_ = conn.Close()
					}
				}
			})
		}
		all.Wait()
	})
	select {
	case err := <-ended:
		t.Errorf("the holder has lost its session: %v", err)
	default:
		_ = holder.Close()
		<-ended
	}
	t.Logf("%d claims, %d pings", claims.Load(), pings.Load())
	if most := int64(10 * length / time.Second); claims.Load() > 10*most && pings.Load() > most {
		t.Errorf("%d pings because of %d claims, want at most %d", pings.Load(), claims.Load(), most)
	}
	a.peakBelow(t, 200)
}
