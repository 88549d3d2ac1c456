package main

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
)

// framed: no page of the gateway appears in a frame, and a click that is lured onto an approval decides nothing. Other
// ports of an address share its session storage, so these frames are signed in. A gateway without these headers shows
// that frame and click would work.
func (s *adminStage) framed() {
	bare := httptest.NewServer(s.withoutPolicies())
	s.parentTB.Cleanup(bare.Close)
	_, id := s.asked(`{"to":"Mallory"}`)
	view := "/console/approvals/" + id
	s.open(bare.URL + view)
	s.fill("Key or token", fleetToken)
	s.press("Sign in")
	s.open(s.url + view)
	s.see("Mallory")
	s.until("the button", `window.aim = [...document.querySelectorAll(".decide button")]
		.find(e => e.innerText === "Allow once")`)
	at := eval[[]float64](s.pageBrowser, `(({x, y, width, height}) =>
		[x + width / 2, y + height / 2])(aim.getBoundingClientRect())`)

	attacker := httptest.NewServer(http.HandlerFunc(serveFrames))
	s.parentTB.Cleanup(attacker.Close)
	paths := []string{
		"/console/", "/console/devices", "/console/devices/anna", "/console/devices/anna/tools/pay", "/console/tools",
		"/console/tools/time", "/console/calls", "/console/calls/x", "/console/approvals", "/console/approvals/grants",
		"/console/chat", "/console/chat/anna", "/console/access/pairing", "/console/access/devices",
		"/console/access/keys", "/console/access/policy", "/console/access/audit", "/console/access/usage",
		"/console/operate/pods", "/console/operate/checks", "/console/none", "/device", "/device/canvas", view,
	}
	for i, path := range paths {
		paths[i] = s.url + path
	}
	if shown := s.frames(attacker.URL, paths...); len(shown) > 0 { // the last one, the approval, is uppermost
		s.Errorf("framed: %q", shown)
	}
	s.clickAt(at[0], at[1])
	if state := s.approvalState(id); state != "pending" {
		s.Errorf("a click through the page of another has decided: %s", state)
	}

	if shown := s.frames(attacker.URL, bare.URL+view); len(shown) != 1 {
		s.Error("a page without a policy is not framed: this test does not see frames")
	}
	eventually(s, waitLimit, "without the policy a click decides", func() bool {
		s.clickAt(at[0], at[1])
		return s.approvalState(id) == "allowed"
	})
	s.forgiven() // what Chromium reports about the frames that it refuses
}

// withoutPolicies is the gateway with pages that any page may frame.
func (s *adminStage) withoutPolicies() http.Handler {
	gateway, err := url.Parse(s.url)
	if err != nil {
		s.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(gateway)
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Header.Del("Content-Security-Policy")
		r.Header.Del("X-Frame-Options")
		return nil
	}
	return proxy
}

// serveFrames is an attacker's page: it shows what its query names in invisible frames above a lure.
func serveFrames(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, `<body style="margin: 0">You have won.`)
	for _, framed := range r.URL.Query()["frame"] {
		fmt.Fprintf(w, `<iframe src="%s" style="position: fixed; inset: 0; width: 100%%; height: 100%%; border: 0;
			opacity: 0"></iframe>`, html.EscapeString(framed))
	}
}

// frames opens a page of the attacker with pages in its frames, and returns those that the browser shows.
func (s *adminStage) frames(attacker string, framed ...string) (shown []string) {
	s.Helper()
	s.open(attacker + "?" + url.Values{"frame": framed}.Encode())
	ctx, cancel := context.WithTimeout(s.ctx, waitLimit)
	defer cancel()
	got, err := cdp.Call(ctx, s.wire, page.GetFrameTree, cdp.Empty{})
	if err != nil || len(got.FrameTree.ChildFrames) != len(framed) {
		s.Fatalf("the frames of the attacker: %+v (%v)", got, err)
	}
	for _, child := range got.FrameTree.ChildFrames {
		switch inner := child.Frame; {
		case inner.UnreachableURL != "":
		case slices.Contains(framed, inner.URL):
			shown = append(shown, inner.URL)
		default:
			s.Fatalf("a frame has %s", inner.URL)
		}
	}
	return shown
}

func (s *adminStage) approvalState(id string) string {
	s.Helper()
	var approval struct{ State string }
	getJSON(s, s.url+"/api/approvals/"+id, &approval)
	return approval.State
}
