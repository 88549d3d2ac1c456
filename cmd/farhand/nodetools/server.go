// Package nodetools implements the conventional commands of a node (docs/devices.md). `farhand device --simulate`
// offers them on a laptop, to try the gateway's tools nodes, node-invoke and canvas. It has no camera and does not
// record the screen: pictures are generated, and say so. Start reading at Tools in tools.go.
package nodetools

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/procgroup"
)

//go:embed page.html page.js
var pageFiles embed.FS

// pageHeaders sets the headers of every answer. The page may run the scripts that eval sends, and can reach only this
// server, besides the frame it shows. It sends no Referer.
func pageHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self' 'unsafe-eval'; connect-src 'self'; "+
		"style-src 'unsafe-inline'; img-src data:; frame-src http: https:; base-uri 'none'; form-action 'none'; "+
		"frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

const (
	headerTimeout = 5 * time.Second
	pageWrite     = 10 * time.Second // to write one event
	keepAlive     = 15 * time.Second
)

// Listen opens a loopback port for the page. The URL is for the person at this machine only.
func (c *Canvas) Listen() (l net.Listener, url string, err error) {
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, "", fmt.Errorf("open a port for the canvas: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.address = l.Addr().String()
	return l, fmt.Sprintf("http://%s/%s/", l.Addr(), c.token), nil
}

// openPath is the path of tickets.
const openPath = "/open/"

// Serve serves the page until ctx ends.
func (c *Canvas) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: c.handler(l.Addr().String()), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler serves requests with the token, from this machine, and under its own address. So it rejects the page of
// another site whose name was changed to resolve to 127.0.0.1 (DNS rebinding).
func (c *Canvas) handler(host string) http.Handler {
	mux := http.NewServeMux()
	at := "/" + c.token + "/"
	mux.HandleFunc("GET "+at+"{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, pageFiles, "page.html")
	})
	mux.HandleFunc("GET "+openPath+"{ticket}", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !c.takeTicket(r.PathValue("ticket")) {
			http.Error(w, "this address opens the canvas once", http.StatusNotFound)
			return
		}
		http.Redirect(w, r, at, http.StatusSeeOther)
	})
	mux.HandleFunc("GET "+at+"page.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, pageFiles, "page.js")
	})
	mux.HandleFunc("GET "+at+"frame", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "/"+c.frame+"/") // the page asks again if it did not get it
	})
	mux.HandleFunc("GET /"+c.frame+"/{$}", c.framed)
	mux.HandleFunc("GET "+at+"events", c.events)
	mux.HandleFunc("POST "+at+"value", c.takeValue)
	sameOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pageHeaders(w.Header())
		if r.Host != host {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		sameOrigin.ServeHTTP(w, r)
	})
}

// events sends the page what to show, as server-sent events.
func (c *Canvas) events(w http.ResponseWriter, r *http.Request) {
	page := c.opened()
	defer c.closed(page)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		text := []byte(": still here\n\n")
		select {
		case e, open := <-page:
			if !open {
				return
			}
			data, err := json.Marshal(e.data)
			if err != nil {
				return
			}
			text = fmt.Appendf(nil, "event: %s\ndata: %s\n\n", e.kind, data)
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(pageWrite)) // on failure the write returns an error
		if _, err := w.Write(text); err != nil || out.Flush() != nil {
			return
		}
	}
}

func (c *Canvas) takeValue(w http.ResponseWriter, r *http.Request) {
	var v value
	body := http.MaxBytesReader(w, r.Body, 4*maxValue)
	if err := json.NewDecoder(body).Decode(&v); err != nil {
		http.Error(w, "invalid value", http.StatusBadRequest)
		return
	}
	if !c.answered(v) {
		http.Error(w, "no eval waits for this value", http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

const (
	frameTimeout = 15 * time.Second // to fetch the presented page
	maxFramed    = 4 << 20          // bytes of it
	frameHead    = 64 << 10         // bytes in which its head must begin
)

// bridge evaluates the canvas's scripts in the presented page. It is the first script of that page.
const bridge = `<script>
addEventListener("message", async (e) => {
  if (e.source !== parent || typeof e.data?.code !== "string") return
  const { id, code } = e.data
  try {
    const value = await (0, eval)(code)
    parent.postMessage({ id, ok: true, value: JSON.stringify(value) ?? JSON.stringify(String(value)) }, "*")
  } catch (err) {
    parent.postMessage({ id, ok: false, value: String(err) }, "*")
  }
})
parent.postMessage({ ready: true }, "*")
</script>`

// framed serves the presented page with the bridge, because browsers let the canvas run nothing in a page from
// elsewhere. The page has an opaque origin, whatever it contains, and a path of its own, which does not reveal the
// canvas's token. The browser itself loads what is not HTML or cannot be fetched here; nothing runs in it.
func (c *Canvas) framed(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	address := c.shown.URL
	c.mu.Unlock()
	if address == "" {
		http.Error(w, "nothing is presented", http.StatusNotFound)
		return
	}
	transport := c.urls.Transport(frameTimeout)
	defer transport.CloseIdleConnections()
	page, kind, base, err := fetch(r, &http.Client{Transport: transport, Timeout: frameTimeout}, address)
	if err != nil {
		http.Redirect(w, r, address, http.StatusFound)
		return
	}
	w.Header().Set("Content-Security-Policy", "sandbox allow-scripts allow-forms")
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(withBridge(page, base)) // the browser asks again if it did not get it
}

// fetch returns an HTML page, its content type, and its address after redirects.
func fetch(r *http.Request, client *http.Client, address string) (page []byte, kind, base string, err error) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, address, nil)
	if err != nil {
		return nil, "", "", err
	}
	req.Header.Set("User-Agent", r.UserAgent())
	req.Header.Set("Accept-Language", r.Header.Get("Accept-Language"))
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", "", err
	}
	defer resp.Body.Close()
	kind = resp.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(kind); media != "text/html" {
		return nil, "", "", fmt.Errorf("%q is not HTML", kind)
	}
	page, err = io.ReadAll(io.LimitReader(resp.Body, maxFramed+1))
	if err == nil && len(page) > maxFramed {
		err = fmt.Errorf("the page has more than %d bytes", maxFramed)
	}
	return page, kind, resp.Request.URL.String(), err
}

// withBridge inserts the bridge at the beginning of a page's head, and sets the base of its relative links.
func withBridge(page []byte, base string) []byte {
	begin := bytes.ToLower(page[:min(len(page), frameHead)])
	at := 0
	for _, tag := range []string{"<!doctype", "<html", "<head"} {
		i := bytes.Index(begin[at:], []byte(tag))
		if i < 0 || tag == "<head" && bytes.HasPrefix(begin[at+i:], []byte("<header")) {
			continue
		}
		if end := bytes.IndexByte(begin[at+i:], '>'); end >= 0 {
			at += i + end + 1
		}
	}
	added := bridge
	if !bytes.Contains(begin, []byte("<base")) {
		added = `<base href="` + html.EscapeString(base) + `">` + bridge
	}
	return append(append(bytes.Clone(page[:at]), added...), page[at:]...)
}

const (
	maxOutput = 64 << 10 // bytes kept of each stream
	endWait   = time.Second
)

// Ran is the result of the tool run.
type Ran struct {
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	Cut      bool   `json:"cut"` // output beyond the limit was dropped
	Millis   int64  `json:"duration_ms"`
}

// runCommand runs a command of the system's shell as Run does.
func runCommand(ctx context.Context, command string) (any, error) {
	if runtime.GOOS == "windows" {
		return Run(ctx, exec.CommandContext(ctx, "cmd", "/c", command))
	}
	return Run(ctx, exec.CommandContext(ctx, "sh", "-c", command))
}

// Run runs a command, whose context is ctx, until it or ctx ends. It keeps the first 64 KiB of each of its streams.
// Processes that it started end with it, unless they have left its process group.
func Run(ctx context.Context, cmd *exec.Cmd) (any, error) {
	var stdout, stderr head
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, endWait
	began := time.Now()
	group, err := procgroup.Start(cmd)
	if err != nil {
		return nil, err
	}
	err = group.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return Ran{
		ExitCode: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String(),
		Cut: stdout.cut || stderr.cut, Millis: time.Since(began).Milliseconds(),
	}, nil
}

// head keeps the first bytes that are written to it.
type head struct {
	mu  sync.Mutex
	buf bytes.Buffer
	cut bool
}

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := min(maxOutput-h.buf.Len(), len(p))
	h.cut = h.cut || room < len(p)
	h.buf.Write(p[:room])
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}
