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

	"github.com/farhand/farhand/internal/testkit"
)

// storeAttackTime is how long an attack on the store goes on: the store grows all the time.
const storeAttackTime = 8 * time.Second

// attackSocket is a socket of an attacker.
type attackSocket struct {
	*websocket.Conn
	errors atomic.Int64 // error frames it was sent
}

// dialAttack opens a socket, or returns nil if the pod refuses it.
func dialAttack(ctx context.Context, url, session string) *attackSocket {
	conn, resp, err := websocket.DefaultDialer.DialContext(ctx,
		"ws"+strings.TrimPrefix(url, "http")+"/ws/chat?session_id="+session,
		http.Header{"Authorization": {"Bearer " + fleetToken}})
	if resp != nil {
		resp.Body.Close()
	}
	if err != nil {
		return nil
	}
	return &attackSocket{Conn: conn}
}

// serve registers one tool, work, and has answer deal with each call, in the goroutine that reads.
func (s *attackSocket) serve(answer func(id string)) {
	_ = s.WriteMessage(websocket.TextMessage,
		[]byte(`{"type":"register_tools","tools":[{"name":"work","description":"works"}]}`))
	for {
		var f struct{ Type, ID string }
		_, frame, err := s.ReadMessage()
		if err != nil {
			return
		}
		_ = json.Unmarshal(frame, &f) // of other frames nothing is needed
		switch f.Type {
		case "tool_call_request":
			answer(f.ID)
		case "error":
			s.errors.Add(1)
		}
	}
}

// postCall asks a session for a call and returns the status, 0 if there was no answer.
func postCall(ctx context.Context, url, session, body string) (status int, answer map[string]any) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/sessions/"+session+"/tools/work/call",
		strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	_ = json.NewDecoder(resp.Body).Decode(&answer) // nothing is in it then
	return resp.StatusCode, answer
}

// redisGrowth runs an attack on the store and checks that it grew by no more than that many bytes.
func (a *arena) redisGrowth(t *testing.T, limit int, length time.Duration, attack func(ctx context.Context)) {
	t.Helper()
	if grown := a.growth(t, length, attack); grown > limit {
		t.Errorf("Redis grew by %d bytes, want at most %d", grown, limit)
	}
}

// growth runs an attack on the store and returns the bytes that it grew by.
func (a *arena) growth(t *testing.T, length time.Duration, attack func(ctx context.Context)) (grown int) {
	t.Helper()
	before := a.redisBytes(t)
	a.under(t, length, func(ctx context.Context) {
		attack(ctx)
		waitFor(t.Context(), time.Second) // what the pod still holds is written
		grown = a.redisBytes(t) - before
	})
	t.Logf("Redis grew by %.1f MB", float64(grown)/1e6)
	return grown
}

// TestAttackProgressChunks: one call, whose device reports progress as fast as it can, with chunks as long as may be.
func TestAttackProgressChunks(t *testing.T) {
	for name, chunk := range map[string]string{"text": strings.Repeat("x", 60<<10),
		"escapes": strings.Repeat(`\u0001`, 10<<10)} {
		t.Run(name, func(t *testing.T) {
			a := startAttacked(t, 2)
			a.redisGrowth(t, 8_000_000, attackTime, func(ctx context.Context) {
				called := make(chan string, 1)
				device := dialAttack(ctx, a.pods[0].url, "attacker")
				if device == nil {
					t.Error("the attacker is not connected")
					return
				}
				var reader sync.WaitGroup
				reader.Go(func() { device.serve(func(id string) { called <- id }) })
				defer reader.Wait()
				defer device.Close()
				var callID string
				eventually(t, waitLimit, "the call", func() bool {
					status, answer := postCall(ctx, a.pods[1].url, "attacker", `{"mode":"async","timeout_ms":60000}`)
					callID, _ = answer["call_id"].(string)
					return status == http.StatusAccepted
				})
				id, chunks := <-called, 0
				frame := []byte(fmt.Sprintf(`{"type":"tool_progress","id":%q,"chunk":"%s"}`, id, chunk))
				for ctx.Err() == nil {
					_ = device.SetWriteDeadline(time.Now().Add(waitLimit))
					if device.WriteMessage(websocket.TextMessage, frame) != nil {
						break
					}
					chunks++
				}
				if n := device.errors.Load(); n != 1 {
					t.Errorf("the device was told %d times that its chunks are refused", n)
				}
				t.Logf("%d chunks", chunks)
				if log := eventsOfCall(t, a.pods[1].url, callID); strings.Count(log, `"type":"truncated"`) != 1 {
					t.Errorf("the log does not say once that it is not complete: …%.300s", log[max(0, len(log)-300):])
				}
			})
		})
	}
}

// eventsOfCall returns what the log of a call holds: all that comes until it says that it was cut, and a second more.
func eventsOfCall(t *testing.T, url, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/calls/"+id+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var log strings.Builder
	buf := make([]byte, 64<<10)
	for wasCut := false; ; {
		n, err := resp.Body.Read(buf)
		log.Write(buf[:n])
		if err != nil { // the call goes on, so the stream does, until the context ends
			return log.String()
		}
		if !wasCut && strings.Contains(log.String(), `"type":"truncated"`) {
			wasCut = true
			defer time.AfterFunc(time.Second, cancel).Stop()
		}
	}
}

// TestAttackOutputs: long outputs, each of a new asynchronous call; what the store keeps is bounded, and what it does
// not keep is refused before it runs, or says that it was cut.
func TestAttackOutputs(t *testing.T) {
	a := startAttacked(t, 2)
	output := strings.Repeat("x", 1_000_000)
	a.redisGrowth(t, 44_000_000, storeAttackTime, func(ctx context.Context) {
		var parties sync.WaitGroup
		defer parties.Wait()
		device := dialAttack(ctx, a.pods[0].url, "attacker")
		if device == nil {
			t.Error("the attacker is not connected")
			return
		}
		defer device.Close()
		parties.Go(func() {
			device.serve(func(id string) {
				_ = device.WriteMessage(websocket.TextMessage,
					[]byte(fmt.Sprintf(`{"type":"tool_result","id":%q,"success":true,"output":"%s"}`, id, output)))
			})
		})
		var accepted, refused atomic.Int64
		var callers sync.WaitGroup
		for n := range 4 {
			callers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					status, answer := postCall(ctx, a.pods[n%2].url, "attacker",
						fmt.Sprintf(`{"mode":"async","idempotency_key":"k%d-%d"}`, n, i))
					switch {
					case status == http.StatusAccepted:
						accepted.Add(1)
					case status == http.StatusTooManyRequests && answer["dispatched"] == "no":
						refused.Add(1)
					}
				}
			})
		}
		callers.Wait()
		t.Logf("%d calls accepted, %d refused", accepted.Load(), refused.Load())
	})
}

// TestAttackDefinitions: other definitions with every connection, of sessions that never come back.
func TestAttackDefinitions(t *testing.T) {
	a := startAttacked(t, 2)
	padding := strings.Repeat("d", 1000)
	a.redisGrowth(t, 64_000_000, storeAttackTime, func(ctx context.Context) {
		var attackers sync.WaitGroup
		var connections atomic.Int64
		for n := range 4 {
			attackers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					device := dialAttack(ctx, a.pods[n%2].url, fmt.Sprintf("attacker-%d-%d", n, i))
					if device == nil {
						waitFor(ctx, 10*time.Millisecond)
						continue
					}
					connections.Add(1)
					var tools []string
					for j := range 120 {
						var enum []string
						for k := range 6 {
							enum = append(enum, fmt.Sprintf(`"%d-%d-%d-%d %s"`, n, i, j, k, padding))
						}
						tools = append(tools,
							fmt.Sprintf(`{"name":"t%d","description":"x","parameters":{"type":"object",`+
								`"properties":{"p":{"enum":[%s]}}}}`,
								j, strings.Join(enum, ",")))
					}
					_ = device.WriteMessage(websocket.TextMessage,
						[]byte(`{"type":"register_tools","tools":[`+strings.Join(tools, ",")+`]}`))
					for ctx.Err() == nil {
						_ = device.SetReadDeadline(time.Now().Add(waitLimit))
						_, frame, err := device.ReadMessage()
						if err != nil || strings.Contains(string(frame), "tools_registered") {
							break
						}
					}
					device.Close()
				}
			})
		}
		attackers.Wait()
		t.Logf("%d connections", connections.Load())
	})
}

// TestAttackShortTimeouts: calls that are over before their device can answer leave a record each, as its answer may
// still come.
func TestAttackShortTimeouts(t *testing.T) {
	a := startAttacked(t, 2)
	var calls atomic.Int64
	grown := a.growth(t, storeAttackTime, func(ctx context.Context) {
		device := dialAttack(ctx, a.pods[0].url, "attacker")
		if device == nil {
			t.Error("the attacker is not connected")
			return
		}
		var reader, callers sync.WaitGroup
		reader.Go(func() { device.serve(func(string) {}) })
		defer reader.Wait()
		defer device.Close()
		for n := range 32 {
			callers.Go(func() {
				for ctx.Err() == nil {
					postCall(ctx, a.pods[n%2].url, "attacker", `{"timeout_ms":1}`)
					calls.Add(1)
				}
			})
		}
		callers.Wait()
	})
	// Judged by calls, because a fast machine makes more of them.
	t.Logf("%d calls", calls.Load())
	if limit := 8_000_000 + 6_000*int(calls.Load()); grown > limit {
		t.Errorf("Redis grew by %d bytes with %d calls, want at most %d", grown, calls.Load(), limit)
	}
}
