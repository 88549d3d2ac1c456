package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// openEvents opens an event stream on a socket of its own and counts what comes. It returns the status, 0 for none.
func openEvents(
	ctx context.Context, url, path, token string, source net.IP, seen *atomic.Int64, done *sync.WaitGroup,
) int {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: source}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return 0
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: pod\r\nAuthorization: Bearer %s\r\n\r\n", path, token)
	lines := bufio.NewScanner(conn)
	_ = conn.SetReadDeadline(time.Now().Add(waitLimit))
	if !lines.Scan() {
		conn.Close()
		return 0
	}
	_, status, _ := strings.Cut(lines.Text(), " ")
	n, _ := strconv.Atoi(strings.Fields(status)[0])
	if n != http.StatusOK {
		conn.Close()
		return n
	}
	_ = conn.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	done.Go(func() {
		defer stop()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				seen.Add(1)
			}
		}
	})
	return n
}

// redisCommands returns how many commands Redis has run.
func (a *arena) redisCommands(t *testing.T) int {
	t.Helper()
	info, err := a.redis.Command("INFO", "stats")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "total_commands_processed:")
	n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\r", 2)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAttackStreams: one identity opens as many event streams as it can, from many addresses. Others still get theirs,
// the feed is read once for all of them, and every event reaches each.
func TestAttackStreams(t *testing.T) {
	a := startAttacked(t, 1)
	url := a.pods[0].url
	key := keyFor(t, url, `{"roles":["caller"],"user_id":"anna"}`)
	a.under(t, 32*time.Second, func(ctx context.Context) {
		ctx, stop := context.WithCancel(ctx)
		var done sync.WaitGroup
		defer done.Wait()
		defer stop()
		var seen atomic.Int64
		open, refused := 0, 0
		for i := range 1100 {
			source := net.IPv4(127, 0, 0, byte(1+i%100))
			if openEvents(ctx, url, "/api/events?type=session.connected", fleetToken, source, &seen,
				&done) == http.StatusOK {
				open++
			} else {
				refused++
			}
		}
		t.Logf("%d streams are open, %d were refused", open, refused)
		if open != 250 { // FARHAND_MAX_STREAMS_PER_CALLER
			t.Errorf("one identity has %d streams", open)
		}
		var others atomic.Int64
		for i := range 10 {
			if status := openEvents(ctx, url, "/api/events", key, net.IPv4(127, 0, 0, byte(2+i)), &others,
				&done); status != http.StatusOK {
				t.Errorf("a stream of somebody else: status %d", status)
			}
		}
		before, cpu, began := a.redisCommands(t), cpuTime(t, a.pods[0]), time.Now()
		waitFor(ctx, 5*time.Second)
		took := time.Since(began)
		commands, used := a.redisCommands(t)-before, cpuTime(t, a.pods[0])-cpu
		t.Logf("%d streams: %.0f commands/s, %.2f cores", open, float64(commands)/took.Seconds(),
			used.Seconds()/took.Seconds())
		if commands > 1000*int(took.Seconds()+1) { // what the honest calls and the pod's upkeep need is among them
			t.Errorf("%d commands in %v: the streams read the feed each for itself", commands, took)
		}
		device := dialAttack(ctx, url, "seen-by-all")
		if device == nil {
			t.Error("no device connects")
			return
		}
		defer device.Close()
		eventually(t, 2*waitLimit, "every stream has heard of the device",
			func() bool { return seen.Load() == int64(open) })
	})
	a.peakBelow(t, 200)
}

// keyFor makes an API key, and returns its secret.
func keyFor(t *testing.T, url, body string) string {
	t.Helper()
	status, text := request(t, http.MethodPost, url+"/api/keys", body)
	var made struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated {
		t.Fatalf("make a key: %d %s", status, text)
	}
	return made.Key
}
