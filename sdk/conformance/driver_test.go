package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/farhand/farhand/internal/chromiumtest"
	"github.com/farhand/farhand/internal/testkit"
)

// driverVariable makes this test's program the driver of the Go SDK. It names the file that outlives the program.
const driverVariable = "FARHAND_TEST_DRIVER"

// host is a program that drives many devices, which commands and reports name.
type host struct {
	send func(t testing.TB, command []byte)

	mu   sync.Mutex
	said map[string]chan map[string]any // by device
}

func (h *host) box(device string) chan map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said[device] == nil {
		if h.said == nil {
			h.said = make(map[string]chan map[string]any)
		}
		h.said[device] = make(chan map[string]any, 4096)
	}
	return h.said[device]
}

// take keeps a report. A problem of the driver fails the test.
func (h *host) take(t testing.TB, text []byte) {
	report := map[string]any{}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Errorf("the driver wrote %q", text)
		return
	}
	if report["problem"] != nil {
		t.Errorf("the driver has a problem: %s", short(report))
	}
	device, _ := report["device"].(string)
	h.box(device) <- report
}

// hosted is one device of a host.
type hosted struct {
	host   *host
	name   string
	reopen func() // restarts the host; nil: it is shared
}

func (d *hosted) command(t *testing.T, command map[string]any) {
	t.Helper()
	command["device"] = d.name
	text, err := json.Marshal(command)
	must(t, err)
	d.host.send(t, text)
}

func (d *hosted) reports() <-chan map[string]any { return d.host.box(d.name) }

func (d *hosted) restart(t *testing.T) {
	if d.reopen == nil {
		t.Fatal("the host is shared")
	}
	d.reopen()
}

// startProgram starts a host that is a process. The returned function kills it and starts it again.
func startProgram(t testing.TB, make func() *exec.Cmd) (h *host, restart func()) {
	t.Helper()
	h = &host{}
	end := launch(t, h, make())
	t.Cleanup(func() { end() })
	return h, func() {
		end()
		end = launch(t, h, make())
	}
}

func launch(t testing.TB, h *host, cmd *exec.Cmd) (end func()) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var writing sync.Mutex
	h.send = func(t testing.TB, command []byte) {
		t.Helper()
		writing.Lock()
		defer writing.Unlock()
		if _, err := in.Write(append(command, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			h.take(t, lines.Bytes())
		}
	}()
	return sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
		if stderr.Len() > 0 {
			t.Errorf("the device's program wrote: %s", stderr.Bytes())
		}
	})
}

// openPage opens a host that is a page in Chromium. The returned function loads it again.
func openPage(t testing.TB, browser context.Context, url string) (h *host, reload func()) {
	t.Helper()
	h = &host{}
	loaded := make(chan struct{}, 16)
	tab := chromiumtest.Open(t, browser, func(text string) {
		if text == "loaded" {
			loaded <- struct{}{}
			return
		}
		h.take(t, []byte(text))
	})
	h.send = func(_ testing.TB, command []byte) { tab.Run("void command(" + string(command) + ")") }
	reload = func() {
		tab.Show(url)
		testkit.Receive(t, "the page", loaded)
	}
	reload()
	return h, reload
}

// buildSDK compiles the TypeScript SDK into a folder of its own.
func buildSDK(t *testing.T) (dist string) {
	t.Helper()
	source, err := filepath.Abs("../typescript")
	must(t, err)
	if _, err := os.Stat(filepath.Join(source, "node_modules/.package-lock.json")); err != nil {
		t.Fatal("the packages of the TypeScript SDK are missing: run make deps")
	}
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(source, "node_modules"), filepath.Join(dir, "node_modules")))
	must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600))
	dist = filepath.Join(dir, "dist")
	cmd := exec.Command("node", "node_modules/typescript/bin/tsc", "--outDir", dist)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	return dist
}

// pages serves what the page of a driver is made of.
func pages(dist string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /sdk/", http.StripPrefix("/sdk/", http.FileServer(http.Dir(dist))))
	drivers := http.StripPrefix("/drivers/", http.FileServer(http.Dir("drivers")))
	mux.HandleFunc("GET /drivers/", func(w http.ResponseWriter, r *http.Request) {
		if filepath.Ext(r.URL.Path) == ".mjs" {
			w.Header().Set("Content-Type", "text/javascript")
		}
		drivers.ServeHTTP(w, r)
	})
	return mux
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
