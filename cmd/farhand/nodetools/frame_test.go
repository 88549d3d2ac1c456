package nodetools

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/procgroup"
	"github.com/farhand/farhand/internal/testkit"
)

// browse opens a page in a real browser until the test ends.
func browse(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--remote-debugging-port=0", "--user-data-dir="+t.TempDir(), url)
	group, err := procgroup.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = group.Wait() })
}

// What runs in the canvas runs in the page that is presented, which reaches nothing of the canvas.
func TestEvalRunsInThePresentedPage(t *testing.T) {
	s := serve(t)
	s.urls.AllowPrivate = true
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/text":
			fmt.Fprint(w, "no page")
		case "/moved":
			http.Redirect(w, r, "/deep/page", http.StatusFound)
		default:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("X-Frame-Options", "DENY")
			fmt.Fprintf(w, "<!doctype html><html><head><title>%s</title></head><body><a href=next>n</a></body></html>",
				r.URL.Path)
		}
	}))
	t.Cleanup(pages.Close)
	browse(t, s.url)
	testkit.Eventually(t, "the canvas is open", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.page != nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Limit)
	defer cancel()
	cfg := Config{Canvas: s.Canvas}
	for _, c := range []struct{ url, code, want string }{
		{"", "document.title", `"farhand canvas"`},
		{"/one", "document.title", `"/one"`},
		{"/moved", "document.querySelector('a').href", `"` + pages.URL + `/deep/next"`},
		{"/two", "new Promise((ok) => setTimeout(ok, 1, {a: [1]}))", `{"a":[1]}`},
		{"/two", "missing()", "ReferenceError: missing is not defined"},
		{"/two", "try { parent.document.title } catch (err) { err.name }", `"SecurityError"`},
		{"/two", "document.cookie", "SecurityError"},
		{"/two", "location.href.includes('" + s.token + "')", "false"},
		{"/two", "document.compatMode", `"CSS1Compat"`},
		{"/text", "1", "cannot run scripts"},
		{"/one", "document.title", `"/one"`},
	} {
		if c.url != "" {
			if out, err := do(ctx, t, cfg, "canvas_present", `{"url":"`+pages.URL+c.url+`"}`); err != nil {
				t.Fatalf("%v, %v", out, err)
			}
		}
		args, err := json.Marshal(map[string]string{"javaScript": c.code})
		if err != nil {
			t.Fatal(err)
		}
		out, err := do(ctx, t, cfg, "canvas_eval", string(args))
		got := fmt.Sprint(err)
		if raw, ok := out.(json.RawMessage); ok {
			got = string(raw)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s in %q: %s, want %s", c.code, c.url, got, c.want)
		}
	}
}
