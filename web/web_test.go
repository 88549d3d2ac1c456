package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farhand/farhand/web"
)

// get requests a path. Each header is "Name: value".
func get(t *testing.T, pages *web.Pages, method, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	if !pages.Serve(w, r) {
		if w.Body.Len() > 0 || len(w.Header()) > 0 {
			t.Errorf("%s is not served, but something was written: %v", path, w.Header())
		}
		w.Code = http.StatusNotFound
	}
	return w
}

func TestEveryViewHasAnAddress(t *testing.T) {
	pages := web.New(nil)
	console := get(t, pages, "GET", "/console/")
	for path, want := range map[string]int{
		"/console/": 200, "/console/devices/phone%2F1": 200, "/console/calls/x?state=failed": 200, "/console": 308,
		"/device": 200, "/device/x": 404, "/device/canvas": 200, "/sw.js": 200,
		"/device.webmanifest": 200, "/icon-192.png": 200, "/assets/none.js": 404,
		"/assets/..%2Fconsole%2Findex.html": 404, "/icon.svg": 200,
		"/package.json": 404, "/assets/": 404,
	} {
		w := get(t, pages, "GET", path)
		if w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
		if strings.HasPrefix(path, "/console/") && w.Body.String() != console.Body.String() {
			t.Errorf("%s is not the console", path)
		}
	}
	if to := get(t, pages, "GET", "/console").Header().Get("Location"); to != "/console/" {
		t.Errorf("/console leads to %q", to)
	}
}

// TestHeaders: what keeps other origins out, for each file.
func TestHeaders(t *testing.T) {
	pages := web.New(nil)
	asset := regexp.MustCompile(`/assets/[\w.-]+\.js`).FindString(get(t, pages, "GET", "/console/").Body.String())
	if asset == "" {
		t.Fatal("the console has no script")
	}
	for _, path := range []string{"/console/", "/device", asset, "/icon.svg"} {
		h := get(t, pages, "GET", path).Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if h.Get(name) != want {
				t.Errorf("%s: %s is %q", path, name, h.Get(name))
			}
		}
		policy := h.Get("Content-Security-Policy")
		for _, rule := range []string{
			"default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'",
			"base-uri 'none'", "require-trusted-types-for 'script'",
		} {
			if !strings.Contains(policy, rule) {
				t.Errorf("%s: the policy has no %s", path, rule)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s: %s", path, policy)
		}
	}
	console, device := get(t, pages, "GET", "/console/").Header(), get(t, pages, "GET", "/device").Header()
	if p := console.Get("Permissions-Policy"); !strings.Contains(p, "camera=()") ||
		!strings.Contains(p, "microphone=()") {
		t.Errorf("the console may use %s", p)
	}
	if p := device.Get("Permissions-Policy"); !strings.Contains(p, "camera=(self)") {
		t.Errorf("the device page may use %s", p)
	}
	for page, h := range map[string]http.Header{"console": console, "device page": device} {
		if p := h.Get("X-DNS-Prefetch-Control"); p != "off" {
			t.Errorf("the %s may look up names of links: %q", page, p)
		}
	}
	if console.Get("Cross-Origin-Opener-Policy") != "same-origin" || console.Get("Cache-Control") != "no-cache" {
		t.Errorf("the console: %v", console)
	}
	if c := get(t, pages, "GET", asset).Header().Get("Cache-Control"); !strings.Contains(c, "immutable") {
		t.Errorf("%s: %s", asset, c)
	}
}

// TestConsoleMayReachTheProvider: the console alone, one more origin, and not by the policy of an older copy.
func TestConsoleMayReachTheProvider(t *testing.T) {
	origin := ""
	pages := web.New(func(context.Context) string { return origin })
	before := get(t, pages, "GET", "/console/").Header()
	origin = "https://id.example.com"
	console := get(t, pages, "GET", "/console/calls", "If-None-Match: "+before.Get("ETag"))
	policy := strings.Replace(before.Get("Content-Security-Policy"), "connect-src 'self'",
		"connect-src 'self' "+origin, 1)
	if got := console.Header().Get("Content-Security-Policy"); console.Code != 200 || got != policy {
		t.Errorf("%d, %s", console.Code, got)
	}
	again := get(t, pages, "GET", "/console/", "If-None-Match: "+console.Header().Get("ETag"))
	if again.Code != http.StatusNotModified {
		t.Errorf("the same page again: %d", again.Code)
	}
	if p := get(t, pages, "GET", "/device").Header().Get("Content-Security-Policy"); strings.Contains(p, origin) {
		t.Errorf("the device page: %s", p)
	}
}

// TestCanvasIsSandboxed: the document in which agents run code has an opaque origin, however it is opened, and loads
// only what all may read.
func TestCanvasIsSandboxed(t *testing.T) {
	pages := web.New(nil)
	frame := get(t, pages, "GET", "/device/canvas")
	policy := frame.Header().Get("Content-Security-Policy")
	for _, rule := range []string{"sandbox allow-scripts allow-forms;", "default-src 'none'",
		"frame-ancestors 'self'"} {
		if !strings.Contains(policy, rule) {
			t.Errorf("the policy has no %s: %s", rule, policy)
		}
	}
	if strings.Contains(policy, "allow-same-origin") || strings.Contains(policy, "connect-src") {
		t.Errorf("the policy: %s", policy)
	}
	if p := frame.Header().Get("Permissions-Policy"); strings.Contains(p, "(self)") ||
		!strings.Contains(p, "camera=()") {
		t.Errorf("the canvas may use %s", p)
	}
	for _, asset := range regexp.MustCompile(`/assets/[\w.-]+`).FindAllString(frame.Body.String(), -1) {
		if h := get(t, pages, "GET", asset).Header(); h.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s cannot be loaded: %v", asset, h)
		}
	}
	if own := get(t, pages, "GET", "/device").Header().Get("Content-Security-Policy"); !strings.Contains(own,
		"frame-src 'self'") {
		t.Errorf("the device page cannot frame the canvas: %s", own)
	}
}

func TestCachesAndCompression(t *testing.T) {
	pages := web.New(nil)
	asset := regexp.MustCompile(`/assets/[\w.-]+\.js`).FindString(get(t, pages, "GET", "/console/").Body.String())
	plain := get(t, pages, "GET", asset)
	packed := get(t, pages, "GET", asset, "Accept-Encoding: br, gzip")
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("not compressed: %v", packed.Header())
	}
	r, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	var unpacked bytes.Buffer
	if _, err := unpacked.ReadFrom(r); err != nil || !bytes.Equal(unpacked.Bytes(), plain.Body.Bytes()) {
		t.Errorf("the compressed form is another file (%v)", err)
	}
	tag := packed.Header().Get("ETag")
	if tag == plain.Header().Get("ETag") {
		t.Error("both forms have one tag")
	}
	again := get(t, pages, "GET", asset, "Accept-Encoding: gzip", `If-None-Match: "x", W/`+tag)
	if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("with the tag: %d", again.Code)
	}
	head := get(t, pages, "HEAD", asset)
	if head.Code != 200 || head.Body.Len() > 0 ||
		head.Header().Get("Content-Length") != plain.Header().Get("Content-Length") {
		t.Errorf("HEAD: %d %v", head.Code, head.Header())
	}
}

const (
	maxDist    = 2 << 20   // what the pages may add to the program, in bytes
	maxConsole = 250 << 10 // what the console loads before a form or a chart is opened, in bytes, compressed
	maxDevice  = 80 << 10  // what the device page loads
)

// TestBudgets: the size of all files, and of those that each page loads at once.
func TestBudgets(t *testing.T) {
	all := 0
	err := filepath.WalkDir("dist", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if strings.HasSuffix(path, ".map") {
			t.Errorf("%s is a source map", path)
		}
		info, err := entry.Info()
		all += int(info.Size())
		return err
	})
	if err != nil || all > maxDist {
		t.Errorf("dist has %d bytes (%v)", all, err)
	}
	pages := web.New(nil)
	for page, most := range map[string]int{"/console/": maxConsole, "/device": maxDevice} {
		html, sum := get(t, pages, "GET", page).Body.String(), 0
		for _, path := range regexp.MustCompile(`/assets/[\w.-]+`).FindAllString(html, -1) {
			sum += get(t, pages, "GET", path, "Accept-Encoding: gzip").Body.Len()
		}
		t.Logf("%s loads %d bytes, of %d", page, sum, most)
		if sum == 0 || sum > most {
			t.Errorf("%s loads %d bytes, of %d", page, sum, most)
		}
	}
}

// TestDistIsCurrent builds the pages from their sources, and compares.
func TestDistIsCurrent(t *testing.T) {
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
		t.Fatalf("the packages of the pages are not installed: run make deps (%v)", err)
	}
	built := t.TempDir()
	for _, command := range [][]string{
		{"node_modules/.bin/tsc", "--noEmit"},
		{"node_modules/.bin/vite", "build", "--outDir", built, "--emptyOutDir", "--logLevel", "warn"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	want, have := tree(t, built), tree(t, "dist")
	for name, text := range want {
		if have[name] != text {
			t.Errorf("dist/%s is not what the sources make: run make web", name)
		}
		delete(have, name)
	}
	for name := range have {
		t.Errorf("dist/%s is left over: run make web", name)
	}
}

func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+string(filepath.Separator))] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
