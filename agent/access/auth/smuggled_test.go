package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/farhand/farhand/registry"
)

// guesses returns how many of n wrong tokens were refused as such, before their source was told to wait. form changes
// the i-th request.
func guesses(t *testing.T, f *Refusals, n int, form func(i int, r *http.Request)) (refused int) {
	t.Helper()
	wrong := registry.Errorf(registry.CodeUnauthenticated, "A valid bearer token is required.")
	for i := range n {
		r := httptest.NewRequest(http.MethodGet, "/api/tools", nil)
		form(i, r)
		if err := f.Token(r, fmt.Sprintf("guess-%d", i), wrong); !errors.Is(err, registry.CodeRateLimited) {
			refused++
		}
	}
	return refused
}

// Whoever guesses tokens is one source, whatever it writes about its address: into X-Forwarded-For, once or several
// times, or into the headers that other proxies know; with another address of its own network of IPv6; as IPv4 in
// IPv6; by another port; with another token each time. Others are not held responsible for it.
func TestASmuggledClientAddress(t *testing.T) {
	t.Parallel()
	const attempts = 1000
	proxied := func(appended string, r *http.Request) { // what a trusted proxy in front of the gateway sends
		r.RemoteAddr = "10.0.0.1:4711"
		r.Header.Add("X-Forwarded-For", appended)
	}
	for name, form := range map[string]func(i int, r *http.Request){
		"a header of a peer that is no proxy": func(i int, r *http.Request) {
			r.RemoteAddr = "192.0.2.1:99"
			r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", i/256, i%256))
		},
		"a list before what the proxy adds": func(i int, r *http.Request) {
			proxied(fmt.Sprintf("198.51.%d.%d, 203.0.113.7", i/256, i%256), r)
		},
		"a second header before that of the proxy": func(i int, r *http.Request) {
			r.Header.Add("X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", i/256, i%256))
			proxied("203.0.113.7", r)
		},
		"addresses of proxies before it": func(i int, r *http.Request) {
			proxied(fmt.Sprintf("198.51.%d.%d, 10.0.0.2, 203.0.113.7", i/256, i%256), r)
		},
		"nonsense before it": func(i int, r *http.Request) { proxied(fmt.Sprintf("%d\t\x00,,, 203.0.113.7", i), r) },
		"headers of other proxies": func(i int, r *http.Request) {
			address := fmt.Sprintf("198.51.%d.%d", i/256, i%256)
			for _, h := range []string{"X-Real-IP", "Forwarded", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP"} {
				r.Header.Set(h, address)
			}
			proxied("203.0.113.7", r)
		},
		"addresses of one network of IPv6": func(i int, r *http.Request) {
			r.RemoteAddr = fmt.Sprintf("[2001:db8:1:2:%x::%x]:99", i, i)
		},
		"such addresses through the proxy": func(i int, r *http.Request) {
			proxied(fmt.Sprintf("2001:db8:1:2:%x::%x", i, i), r)
		},
		"other ports, and IPv4 in IPv6": func(i int, r *http.Request) {
			port := fmt.Sprintf(":%d", i+1)
			forms := []string{"203.0.113.7", "203.0.113.7" + port, "::ffff:203.0.113.7", "[::ffff:203.0.113.7]" + port}
			proxied(forms[i%len(forms)], r)
		},
	} {
		sources, err := NewSources([]string{"10.0.0.0/8"})
		if err != nil {
			t.Fatal(err)
		}
		f := NewRefusals(sources, slog.New(slog.DiscardHandler))
		if n := guesses(t, f, attempts, form); n > attempts/4 {
			t.Errorf("%s: %d of %d guesses were not told to wait", name, n, attempts)
		}
		if n := guesses(t, f, 10, func(_ int, r *http.Request) { r.RemoteAddr = "192.0.2.99:1" }); n != 10 {
			t.Errorf("%s: somebody else is told to wait", name)
		}
	}
}

// auditNotes keeps what is noted.
type auditNotes []registry.AuditEntry

func (a *auditNotes) Note(e registry.AuditEntry) { *a = append(*a, e) }

// Wrong tokens are in the audit log: where they came from, and how many there were, not what they were. A flood leaves
// few lines.
func TestWrongTokensAreAudited(t *testing.T) {
	t.Parallel()
	f, notes := NewRefusals(Sources{}, slog.New(slog.DiscardHandler)), new(auditNotes)
	f.AuditTo(notes)
	guesses(t, f, 500, func(_ int, r *http.Request) { r.RemoteAddr = "192.0.2.1:99" })
	if n := len(*notes); n < 1 || n > 50 {
		t.Fatalf("%d lines", n)
	}
	e := (*notes)[0]
	if e.Tenant != registry.DefaultTenant || e.Action != registry.AuditLogin || e.Outcome != registry.AuditDenied ||
		e.Code != registry.CodeUnauthenticated || e.Actor.Source != "192.0.2.1" || e.Target != "/api/tools" {
		t.Errorf("%+v", e)
	}
}

// Tools that a device may not register are in the audit log of its tenant. A device that tries all the time leaves few
// lines, and keeps out none of another tenant.
func TestRefusedToolsAreAudited(t *testing.T) {
	t.Parallel()
	f, notes := NewRefusals(Sources{}, slog.New(slog.DiscardHandler)), new(auditNotes)
	f.AuditTo(notes)
	denied := registry.Errorf(registry.CodePolicyDenied, "no")
	session := registry.Session{Key: registry.Key{Tenant: "a", Session: "s1"}, DeviceID: "d1"}
	for range 500 {
		f.Tool(Identity{Tenant: "a", Credential: "device:1"}, session, "exec", denied)
	}
	n := len(*notes)
	if n < 1 || n > 50 {
		t.Fatalf("%d lines", n)
	}
	e := (*notes)[0]
	if e.Tenant != "a" || e.Action != registry.AuditRegister || e.Outcome != registry.AuditDenied || e.Tool != "exec" ||
		e.SessionID != "s1" || e.DeviceID != "d1" || e.Actor.Credential != "device:1" {
		t.Errorf("%+v", e)
	}
	f.Tool(Identity{Tenant: "b"}, session, "exec", denied)
	if len(*notes) != n+1 {
		t.Error("the line of another tenant is missing")
	}
}
