package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bareSocket connects a bare WebSocket, and returns the status of the refusal if there is no error and no connection.
func bareSocket(ctx context.Context, url, query, token string) (net.Conn, *bufio.Reader, int, error) {
	addr := strings.TrimPrefix(url, "http://")
	conn, err := (&net.Dialer{Timeout: waitLimit}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, 0, err
	}
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	_, err = fmt.Fprintf(conn, "GET /ws/chat?%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %s\r\n\r\n",
		query, addr, token)
	if err != nil {
		conn.Close()
		return nil, nil, 0, err
	}
	r := bufio.NewReaderSize(conn, 1024)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		conn.Close()
		return nil, nil, 0, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body.Close()
		conn.Close()
		return nil, nil, resp.StatusCode, nil
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, r, resp.StatusCode, nil
}

// closeCode reads until the connection ends and returns the code of its close frame, zero if there was none.
func closeCode(conn net.Conn, r *bufio.Reader) int {
	_ = conn.SetReadDeadline(time.Now().Add(2 * waitLimit))
	for {
		opcode, payload, err := readFrame(r)
		if err != nil {
			return 0
		}
		if opcode == 8 && len(payload) >= 2 {
			return int(binary.BigEndian.Uint16(payload))
		}
	}
}

// A message in very many empty pieces costs its sender the connection, also when it comes back all the time.
func TestAttackEmptyContinuations(t *testing.T) {
	a := startAttacked(t, 1)
	empty := bytes.Repeat([]byte{0x00, 0x80, 0, 0, 0, 0}, 10_000)
	var closed, others, pieces atomic.Int64
	before := cpuTime(t, a.pods[0])
	const length = 5 * time.Second
	a.under(t, length, func(ctx context.Context) {
		var attackers sync.WaitGroup
		for i := range 4 {
			attackers.Go(func() {
				for ctx.Err() == nil {
					conn, r, _, err := bareSocket(ctx, a.pods[0].url, fmt.Sprintf("session_id=pieces-%d", i),
						fleetToken)
					if err != nil || conn == nil {
						waitFor(ctx, 10*time.Millisecond)
						continue
					}
					flood := time.AfterFunc(0, func() {
						_, err := conn.Write([]byte{0x01, 0x80, 0, 0, 0, 0})
						for err == nil && ctx.Err() == nil {
							var n int
							n, err = conn.Write(empty)
							pieces.Add(int64(n / 6))
						}
					})
					if closeCode(conn, r) == 1008 {
						closed.Add(1)
					} else {
						others.Add(1)
					}
					flood.Stop()
					conn.Close()
				}
			})
		}
		attackers.Wait()
	})
	t.Logf("%d connections closed with 1008, %d in another way; %d pieces written, %v of CPU in %v",
		closed.Load(), others.Load(), pieces.Load(), cpuTime(t, a.pods[0])-before, length)
	if closed.Load() == 0 || others.Load() > closed.Load()/2 {
		t.Error("the flood was not told why it ends")
	}
	a.peakBelow(t, 100)
	a.calmWithin(t, 3*time.Second)
}

// Many devices that begin large messages and do not go on hold little memory, and not for long.
func TestAttackUnfinishedMessages(t *testing.T) {
	a := startAttacked(t, 1, "FARHAND_MESSAGE_TIMEOUT=5s")
	const sockets, size = 1000, 1 << 20
	begin := append([]byte{0x01, 0x80 | 127, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0},
		bytes.Repeat([]byte(" "), size-1000)...)
	codes, connected := make(map[int]int), 0
	a.under(t, time.Minute, func(ctx context.Context) {
		var mu sync.Mutex
		var attackers sync.WaitGroup
		for i := range sockets {
			attackers.Go(func() {
				conn, r, _, err := bareSocket(ctx, a.pods[0].url, fmt.Sprintf("session_id=drip-%d", i), fleetToken)
				if err != nil || conn == nil {
					return
				}
				defer conn.Close()
				_, _ = conn.Write(begin)
				code := closeCode(conn, r)
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
				connected++
			})
		}
		attackers.Wait()
	})
	t.Logf("of %d sockets %d connected, closed with %v", sockets, connected, codes)
	if codes[1008]+codes[1013] < connected*9/10 || connected < sockets/2 { // a busy machine connects fewer in time
		t.Errorf("of %d sockets %d connected, closed with %v", sockets, connected, codes)
	}
	a.peakBelow(t, 400)
	a.calmWithin(t, 3*time.Second)
}

// Connecting as fast as it goes, each time as another session, does not keep calls waiting.
func TestAttackManyConnects(t *testing.T) {
	a := startAttacked(t, 2)
	var tried, opened, refused atomic.Int64
	const length = 5 * time.Second
	a.under(t, length, func(ctx context.Context) {
		var attackers sync.WaitGroup
		for i := range 64 {
			attackers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					tried.Add(1)
					conn, _, status, err := bareSocket(ctx, a.pods[i%2].url, fmt.Sprintf("session_id=rush-%d-%d", i, n),
						fleetToken)
					switch {
					case err != nil:
					case conn == nil && (status == http.StatusTooManyRequests ||
						status == http.StatusServiceUnavailable):
						refused.Add(1)
					case conn == nil:
						t.Errorf("refused with %d", status)
					default:
						opened.Add(1)
						conn.Close()
					}
				}
			})
		}
		attackers.Wait()
	})
	t.Logf("%d connects tried in %v, %d opened, %d told to come back", tried.Load(), length, opened.Load(),
		refused.Load())
	a.calmWithin(t, 10*time.Second)
}

// Devices that connect with 32 unknown labels, one after the other, do not keep calls waiting.
func TestAttackManyLabels(t *testing.T) {
	a := startAttacked(t, 2)
	var opened, refused atomic.Int64
	const length = 5 * time.Second
	a.under(t, length, func(ctx context.Context) {
		var attackers sync.WaitGroup
		for i := range 32 {
			attackers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					device := dialAttack(ctx, a.pods[i%2].url, fmt.Sprintf("labels-%d-%d", i, n))
					if device == nil {
						refused.Add(1)
						waitFor(ctx, 10*time.Millisecond)
						continue
					}
					var labels []string
					for l := range 32 {
						labels = append(labels, fmt.Sprintf(`"key-%d":"%d-%d"`, l, i, n))
					}
					_ = device.WriteMessage(1, []byte(`{"type":"connect","labels":{`+strings.Join(labels, ",")+`}}`))
					_ = device.WriteMessage(1, []byte(`{"type":"register_tools","tools":[{"name":"x"}]}`))
					_ = device.SetReadDeadline(time.Now().Add(waitLimit))
					for {
						_, frame, err := device.ReadMessage()
						if err == nil && !bytes.Contains(frame, []byte("tools_registered")) {
							continue
						}
						if err == nil {
							opened.Add(1)
						}
						break
					}
					device.Close()
				}
			})
		}
		attackers.Wait()
	})
	t.Logf("%d opened in %v, %d refused", opened.Load(), length, refused.Load())
	a.peakBelow(t, 200)
	a.calmWithin(t, 10*time.Second)
}

// A device that has moved from one pod to another and answers unknown calls changes nothing and gains nothing.
func TestAttackForgedResults(t *testing.T) {
	a := startAttacked(t, 2)
	const length = 5 * time.Second
	var acknowledged, believed, connections atomic.Int64
	a.under(t, length, func(ctx context.Context) {
		for n := 0; ctx.Err() == nil; n++ {
			conn, r, _, err := bareSocket(ctx, a.pods[n%2].url, "session_id=forger", fleetToken)
			if err != nil || conn == nil {
				waitFor(ctx, 10*time.Millisecond)
				continue
			}
			if n == 0 { // only to move away from
				_, _, _ = readFrame(r)
				conn.Close()
				continue
			}
			connections.Add(1)
			end := time.AfterFunc(time.Until(deadlineOf(ctx)), func() { conn.Close() })
			go func() {
				for err := error(nil); err == nil && ctx.Err() == nil; {
					_, err = conn.Write(maskedText(fmt.Sprintf(`{"type":"tool_result","id":"%016x","output":"x"}`,
						rand.Uint64())))
				}
			}()
			for {
				opcode, payload, err := readFrame(r)
				if err != nil || opcode == 8 {
					break
				}
				if bytes.Contains(payload, []byte(`"result_acknowledged"`)) {
					acknowledged.Add(1)
					if !bytes.Contains(payload, []byte(`"ignored":true`)) {
						believed.Add(1)
					}
				}
			}
			end.Stop()
			conn.Close()
		}
	})
	t.Logf("%d answers acknowledged over %d connections, %d of them as if they had changed something",
		acknowledged.Load(), connections.Load(), believed.Load())
	if believed.Load() > 0 {
		t.Error("forged answers were believed")
	}
	if limit := int64(2*1000 + 2*500*length.Seconds()); acknowledged.Load() > limit { // what each pod allows
		t.Errorf("%d forged answers were taken, want at most %d", acknowledged.Load(), limit)
	}
	a.calmWithin(t, 5*time.Second)
}

func deadlineOf(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline
}

// Guessing tokens is slowed down, and does not keep out a client with the right one.
func TestAttackWrongTokens(t *testing.T) {
	a := startAttacked(t, 1)
	var statuses [1000]atomic.Int64
	a.under(t, 4*time.Second, func(ctx context.Context) {
		var attackers sync.WaitGroup
		for i := range 16 {
			attackers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					guess := fmt.Sprintf("guess-%d-%d", i, n)
					if n%2 == 0 {
						if _, _, status, err := bareSocket(ctx, a.pods[0].url, "session_id=guess", guess); err == nil {
							statuses[status].Add(1)
						}
						continue
					}
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, a.pods[0].url+"/api/tools", nil)
					req.Header.Set("Authorization", "Bearer "+guess)
					if resp, err := http.DefaultClient.Do(req); err == nil {
						statuses[resp.StatusCode].Add(1)
						resp.Body.Close()
					}
				}
			})
		}
		attackers.Wait()
	})
	t.Logf("%d × 401, %d × 429", statuses[401].Load(), statuses[429].Load())
	if n := statuses[401].Load(); n == 0 || n > 150 || statuses[429].Load() == 0 {
		t.Errorf("%d × 401, %d × 429", n, statuses[429].Load())
	}
	log := a.pods[0].out.String()
	if n := strings.Count(log, "request refused"); n == 0 || n > 40 {
		t.Errorf("%d lines about refusals in the log", n)
	}
	if strings.Contains(log, "guess-") {
		t.Error("a token is in the log")
	}
}
