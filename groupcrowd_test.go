package farhand_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
)

// Two thousand devices on two pods are each called once.
func TestGroupCallReachesACrowd(t *testing.T) {
	p := newGroupPods(t, nil)
	p.crowd(2000, `{"site":"vienna"}`)
	_, table := p.call(0, `{"tool":"look","target":{"labels":{"site":"vienna"}},"concurrency":256}`)
	if table.State != "succeeded" || table.Counts != (groupCounts{Devices: 2000, Succeeded: 2000}) {
		t.Errorf("%s %+v %s", table.State, table.Counts, table.Error)
	}
	for i := range 2000 {
		if n := p.called(fmt.Sprintf("c-%d", i)); n != 1 {
			t.Fatalf("c-%d was called %d times", i, n)
		}
	}
}

// Clients that read nothing hold their own share of the streams and of the slots. Others are served meanwhile.
func TestGroupCallSlowReaders(t *testing.T) {
	p := onePod(t, "tools: []\n", func(cfg *farhand.Config) { cfg.MaxGroupCalls, cfg.MaxOutput = 64, 4<<20 })
	long := strings.Repeat("x", 1<<20)
	for i := range 20 {
		p.deviceOf(0, fmt.Sprintf("bob-%d", i), `{}`, "bob", groupTools, says(long))
	}
	var began, refused atomic.Int64
	var asking sync.WaitGroup
	for range 1000 {
		asking.Go(func() {
			switch p.neverRead("bob", `{"tool":"look"}`) {
			case http.StatusOK:
				began.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
			}
		})
	}
	asking.Wait()
	if began.Load()+refused.Load() != 1000 || began.Load() == 0 || began.Load() > 250 {
		t.Errorf("%d streams began, %d were refused", began.Load(), refused.Load())
	}
	for range 5 {
		if _, table := p.callAs(0, "ada", `{"tool":"look"}`); table.Counts.Succeeded != 2 {
			t.Errorf("another: %+v", table.Counts)
		}
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	if memory.HeapAlloc > 256<<20 {
		t.Errorf("%d MB are held for clients that do not read", memory.HeapAlloc>>20)
	}
}

// neverRead makes a group call on a connection of its own, reads the status, and nothing more until the test ends.
func (p *groupPods) neverRead(token, body string) int {
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.urls[0], "http://"))
	if err != nil {
		p.Error(err)
		return 0
	}
	p.Cleanup(func() { conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(conn, "POST /api/calls HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token, len(body), body)
	line, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
	if err != nil {
		p.Error(err)
		return 0
	}
	var status int
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &status); err != nil {
		p.Error(err)
	}
	return status
}

// BenchmarkGroupCall compares a group call over many devices on two pods with single calls to the same devices. It
// prints the time to the first result, and how much more heap there is in the first and the second half of the
// call's devices: calls under way take some, those that have ended must not.
func BenchmarkGroupCall(b *testing.B) {
	for _, n := range []int{1000, 8000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkGroupCall(b, n) })
	}
}

func benchmarkGroupCall(b *testing.B, n int) {
	p := newGroupPods(b, nil)
	p.crowd(n, `{"site":"vienna"}`)
	const parallel = 256
	single := func() time.Duration {
		began := time.Now()
		ids := make(chan int)
		var calling sync.WaitGroup
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: parallel}}
		defer client.CloseIdleConnections()
		for range parallel {
			calling.Go(func() {
				for i := range ids {
					req, _ := http.NewRequest(http.MethodPost, p.urls[0]+"/api/tools/look/call",
						strings.NewReader(fmt.Sprintf(`{"target":{"session_id":"c-%d"}}`, i)))
					req.Header.Set("Authorization", "Bearer "+groupToken)
					resp, err := client.Do(req)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
		for i := range n {
			ids <- i
		}
		close(ids)
		calling.Wait()
		return time.Since(began)
	}
	single() // both read the sessions once
	var group, alone, first time.Duration
	for b.Loop() {
		alone += single()
		took, early, _ := p.groupOnce(b, n, parallel, false)
		group, first = group+took, first+early
	}
	_, _, halves := p.groupOnce(b, n, parallel, true)
	calls := float64(n * b.N)
	b.ReportMetric(calls/group.Seconds(), "calls/s")
	b.ReportMetric(alone.Seconds()/group.Seconds(), "of-single")
	b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "ms-to-first")
	b.ReportMetric(halves[0]/(1<<20), "MB-first-half")
	b.ReportMetric(halves[1]/(1<<20), "MB-second-half")
}

// groupOnce makes one group call and reads its lines. If asked to, it collects and measures the heap meanwhile, which
// takes most of the time: halves are the means of what there is more, in bytes.
func (p *groupPods) groupOnce(b *testing.B, n, parallel int, measure bool) (
	took, first time.Duration, halves [2]float64,
) {
	var memory runtime.MemStats
	heap := func() float64 {
		runtime.GC()
		runtime.ReadMemStats(&memory)
		return float64(memory.HeapAlloc)
	}
	before, began := heap(), time.Now()
	resp := p.request(context.Background(), 0, http.MethodPost, "/api/calls",
		fmt.Sprintf(`{"tool":"look","target":{"labels":{"site":"vienna"}},"concurrency":%d}`, parallel), groupToken,
		"Accept", "application/x-ndjson")
	defer resp.Body.Close()
	rows, every := 0, n/20
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var row groupRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			b.Fatal(err)
		}
		if row.Type != "result" {
			continue
		}
		if rows++; rows == 1 {
			first = time.Since(began)
		}
		if measure && rows%every == 0 {
			halves[(rows-1)*2/n] += (heap() - before) / 10
		}
	}
	if rows != n {
		b.Errorf("%d rows of %d", rows, n)
	}
	return time.Since(began), first, halves
}

// A device counts once, however many sessions it has: otherwise it would be a quorum alone.
func TestADeviceIsNoQuorumAlone(t *testing.T) {
	pairs := newPairingPods(t, 2, nil)
	p := &groupPods{TB: t, urls: pairs.urls}
	paired := func(id string) string { return pairs.paired(id, nil, "look") }
	session := func(n int, id, token, answer string) {
		conn := connect(t, p.urls[n%2], id, token)
		ready, done := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() {
			conn.Close()
			<-done
		})
		d := &groupDevice{id: id, conn: conn}
		d.write(`{"type":"register_tools","tools":[{"name":"look","parameters":{"type":"object"}}]}`)
		go func() {
			defer close(done)
			for {
				var f struct{ Type, ID string }
				if conn.ReadJSON(&f) != nil {
					return
				}
				switch f.Type {
				case "tools_registered":
					close(ready)
				case "tool_call_request":
					d.answer(f.ID, answer)
				}
			}
		}()
		testkit.Receive(t, "the tools are registered", ready)
	}
	greedy := paired("greedy")
	for n := range 3 {
		session(n, fmt.Sprintf("greedy-%d", n), greedy, "lie")
	}
	session(0, "broken", paired("broken"), "!")
	session(1, "honest", paired("honest"), "truth")
	for body, want := range map[string]groupCounts{
		`{"tool":"look","mode":"quorum","quorum":3}`: {Devices: 3, Succeeded: 2, Failed: 1},
		`{"tool":"look"}`:              {Devices: 3, Succeeded: 2, Failed: 1},
		`{"tool":"look",` + hour + `}`: {Devices: 3, Succeeded: 2, Failed: 1},
	} {
		if status, table := p.callAs(0, pairToken, body); table.State != "failed" || table.Counts != want {
			t.Errorf("%s: %d %+v", body, status, table)
		}
	}
}

// A group call that waits for a device holds of the next ones only the tool that it calls: all their definitions may be
// a hundred mebibytes, and one identity can have 250 such calls.
func TestGroupCallsHoldNoDefinitions(t *testing.T) {
	p := newGroupPods(t, nil)
	asked := make(chan string, 8)
	const devices, size, calls = 45, 60_000, 5 // far beyond what the store caches
	for i := range devices {
		tools := groupTools[:len(groupTools)-1]
		for j := range 15 {
			text := strings.Repeat(fmt.Sprintf("%d-%d ", i, j), size/4)
			tools += fmt.Sprintf(`,{"name":"t%d","parameters":{"type":"object","description":%q}}`, j, text[:size])
		}
		p.deviceOf(1, fmt.Sprint("d", i), `{}`, groupToken, tools+"]",
			func(_ *groupDevice, call string) string { asked <- call; return "" })
	}
	var memory runtime.MemStats
	heap := func() int64 {
		runtime.GC()
		runtime.ReadMemStats(&memory)
		return int64(memory.HeapAlloc)
	}
	wait := func() {
		resp := p.request(t.Context(), 0, http.MethodPost, "/api/calls", `{"tool":"look","concurrency":1}`, groupToken,
			"Accept", "application/x-ndjson")
		t.Cleanup(func() { resp.Body.Close() })
		<-asked
	}
	wait() // the store of its pod has its caches
	before := heap()
	for range calls {
		wait()
	}
	if more := heap() - before; more > calls*devices*size {
		t.Errorf("%d waiting calls hold %d MB more", calls, more>>20)
	}
}
