package auth_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// check asks an Origins about a request to host from these origins.
func check(t *testing.T, o *auth.Origins, host string, origins ...string) bool {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://placeholder/ws/chat", nil)
	r.Host = host
	for _, origin := range origins {
		r.Header.Add("Origin", origin)
	}
	err := o.Check(r)
	if err != nil && !errors.Is(err, registry.CodeForbidden) {
		t.Errorf("refused with %v", err)
	}
	return err == nil
}

func newOrigins(t *testing.T, loopbackOnly bool, allowed ...string) *auth.Origins {
	t.Helper()
	o, err := auth.NewOrigins(allowed, loopbackOnly)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOrigins(t *testing.T) {
	o := newOrigins(t, false, "https://Console.example.com", "http://dev.example:3000")
	const host = "gateway.example:8443"
	for origin, want := range map[string]bool{
		"https://console.example.com":                  true,
		"HTTPS://CONSOLE.EXAMPLE.COM":                  true, // case means nothing in either
		"http://dev.example:3000":                      true,
		"https://gateway.example:8443":                 true, // its own pages
		"http://Gateway.Example:8443":                  true,
		"https://console.example.com.evil.com":         false, // suffix tricks
		"https://evilconsole.example.com":              false,
		"https://console.example.com@evil.com":         false, // userinfo
		"https://user@gateway.example:8443":            false,
		"https://gateway.example:8443@evil.com":        false,
		"http://console.example.com":                   false, // another scheme
		"https://console.example.com:8443":             false, // another port
		"http://dev.example":                           false,
		"https://gateway.example":                      false,
		"https://gateway.example:84430":                false,
		"https://evil.com/gateway.example:8443":        false,
		"https://evil.com#gateway.example:8443":        false,
		"https://evil.com?https://console.example.com": false,
		"null":    false,
		"":        false,
		"file://": false,
		"chrome-extension://gateway.example:8443":        false,
		"//gateway.example:8443":                         false,
		"gateway.example:8443":                           false,
		"https://gateway.example:8443, https://evil.com": false,
		"%zz": false,
	} {
		if got := check(t, o, host, origin); got != want {
			t.Errorf("origin %q passes: %v, want %v", origin, got, want)
		}
	}
	if !check(t, o, host) {
		t.Error("a request without Origin comes from no page and passes")
	}
	if check(t, o, host, "https://console.example.com", "https://evil.com") {
		t.Error("two origins passed")
	}
}

func TestAnyOrigin(t *testing.T) {
	o := newOrigins(t, false, "*")
	for _, origin := range []string{"https://evil.com", "null"} {
		if !check(t, o, "gateway.example", origin) {
			t.Errorf("%s does not pass although all may", origin)
		}
	}
	// The check of the host is another one.
	if check(t, newOrigins(t, true, "*"), "evil.com", "http://evil.com") {
		t.Error("* lets foreign host names in")
	}
}

func TestNoOriginsAllowed(t *testing.T) {
	o := newOrigins(t, false)
	if check(t, o, "gateway.example", "https://console.example.com") ||
		!check(t, o, "gateway.example", "https://gateway.example") {
		t.Error("without a list only the gateway's own pages may pass")
	}
}

// A page at evil.com whose name was pointed at 127.0.0.1 is of the same origin as the gateway, as far as a browser
// can tell. Only the Host header gives it away.
func TestDNSRebinding(t *testing.T) {
	o := newOrigins(t, true)
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LocalHost:8080": true, "127.0.0.1:8080": true, "127.8.9.1": true,
		"[::1]:8080": true, "[::1]": true,
		"evil.com": false, "evil.com:8080": false, "localhost.evil.com:8080": false, "127.0.0.1.evil.com": false,
		"10.0.0.1:8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "169.254.169.254": false, "": false,
		"evil-localhost": false, "2130706433": false, "127.1": false, "localhost@evil.com": false,
	} {
		if got := check(t, o, host); got != want {
			t.Errorf("host %q passes: %v, want %v", host, got, want)
		}
		if host != "" && check(t, o, host, "http://"+host) != want {
			t.Errorf("host %q with an origin of the same name: want %v", host, want)
		}
	}
	if check(t, o, "localhost:8080", "https://evil.com") {
		t.Error("a foreign page reached localhost")
	}
}

// With a token, too, a page cannot reach the gateway under a name of its own, if the gateway's names are listed.
func TestAllowedHosts(t *testing.T) {
	o := newOrigins(t, false, "https://console.example.com")
	if err := o.AllowHosts(); err != nil || !check(t, o, "any.example") {
		t.Errorf("without names: %v", err)
	}
	if err := o.AllowHosts("Gateway.example.com", "farhand"); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"gateway.example.com": true, "GATEWAY.example.com:8443": true, "farhand:8080": true, "localhost:8080": true,
		"10.0.0.7:8080": true, "[2001:db8::1]:8080": true, // as probes name a pod
		"evil.example": false, "gateway.example.com.evil.example": false, "x.gateway.example.com": false, "": false,
		"gateway.example.com@evil.example": false, "10.0.0.7.evil.example": false,
	} {
		if got := check(t, o, host); got != want {
			t.Errorf("host %q passes: %v, want %v", host, got, want)
		}
		if host != "" && check(t, o, host, "http://"+host) != want {
			t.Errorf("host %q with an origin of the same name: want %v", host, want)
		}
	}
	for _, name := range []string{"", "*", "*.example.com", "https://a.example", "a.example:8080", "[::1]"} {
		if err := o.AllowHosts(name); !errors.Is(err, registry.CodeInvalidRequest) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestMalformedOrigins(t *testing.T) {
	for _, origin := range []string{
		"", "console.example.com", "https://", "https://a/path", "https://a/", "https://a?q", "https://u@a", "null",
		"://a", "%zz",
	} {
		if _, err := auth.NewOrigins([]string{"https://ok.example", origin}, false); err == nil {
			t.Errorf("%q was accepted", origin)
		} else if !errors.Is(err, registry.CodeInvalidRequest) {
			t.Errorf("%q: %v", origin, err)
		}
	}
}

func TestBearerHeader(t *testing.T) {
	for value, want := range map[string]string{
		"Bearer abc": "abc", "bearer abc": "abc", "BEARER abc": "abc", "Bearer  abc ": "abc", "Bearer a b": "a b",
		"": "", "Bearer": "", "Bearer ": "", "Basic abc": "", "abc": "", "Bearerabc": "", "Token Bearer abc": "",
		"Bearer,abc": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if value != "" {
			r.Header.Set("Authorization", value)
		}
		if got := auth.BearerHeader(r); got != want {
			t.Errorf("%q: token %q, want %q", value, got, want)
		}
	}
}

func TestStaticToken(t *testing.T) {
	a := auth.NewStaticToken("s3cret")
	id, err := a.Authenticate(t.Context(), nil, "s3cret")
	if err != nil || id.Tenant != registry.DefaultTenant || id.User != "" {
		t.Errorf("identity %+v, %v", id, err)
	}
	for _, wrong := range []string{"", "s3cre", "s3cret ", "S3CRET", "s3crets", "s3cret\x00"} {
		if id, err := a.Authenticate(t.Context(), nil, wrong); !errors.Is(err, registry.CodeUnauthenticated) ||
			id != (auth.Identity{}) {
			t.Errorf("%q: %+v, %v", wrong, id, err)
		}
	}
	// A gateway configured wrongly with an empty token lets nobody in, rather than everybody.
	if _, err := auth.NewStaticToken("").Authenticate(t.Context(), nil, ""); err == nil {
		t.Error("an empty token is accepted")
	}
	var log bytes.Buffer
	rotation := auth.NewRotation(auth.Sources{}, slog.New(slog.NewTextHandler(&log, nil)))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/tools?token=older", nil)
	rotating := a.Accepting([]string{"older", "oldest"}, rotation)
	for n, token := range []string{"s3cret", "older", "oldest"} {
		got, err := rotating.Authenticate(t.Context(), r, token)
		if err != nil || got.Credential != id.Credential || !got.Admin || rotation.Uses() != int64(n) {
			t.Errorf("%q: %+v, %v, %d uses", token, got, err, rotation.Uses())
		}
	}
	for _, wrong := range []string{"", "olde", "older,oldest"} {
		if _, err := rotating.Authenticate(t.Context(), r, wrong); !errors.Is(err, registry.CodeUnauthenticated) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if text := log.String(); strings.Count(text, "FARHAND_TOKEN_PREVIOUS is still used") != 2 ||
		!strings.Contains(text, "path=/api/tools source=192.0.2.1") || strings.Contains(text, "older") {
		t.Errorf("%s", text)
	}
	if id, err := (auth.Anonymous{}).Authenticate(t.Context(), nil, ""); err != nil ||
		id.Tenant != registry.DefaultTenant {
		t.Errorf("anonymous: %+v, %v", id, err)
	}
}
