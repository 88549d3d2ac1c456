package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"

	"github.com/farhand/farhand/web"
)

const (
	scaleSessions = 10_000
	scaleEvents   = 2_000 // as many as 200 a second are in ten seconds

	maxScaleRows   = 150      // rows of the list in the document
	maxScaleGrowth = 12 << 20 // bytes of memory that so many events may take, most of it the calls that are listed
	scaleLongest   = 100      // ms of the longest frame while scrolling: a budget, which is only printed
)

var consoleTrace = flag.Duration("console-trace", 0,
	"how long TestTenThousandSessions goes on, with a line each minute; make trace has ten minutes")

// TestTenThousandSessions: the list of 10,000 sessions has few rows in the document, listens to events at 200 a second,
// and keeps its size. How it scrolls is printed beside its budget.
func TestTenThousandSessions(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(scaleGateway(t))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	b := startPageBrowser(t)
	b.size(1280, "light")
	b.open(server.URL + "/console/devices?group=user")
	b.see("10,000 of 10,000 connected", "user-0 · ")
	before := b.heap()
	b.until("all events", fmt.Sprintf(`fetch("/heard").then(r => r.json()).then(n => n >= %d)`, scaleEvents))
	after := b.heap()
	t.Logf("memory: %d KiB with 10,000 sessions, %d KiB more after %d events", before>>10,
		(after-before)>>10, scaleEvents)
	if after-before > maxScaleGrowth {
		t.Errorf("%d events took %d bytes of memory", scaleEvents, after-before)
	}
	rows := eval[int](b, `document.querySelectorAll(".rows-body > [role=row]").length`)
	if rows == 0 || rows > maxScaleRows {
		t.Errorf("%d rows are in the document", rows)
	}
	tellBrowser(b, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	t.Log(b.scrolled(300))
	b.until("rows far below", "scrollY > 30_000 && "+
		"document.querySelector('.rows-body > [aria-rowindex]').ariaRowIndex > 800")
	b.fill("Search name, user, label, tool…", "device-4321")
	b.see("device 4321")
	b.fill("Search name, user, label, tool…", "")
	b.trace(*consoleTrace)
	b.quiet()
}

// trace prints each minute how the page does while it scrolls up and down, and at the end what changed since the first
// minute.
func (b *pageBrowser) trace(d time.Duration) {
	b.Helper()
	if d == 0 {
		return
	}
	eval[bool](b, `(window.long = [], new PerformanceObserver(list => long.push(...list.getEntries().map(e => e.duration)))
		.observe({type: "longtask"}), true)`)
	began, first, last := time.Now(), 0, 0
	for minute := 1; time.Since(began) < d; minute++ {
		worked := b.worked()
		frames := b.scrolled(300 * (2*(minute%2) - 1))
		waitFor(b.ctx, time.Until(began.Add(time.Duration(minute)*time.Minute)))
		worked = b.worked() - worked
		long := eval[struct{ Count, Longest float64 }](b, `(() => {
			const all = long.splice(0);
			return {count: all.length, longest: Math.max(0, ...all)};
		})()`)
		last = b.heap()
		if first == 0 {
			first = last
		}
		b.Logf("minute %d: %d KiB; %s; %.0f long tasks, the longest took %.0f ms; the page worked %.1f s",
			minute, last>>10,
			frames, long.Count, long.Longest, worked)
	}
	b.Logf("memory: %d KiB after the first minute, %d KiB at the end; budget: flat", first>>10, last>>10)
}

// scrolled scrolls by so many pixels in each of 120 frames, and returns how that went.
func (b *pageBrowser) scrolled(pixels int) string {
	b.Helper()
	worked := b.worked()
	frames := eval[struct{ Frames, Longest, Took float64 }](b, fmt.Sprintf(`new Promise(done => {
		const began = performance.now();
		let frames = 0, longest = 0, last = performance.now();
		const step = now => {
			longest = Math.max(longest, now - last);
			last = now;
			scrollBy(0, %d);
			if (++frames < 120) requestAnimationFrame(step); else done({frames, longest, took: now - began});
		};
		requestAnimationFrame(step);
	})`, pixels))
	return fmt.Sprintf("scrolling: %.0f frames/s, the longest took %.0f ms, %.1f ms of processor time each; "+
		"budget: 60 frames/s, %d ms", 1000*frames.Frames/frames.Took, frames.Longest,
		1000*(b.worked()-worked)/frames.Frames, scaleLongest)
}

// TestOpenConsoles: an open console costs its pod less than maxConsoleCost bytes.
func TestOpenConsoles(t *testing.T) {
	const consoles, maxConsoleCost = 100, 100_000
	url := startGateway(t)
	before := inUse()
	for range consoles {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(waitLimit))
		fmt.Fprintf(c, "GET /api/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n",
			strings.TrimPrefix(url, "http://"), fleetToken)
		answer := make([]byte, 12)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "HTTP/1.1 200" {
			t.Fatalf("%q %v", answer, err)
		}
	}
	each := (inUse() - before) / consoles
	t.Logf("an open console costs its pod %d bytes; budget: %d", each, maxConsoleCost)
	if each <= 0 || each > maxConsoleCost {
		t.Errorf("%d bytes for each console", each)
	}
}

// inUse returns the bytes of this process's objects and stacks.
func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// worked returns how long the page's thread has worked, in seconds.
func (b *pageBrowser) worked() float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	all, err := cdp.Call(ctx, b.wire, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range all.Metrics {
		if m.Name == "TaskDuration" {
			return m.Value
		}
	}
	b.Fatal("the browser does not say how long it worked")
	return 0
}

// heap returns the bytes of JavaScript's objects that are in use.
func (b *pageBrowser) heap() int {
	b.Helper()
	tellBrowser(b, heapprofiler.CollectGarbage, cdp.Empty{})
	return eval[int](b, "performance.memory.usedJSHeapSize")
}

// scaleGateway answers what the list asks for, as a gateway with many sessions does.
func scaleGateway(t *testing.T) http.Handler {
	pages, heard := web.New(nil), make(chan int, 1)
	heard <- 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/me", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"tenant":"default","roles":["admin"],"chat":false,"pairing":"code"}`)
	})
	mux.HandleFunc("GET /api/sessions", func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		page := map[string]any{}
		var rows []any
		for i := from; i < min(from+1000, scaleSessions); i++ {
			rows = append(rows, map[string]any{
				"session_id": fmt.Sprintf("s-%d", i), "device_id": fmt.Sprintf("device-%d", i),
				"device_name": fmt.Sprintf("device %d", i), "user_id": fmt.Sprintf("user-%d", i%50), "connected": true,
				"online": true, "pod": fmt.Sprintf("pod-%d", i%3), "tools": []string{"camera_snap", "echo"},
				"labels": map[string]string{"room": fmt.Sprintf("room-%d", i%20)}, "message_count": 0,
				"created_at": "2026-01-01T00:00:00.000Z", "last_activity": "2026-01-01T00:00:00.000Z",
			})
		}
		if page["sessions"] = rows; from+1000 < scaleSessions {
			page["next_cursor"] = strconv.Itoa(from + 1000)
		}
		_ = json.NewEncoder(w).Encode(page)
	})
	mux.HandleFunc("GET /api/events", func(w http.ResponseWriter, r *http.Request) { scaleFeed(w, r, heard) })
	mux.HandleFunc("GET /heard", func(w http.ResponseWriter, _ *http.Request) {
		n := <-heard
		heard <- n
		fmt.Fprint(w, n)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !pages.Serve(w, r) {
			http.NotFound(w, r)
		}
	})
	return mux
}

// scaleFeed sends events, most of them ends of calls, until the client leaves. heard holds how many it has sent.
func scaleFeed(w http.ResponseWriter, r *http.Request, heard chan int) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n += 10 {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		for i := n; i < n+10; i++ {
			at := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
			event := fmt.Sprintf(`{"type":"call.finished","at":%q,"pod":"pod-1","session_id":"s-%d","call":{"call_id":"c-%d",`+
				`"tool":"echo","state":"succeeded","status":"completed","timeline":[{"state":"accepted","at":%q}],"pod":"pod-1"}}`,
				at, i%scaleSessions, i, at)
			if i%10 == 0 {
				event = fmt.Sprintf(`{"type":"session.tools","at":%q,"pod":"pod-1","session_id":"s-%d","tools":["echo","x%d"]}`,
					at, i%scaleSessions, i)
			}
			fmt.Fprintf(w, "id: %d-0\ndata: %s\n\n", i+1, event)
		}
		if flush.Flush() != nil {
			return
		}
		<-heard
		heard <- n + 10
	}
}
