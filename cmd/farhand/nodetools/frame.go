package nodetools

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"mime"
	"net/http"
	"time"
)

const (
	frameTimeout = 15 * time.Second // to fetch the presented page
	maxFramed    = 4 << 20          // bytes of it
	frameHead    = 64 << 10         // bytes in which its head must begin
)

// bridge runs what the canvas asks for in the presented page, in which it is the first script.
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

// framed serves the presented page with the bridge, because no browser lets the canvas run anything in a page that
// comes from elsewhere. The page has an origin that is nobody's, whatever stands in it, and its own path, which says
// nothing of the canvas's. What is no HTML, or cannot be fetched here, the browser loads itself, and nothing runs in
// it.
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

// fetch returns a page of HTML, its type, and where it was in the end.
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
		return nil, "", "", fmt.Errorf("%q is no HTML", kind)
	}
	page, err = io.ReadAll(io.LimitReader(resp.Body, maxFramed+1))
	if err == nil && len(page) > maxFramed {
		err = fmt.Errorf("the page has more than %d bytes", maxFramed)
	}
	return page, kind, resp.Request.URL.String(), err
}

// withBridge puts the bridge at the beginning of a page's head, and says where its relative links begin.
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
