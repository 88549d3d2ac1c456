package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// unread sends requests over a connection that takes in next to nothing, and does not read.
func unread(ctx context.Context, url, path string, requests int) (net.Conn, error) {
	return unreadRequest(ctx, url, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: pod\r\nAuthorization: Bearer %s\r\n\r\n", path,
		fleetToken), requests)
}

func unreadRequest(ctx context.Context, url, text string, requests int) (net.Conn, error) {
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) // a larger one would do
		})
	}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, err
	}
	for range requests {
		if _, err := conn.Write([]byte(text)); err != nil {
			return conn, err
		}
	}
	return conn, nil
}

// servedEnough reports whether who reads was served often enough while others do not read, however long that took.
func servedEnough(served, refused int) bool { return served >= 3 && refused <= max(2, served/4) }

// TestAttackUnreadLists: many ask for the longest pages and read none of them. A client that reads is served
// meanwhile: the attack goes on until it was, at least for attackTime.
func TestAttackUnreadLists(t *testing.T) {
	a := startAttacked(t, 1)
	url := a.pods[0].url
	description := strings.Repeat("d", 900)
	var readers sync.WaitGroup
	defer readers.Wait()
	for n := range 24 {
		device := dialAttack(t.Context(), url, fmt.Sprint("wide-", n))
		if device == nil {
			t.Fatal("not connected")
		}
		defer device.Close()
		var tools []string
		for j := range 120 { // 1 MB of them together, the same for all
			tools = append(tools,
				fmt.Sprintf(`{"name":"t%d","description":"%s","parameters":{"type":"object","description":"%s"}}`,
					j, description, strings.Repeat(description, 8)))
		}
		if err := device.WriteMessage(1, []byte(`{"type":"register_tools","tools":[`+strings.Join(tools,
			",")+`]}`)); err != nil {
			t.Fatal(err)
		}
		for {
			_ = device.SetReadDeadline(time.Now().Add(waitLimit))
			_, frame, err := device.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(frame), "tools_registered") {
				break
			}
		}
		readers.Go(func() { // a device that answers no ping is dropped, and its tools with it
			_ = device.SetReadDeadline(time.Time{})
			for {
				if _, _, err := device.ReadMessage(); err != nil {
					return
				}
			}
		})
	}
	for _, path := range []string{"/api/tools?limit=1000", "/api/sessions?limit=1000",
		"/api/tools?limit=1000&view=grouped&q=t", "/api/sessions/wide-0"} {
		t.Run(path, func(t *testing.T) {
			a.under(t, 3*waitLimit, func(ctx context.Context) {
				enough := time.Now().Add(attackTime)
				for range 150 {
					conn, err := unread(ctx, url, path, 3)
					if err != nil {
						t.Errorf("the attacker: %v", err)
						continue
					}
					defer conn.Close()
				}
				served, refused := 0, 0
				for ctx.Err() == nil && (!servedEnough(served, refused) || time.Now().Before(enough)) {
					if read(ctx, url+path) == http.StatusOK {
						served++
					} else {
						refused++
					}
					waitFor(ctx, 50*time.Millisecond)
				}
				t.Logf("who reads was served %d times, refused %d times", served, refused)
				if !servedEnough(served, refused) {
					t.Errorf("who reads is not served: %d times served, %d times refused", served, refused)
				}
			})
			a.peakBelow(t, 200)
		})
	}
}

// TestAttackUnreadAnswers: many ask for one call that has a long output and a long log, in every way there is, and read
// nothing.
func TestAttackUnreadAnswers(t *testing.T) {
	a := startAttacked(t, 1)
	url := a.pods[0].url
	device := dialAttack(t.Context(), url, "attacker")
	if device == nil {
		t.Fatal("not connected")
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		chunk, output := strings.Repeat("c", 60_000), strings.Repeat("o", 1_000_000)
		device.serve(func(id string) {
			for range 16 {
				_ = device.WriteMessage(1, []byte(fmt.Sprintf(`{"type":"tool_progress","id":%q,"chunk":"%s"}`, id,
					chunk)))
			}
			_ = device.WriteMessage(1, []byte(fmt.Sprintf(`{"type":"tool_result","id":%q,"success":true,"output":"%s"}`,
				id, output)))
		})
	})
	defer reader.Wait()
	defer device.Close()
	const body = `{"idempotency_key":"attack","timeout_ms":20000}`
	var callID string
	eventually(t, waitLimit, "the call", func() bool {
		status, answer := postCall(t.Context(), url, "attacker", body)
		callID, _ = answer["call_id"].(string)
		return status == http.StatusOK
	})
	get := func(path string) string {
		return fmt.Sprintf("GET /api/calls/%s%s HTTP/1.1\r\nHost: pod\r\nAuthorization: Bearer %s\r\n\r\n", callID,
			path, fleetToken)
	}
	for name, text := range map[string]string{
		"record": get(""), "record waited for": get("?wait_ms=5000"), "log": get("/events"),
		"replayed answer": fmt.Sprintf(
			"POST /api/sessions/attacker/tools/work/call HTTP/1.1\r\nHost: pod\r\nAuthorization: Bearer %s\r\n"+
				"Content-Length: %d\r\n\r\n%s", fleetToken, len(body), body),
	} {
		t.Run(name, func(t *testing.T) {
			a.under(t, attackTime, func(ctx context.Context) {
				for range 150 {
					conn, err := unreadRequest(ctx, url, text, 3)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
				}
				<-ctx.Done()
			})
			a.peakBelow(t, 250)
			if status := read(t.Context(), url+"/api/calls/"+callID); status != http.StatusOK {
				t.Errorf("who reads is answered with status %d", status)
			}
		})
	}
}

// read asks for something, reads it to its end, and returns the status, 0 if it did not come whole.
func read(ctx context.Context, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	buf := make([]byte, 64<<10)
	for {
		if _, err := resp.Body.Read(buf); err != nil {
			if err.Error() == "EOF" {
				return resp.StatusCode
			}
			return 0
		}
	}
}
