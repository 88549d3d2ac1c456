package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A console on an allowed origin can ask and read; the preflight of its browser needs no token, the request does.
func TestAllowedOriginsMayRead(t *testing.T) {
	f := newFleet(t, setup{})
	const console = "https://console.example.com"
	req, err := http.NewRequest(http.MethodOptions, f.pods[0].server.URL+"/api/tools/t/call", nil)
	f.must(err)
	req.Header.Set("Origin", console)
	req.Header.Set("Access-Control-Request-Method", "POST")
	req.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
	resp, err := f.pods[0].server.Client().Do(req)
	f.must(err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Access-Control-Allow-Origin") != console ||
		!strings.Contains(resp.Header.Get("Access-Control-Allow-Headers"), "Authorization") ||
		!strings.Contains(resp.Header.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("preflight: %d %v", resp.StatusCode, resp.Header)
	}
	r := f.send(request{path: "/api/tools", header: http.Header{"Origin": {console}}})
	if r.header.Get("Access-Control-Allow-Origin") != console || !slices.Contains(r.header.Values("Vary"), "Origin") ||
		!strings.Contains(r.header.Get("Access-Control-Expose-Headers"), "X-Farhand-Pod") ||
		r.header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("request: %v", r.header)
	}
	foreign := f.send(request{path: "/api/tools", header: http.Header{"Origin": {"https://evil.example"}}})
	if foreign.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a foreign origin may read")
	}
	if f.get("/api/tools").header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("an answer to no web page names an origin")
	}
}
