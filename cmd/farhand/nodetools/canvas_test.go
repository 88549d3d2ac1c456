package nodetools

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// served is a canvas that is served.
type served struct {
	*testing.T
	*Canvas
	url string
}

func serve(t *testing.T) *served {
	t.Helper()
	c := NewCanvas(false)
	l, url, err := c.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return &served{t, c, url}
}

// open opens the page: next returns the data of the next event of a kind.
func (s *served) open() (next func(kind string) string, leave func()) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"events", nil)
	if err != nil {
		s.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	leave = func() { cancel(); resp.Body.Close() }
	s.Cleanup(leave)
	lines := bufio.NewScanner(resp.Body)
	return func(kind string) string {
		s.Helper()
		for lines.Scan() {
			if lines.Text() == "event: "+kind && lines.Scan() {
				return strings.TrimPrefix(lines.Text(), "data: ")
			}
		}
		s.Fatalf("the page is told nothing of the kind %s: %v", kind, lines.Err())
		return ""
	}, leave
}

// post sends what the page says.
func (s *served) post(path, body string, change func(*http.Request)) int {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestCanvasShowsWhatItIsTold(t *testing.T) {
	s := serve(t)
	cfg := Config{Canvas: s.Canvas}
	out, err := do(t.Context(), t, cfg, "canvas_present", `{"url":"https://example.com/"}`)
	if err != nil || !strings.Contains(out.(string), "no page is open") {
		t.Errorf("%v, %v", out, err)
	}
	next, _ := s.open()
	if got := next("state"); got != `{"visible":true,"url":"https://example.com/","content":[]}` {
		t.Errorf("at first: %s", got)
	}
	for _, c := range []struct{ name, args, want string }{
		{"canvas_a2ui_push", `{"jsonl":"{\"text\":\"hello\"}\n\n{\"b\":2}"}`,
			`{"visible":true,"url":"https://example.com/","content":[{"text":"hello"},{"b":2}]}`},
		{"canvas_navigate", `{"url":"https://example.org/"}`,
			`{"visible":true,"url":"https://example.org/","content":[{"text":"hello"},{"b":2}]}`},
		{"canvas_hide", `{}`, `{"visible":false,"url":"https://example.org/","content":[{"text":"hello"},{"b":2}]}`},
		{"canvas_a2ui_reset", `{}`, `{"visible":false,"url":"https://example.org/","content":[]}`},
	} {
		if out, err := do(t.Context(), t, cfg, c.name, c.args); err != nil || out != "done" {
			t.Errorf("%s: %v, %v", c.name, out, err)
		}
		if got := next("state"); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	for _, c := range []struct{ name, args string }{
		{"canvas_navigate", `{"url":"file:///etc/passwd"}`}, {"canvas_present", `{"url":"http://127.0.0.1/"}`},
		{"canvas_a2ui_push", `{"jsonl":"[]"}`},
	} {
		if out, err := do(t.Context(), t, cfg, c.name, c.args); err == nil {
			t.Errorf("%s %s: %v", c.name, c.args, out)
		}
	}
}

func TestCanvasEval(t *testing.T) {
	s := serve(t)
	cfg := Config{Canvas: s.Canvas}
	if out, err := do(t.Context(), t, cfg, "canvas_eval", `{"javaScript":"1"}`); err != errNoPage {
		t.Errorf("without a page: %v, %v", out, err)
	}
	next, leave := s.open()
	next("state")
	for said, want := range map[string]string{
		`"ok":true,"value":"[1,2]"`: `[1,2]`, `"ok":false,"value":"ReferenceError: x"`: "ReferenceError: x",
		`"ok":true,"value":"no json"`: "the value is not JSON",
	} {
		done := make(chan string, 1)
		go func() {
			out, err := do(t.Context(), t, cfg, "canvas_eval", `{"javaScript":"f()"}`)
			if raw, ok := out.(json.RawMessage); ok {
				done <- string(raw)
				return
			}
			done <- err.Error()
		}()
		var asked struct{ ID, Code string }
		if err := json.Unmarshal([]byte(next("eval")), &asked); err != nil || asked.Code != "f()" {
			t.Fatalf("%+v, %v", asked, err)
		}
		answer := `{"id":"` + asked.ID + `",` + said + `}`
		if status := s.post("value", answer, nil); status != http.StatusNoContent {
			t.Errorf("answered with %d", status)
		}
		if got := <-done; got != want {
			t.Errorf("%s: %s", said, got)
		}
		if status := s.post("value", answer, nil); status != http.StatusNotFound {
			t.Errorf("answered twice with %d", status)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if out, err := do(ctx, t, cfg, "canvas_eval", `{"javaScript":"for(;;){}"}`); err == nil {
		t.Errorf("a page that does not answer: %v", out)
	}
	leave()
}

// Only the page that was opened last receives events; the other is closed.
func TestCanvasHasOnePage(t *testing.T) {
	s := serve(t)
	first, _ := s.open()
	first("state")
	second, _ := s.open()
	second("state")
	if _, err := do(t.Context(), t, Config{Canvas: s.Canvas}, "canvas_hide", `{}`); err != nil {
		t.Fatal(err)
	}
	second("state")
	s.mu.Lock()
	open := s.page != nil
	s.mu.Unlock()
	if !open {
		t.Error("the end of the first page closed the second")
	}
}

// Only a page of this server under its own address gets in, and only who knows the token.
func TestCanvasIsPrivate(t *testing.T) {
	s := serve(t)
	host := strings.SplitN(s.url, "/", 4)[2]
	get := func(url string, change func(*http.Request)) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(req)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	for _, path := range []string{"", "page.js"} {
		resp := get(s.url+path, nil)
		csp := resp.Header.Get("Content-Security-Policy")
		if resp.StatusCode != http.StatusOK || !strings.Contains(csp, "default-src 'none'") ||
			resp.Header.Get("Referrer-Policy") != "no-referrer" ||
			resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: %d, %v", path, resp.StatusCode, resp.Header)
		}
		for _, stranger := range []string{"evil.example", "localhost", "127.0.0.1:1"} {
			resp := get(s.url+path, func(r *http.Request) { r.Host = stranger })
			if resp.StatusCode != http.StatusNotFound {
				t.Errorf("%q under the name %s: %d", path, stranger, resp.StatusCode)
			}
		}
	}
	for _, url := range []string{"http://" + host + "/", "http://" + host + "/events", "http://" + host + "/AAAA/"} {
		if resp := get(url, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", url, resp.StatusCode)
		}
	}
	if status := s.post("value", `{"id":"x"}`, func(r *http.Request) {
		r.Header.Set("Origin", "https://evil.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}); status != http.StatusForbidden {
		t.Errorf("a page of another site: %d", status)
	}
	if status := s.post("value", "no json", nil); status != http.StatusBadRequest {
		t.Errorf("what is no JSON: %d", status)
	}
}

// What is pushed is kept within bounds, the latest of it.
func TestCanvasIsBounded(t *testing.T) {
	s := serve(t)
	line := `{"text":"` + strings.Repeat("x", 60<<10) + `"}`
	for range 30 {
		if _, err := s.push(t.Context(), struct{ JSONL string }{line}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.push(t.Context(), struct{ JSONL string }{strings.Repeat("{}\n", 1500)}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.shown.Content); n != maxPushed || s.shown.bytes > maxPushedBytes {
		t.Errorf("%d objects, %d bytes", n, s.shown.bytes)
	}
}

// A canvas that can open its page does so when something is presented, unless it is open.
func TestCanvasOpensItself(t *testing.T) {
	cfg := Config{Canvas: NewCanvas(false)}
	openings := 0
	cfg.Canvas.OpenWith(func(context.Context, string) error {
		openings++
		cfg.Canvas.opened()
		return nil
	})
	for range 2 {
		if out, err := do(t.Context(), t, cfg, "canvas_present", `{}`); err != nil || out != "done" || openings != 1 {
			t.Errorf("%v, %v; opened %d times", out, err, openings)
		}
	}
	cfg.Canvas = NewCanvas(false)
	cfg.Canvas.OpenWith(func(context.Context, string) error { return errNoPage })
	if out, err := do(t.Context(), t, cfg, "canvas_present", `{}`); !errors.Is(err, errNoPage) {
		t.Errorf("%v, %v", out, err)
	}
}

// The address that a browser is started with leads to the page once, and has no other address of it.
func TestCanvasTicket(t *testing.T) {
	s := serve(t)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(url string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Location")
	}
	opened := ""
	s.OpenWith(func(_ context.Context, url string) error {
		opened = url
		if strings.Contains(url, s.token) || strings.Contains(url, s.frame) {
			t.Errorf("%s reveals the page", url)
		}
		if status, at := get(url); status != http.StatusSeeOther || at != "/"+s.token+"/" {
			t.Errorf("%d, %q", status, at)
		}
		if status, at := get(url); status != http.StatusNotFound || at != "" {
			t.Errorf("twice: %d, %q", status, at)
		}
		s.opened()
		return nil
	})
	if out, err := do(t.Context(), t, Config{Canvas: s.Canvas}, "canvas_present", `{}`); err != nil || opened == "" {
		t.Fatalf("%v, %v", out, err)
	}
	s.OpenWith(func(_ context.Context, url string) error { opened = url; return errNoPage })
	s.mu.Lock()
	s.page = nil
	s.mu.Unlock()
	if _, err := do(t.Context(), t, Config{Canvas: s.Canvas}, "canvas_present", `{}`); !errors.Is(err, errNoPage) {
		t.Error(err)
	}
	if status, _ := get(opened); status != http.StatusNotFound {
		t.Errorf("the address of a browser that did not start: %d", status)
	}
}

// Calls at the same time open one browser, and the person is asked about a page once, before it is shown.
func TestCanvasAsks(t *testing.T) {
	cfg := Config{Canvas: NewCanvas(false)}
	openings, asked := 0, []string{}
	cfg.Canvas.OpenWith(func(context.Context, string) error {
		openings++
		time.Sleep(10 * time.Millisecond)
		cfg.Canvas.opened()
		return nil
	})
	cfg.Canvas.AskWith(func(_ context.Context, url string) error {
		if asked = append(asked, url); strings.Contains(url, "no.example") {
			return errNoPage
		}
		return nil
	})
	for _, name := range []string{"canvas_present", "canvas_navigate"} {
		if _, err := do(t.Context(), t, cfg, name, `{"url":"https://no.example/"}`); !errors.Is(err, errNoPage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if openings != 0 || cfg.Canvas.shown.URL != "" {
		t.Errorf("opened %d times; %q", openings, cfg.Canvas.shown.URL)
	}
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			if out, err := do(t.Context(), t, cfg, "canvas_present", `{"url":"https://example.com/"}`); err != nil ||
				out != "done" {
				t.Errorf("%v, %v", out, err)
			}
		})
	}
	calls.Wait()
	if openings != 1 || len(asked) != 3 {
		t.Errorf("opened %d times, asked about %q", openings, asked)
	}
	if _, err := do(t.Context(), t, cfg, "canvas_present", `{"url":"http://127.0.0.1/"}`); err == nil ||
		len(asked) != 3 {
		t.Errorf("%v, asked about %q", err, asked)
	}
}
