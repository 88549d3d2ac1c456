package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
)

const (
	deepView    = "/console/calls?state=failed"
	isDeepView  = `location.pathname + location.search + location.hash === "` + deepView + `"`
	impatient   = `const timeout = AbortSignal.timeout; AbortSignal.timeout = () => timeout.call(AbortSignal, 50)`
	oidcRenewal = `sessionStorage["farhand.oidc"]`
)

// signInElsewhere signs in with an identity provider, and out again.
func (s *consoleStage) signInElsewhere() {
	s.press("Sign out")
	s.see("Sign in with " + strings.TrimPrefix(s.provider.URL, "http://"))
	s.accessible("sign-in with a provider")
	s.picture("signin-provider-1280-light")
	s.withProvider(oddities{})
	s.see("grace", "Operate", "No call matches")
	s.until("the view of before", isDeepView)
	s.open(s.url + "/console/sign-in?code=of-a-stranger")
	s.see("grace", "No device is connected")
	s.busyProvider()
	s.refreshes()
	s.partIsGone()
	s.rejectedLate()
	s.press("Sign out")
	s.gone("grace")
	eventually(s, waitLimit, "the refresh token is revoked", func() bool {
		s.provider.mu.Lock()
		defer s.provider.mu.Unlock()
		return s.provider.revoked == s.provider.refresh
	})
	if left := eval[int](s.pageBrowser, `Object.keys(sessionStorage).length`); left > 0 {
		s.Errorf("%d things are left in the tab", left)
	}
	s.oddProviders()
	s.replayedCode()
	s.idToken()
	s.signInEnds()
	s.nothingLeaked()
	s.fill("Key or token", fleetToken)
	s.press("Sign in")
	s.see("Operate")
	s.open(s.url + "/console/")
	s.see("No device is connected")
}

// withProvider opens a view without a credential, and signs in with a provider that may be odd.
func (s *consoleStage) withProvider(odd oddities) {
	s.Helper()
	s.provider.be(odd)
	s.open(s.url + deepView)
	s.press("Sign in with " + strings.TrimPrefix(s.provider.URL, "http://"))
}

// refreshes renews the token before it ends, once for all requests, with a refresh token that changes.
func (s *consoleStage) refreshes() {
	for n := 1; n <= 2; n++ {
		before := eval[string](s.pageBrowser, `(() => {
			`+oidcRenewal+` = JSON.stringify({...JSON.parse(`+oidcRenewal+`), renew: 0});
			return sessionStorage["farhand.token"];
		})()`)
		s.press("Access")
		s.until("a new token", `sessionStorage["farhand.token"] !== `+quoted(before))
		s.press("Operate")
		s.see("Pods")
		s.provider.mu.Lock()
		if s.provider.renewals != n {
			s.Errorf("renewed %d times, not %d", s.provider.renewals, n)
		}
		s.provider.mu.Unlock()
	}
}

// busyProvider refuses a renewal for now. The token is still good, so the person stays signed in.
func (s *consoleStage) busyProvider() {
	s.provider.be(oddities{token: func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusTooManyRequests, map[string]any{"error": "temporarily_unavailable"})
	}})
	eval[string](s.pageBrowser, oidcRenewal+` = JSON.stringify({...JSON.parse(`+oidcRenewal+`), renew: 0})`)
	s.press("Access")
	s.until("a later try", `JSON.parse(`+oidcRenewal+` ?? "{}").renew > Date.now()`)
	s.see("grace")
	s.provider.be(oddities{})
}

// partIsGone: an update of the gateway has removed the part of the page that renews tokens. The person stays signed in
// while the token is good.
func (s *consoleStage) partIsGone() {
	s.openAgain() // nothing of it is loaded
	s.see("grace", "Pods")
	block := func(patterns ...*network.BlockPattern) {
		tellBrowser(s.pageBrowser, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: patterns})
	}
	block(&network.BlockPattern{URLPattern: s.url + "/assets/oidc-*", Block: true})
	eval[string](s.pageBrowser, oidcRenewal+` = JSON.stringify({...JSON.parse(`+oidcRenewal+`), renew: 0})`)
	s.press("Access")
	s.until("a later try", `JSON.parse(`+oidcRenewal+` ?? "{}").renew > Date.now()`)
	s.see("grace", "Pairing")
	if !eval[bool](s.pageBrowser, `"farhand.reloaded" in sessionStorage && delete sessionStorage["farhand.reloaded"]`) {
		s.Error("the page was not loaded again")
	}
	block()
	s.press("Operate")
	s.see("Pods")
}

// rejectedLate lets the gateway reject a token after the page has got the next. That one stays.
func (s *consoleStage) rejectedLate() {
	eval[bool](s.pageBrowser, `(() => {
		const {fetch} = window, token = sessionStorage["farhand.token"];
		sessionStorage["farhand.token"] = "the-one-before";
		window.fetch = async (...request) => {
			window.fetch = fetch;
			const answer = await fetch(...request);
			sessionStorage["farhand.token"] = token;
			window.late = answer.status;
			return answer;
		};
		return true;
	})()`)
	s.press("Access")
	s.until("the late answer", `window.late === 401`)
	s.press("Operate")
	s.see("grace", "Pods")
}

func (s *consoleStage) oddProviders() {
	const invalid = "is not valid, or not for this sign-in"
	for _, tc := range []struct {
		odd  oddities
		want string
	}{
		{oddities{state: "another"}, invalid},
		{oddities{nonce: "another"}, invalid},
		{oddities{audience: "another-service"}, "The gateway does not accept the token"},
		{oddities{roles: []string{"baker"}}, "your account has no role here"},
		{oddities{failure: url.Values{"error": {"access_denied"}, "error_description": {nasty[0]}}},
			"says: " + nasty[0]},
		{oddities{failure: url.Values{"error": {"x"}, "error_description": {"spoofed"}}, state: "another"}, invalid},
		{oddities{token: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, nasty[1]) }}, invalid},
		{oddities{token: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }},
			invalid},
		{oddities{token: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
			"did not answer in time"},
	} {
		s.withProvider(tc.odd)
		s.see(tc.want)
		s.until("the view of before", isDeepView+` && !sessionStorage["farhand.token"]`)
	}
	s.lateProvider()
}

// lateProvider never answers. The page's patience is shortened.
func (s *consoleStage) lateProvider() {
	script := evalScript(s.pageBrowser, impatient)
	s.withProvider(oddities{token: func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // a server notices that the client has gone after it has read the body
		<-r.Context().Done()
	}})
	s.see("did not answer in time")
	tellBrowser(s.pageBrowser, page.RemoveScriptToEvaluateOnNewDocument,
		page.RemoveScriptToEvaluateOnNewDocumentParams{Identifier: script})
}

// replayedCode opens the address that a provider sent the person back to once more, with the code in its query.
func (s *consoleStage) replayedCode() {
	s.withProvider(oddities{query: true})
	s.see("grace")
	s.until("the view of before", isDeepView)
	s.press("Sign out")
	s.provider.mu.Lock()
	answer := s.provider.answer
	s.provider.mu.Unlock()
	s.open(answer)
	s.see("not for this sign-in")
	to, err := url.Parse(answer)
	if err != nil {
		s.Fatal(err)
	}
	eval[bool](s.pageBrowser, `!!(sessionStorage["farhand.oidc.pending"] = JSON.stringify({nonce: "n", view: "/console/",
		verifier: "x".repeat(43), state: `+quoted(to.Query().Get("state"))+`}))`)
	s.open(answer)
	s.see("says: The code is not valid.")
}

// wantsIDToken makes the gateway ask for an ID token, as if the console's client were its audience.
const wantsIDToken = `{
	const real = window.fetch;
	window.fetch = async (to, ...rest) => {
		const answer = await real(to, ...rest);
		if (!String(to.url ?? to).endsWith("/sign-in")) return answer;
		return new Response((await answer.text()).replace("access_token", "id_token"), answer);
	};
}`

// idToken: its life is that of its own times, whatever the clock of the page and the life of the access token.
func (s *consoleStage) idToken() {
	script := evalScript(s.pageBrowser, wantsIDToken)
	s.withProvider(oddities{})
	s.see("grace")
	left := eval[int](s.pageBrowser, `Math.round((JSON.parse(`+oidcRenewal+`).ends - Date.now()) / 1000)`)
	if life := int((600*time.Second + idTokenAge).Seconds()); left <= 600 || left > life {
		s.Errorf("the token is good for %d s of %d", left, life)
	}
	s.press("Sign out")
	tellBrowser(s.pageBrowser, page.RemoveScriptToEvaluateOnNewDocument,
		page.RemoveScriptToEvaluateOnNewDocumentParams{Identifier: script})
}

// signInEnds takes the refresh token back, and then lets a token without one end. Signing in again leads back.
func (s *consoleStage) signInEnds() {
	const token = `sessionStorage["farhand.token"]`
	for _, end := range []string{
		oidcRenewal + ` = JSON.stringify({...kept, renew: 0})`,
		oidcRenewal + ` = JSON.stringify({ends: 1}); ` + token + ` += "x"`,
	} {
		s.withProvider(oddities{})
		s.see("grace")
		s.provider.mu.Lock()
		s.provider.refresh = ""
		s.provider.mu.Unlock()
		eval[bool](s.pageBrowser, `(() => {
			const kept = JSON.parse(`+oidcRenewal+`);
			`+end+`;
			return true;
		})()`)
		s.fill("Tool", "status")
		s.see("Your sign-in has ended")
		s.press("Sign in with " + strings.TrimPrefix(s.provider.URL, "http://"))
		s.see("grace")
		s.until("the view of before", `location.search.includes("tool=status")`)
		s.press("Sign out")
	}
}

// nothingLeaked looks for all codes and tokens where they must not be.
func (s *consoleStage) nothingLeaked() {
	history, err := cdp.Call(s.ctx, s.wire, page.GetNavigationHistory, cdp.Empty{})
	if err != nil {
		s.Fatal(err)
	}
	places := []string{eval[string](s.pageBrowser, `[location.href, document.referrer, document.cookie,
		...Object.values(localStorage), ...performance.getEntriesByType("resource").map(e => e.name)].join(" ")`)}
	for _, entry := range history.Entries {
		places = append(places, entry.URL)
	}
	for _, p := range s.pods {
		places = append(places, p.out.String())
	}
	s.provider.mu.Lock()
	defer s.provider.mu.Unlock()
	for _, secret := range s.provider.issued {
		for _, place := range places {
			if strings.Contains(place, secret) {
				s.Errorf("a code or token stands in %.300q", place)
			}
		}
	}
	if len(s.provider.issued) < 30 {
		s.Errorf("only %d codes and tokens", len(s.provider.issued))
	}
}

// evalScript makes all pages run a script first.
func evalScript(b *pageBrowser, source string) page.ScriptIdentifier {
	b.Helper()
	made, err := cdp.Call(b.ctx, b.wire, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: source})
	if err != nil {
		b.Fatal(err)
	}
	return made.Identifier
}
