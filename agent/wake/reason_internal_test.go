package wake

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// The names of a certificate are in the error for another host, also if nothing vouches for it.
func TestCausesAreShortAndClean(t *testing.T) {
	var names []string
	for i := range 90 {
		names = append(names, fmt.Sprintf("%s%d.example.com", strings.Repeat("\x1b", 2000), i))
	}
	err := x509.HostnameError{Host: "push.example.com", Certificate: &x509.Certificate{DNSNames: names}}
	for _, res := range []result{failure(err), refused(err)} {
		if text := res.logged(); len(text) > maxCause || strings.Contains(text, "\x1b") || text == "" {
			t.Errorf("%d bytes: %.100q", len(text), text)
		}
	}
}

// What a user is shown of a failed push tells nothing of the gateway's network: no address, no name server, no port.
// The operator's log does.
func TestReasonsRevealNothing(t *testing.T) {
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(tls.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nothing := "https://" + closed.Addr().String() + "/"
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(func() { close(end); silent.Close() })
	for _, c := range []struct {
		url, want string
		private   bool
	}{
		{"https://localhost:1/", reasonNotAllowed, false},
		{"https://localhost.localdomain.invalid/", reasonUnreachable, true},
		{nothing, reasonUnreachable, true},
		{strings.Replace(nothing, "https", "http", 1), reasonUnreachable, true},
		{tls.URL, reasonCertificate, true},
		{silent.URL, reasonTimeout, true},
	} {
		s, err := New(Config{
			Store: memory.New(memory.Options{}), Settings: Settings{WebhookSecret: webhookSecret},
			AllowPrivate: c.private,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(t.Context()) })
		if c.want == reasonTimeout {
			s.clients[0].Timeout = 100 * time.Millisecond
		}
		hook := registry.Wake{Kind: registry.WakeWebhook, URL: c.url}
		res := s.push(t.Context(), registry.WakeRecord{Wake: hook}, Need{})
		if res.reason != c.want || res.logged() == "" || res.outcome != Retry {
			t.Errorf("%s: %+v", c.url, res)
		}
	}
	inner := failure(errors.New("dial tcp 10.1.2.3:22: refused"))
	res := failure(&serviceError{"access token: " + inner.reason, inner.cause})
	if strings.Contains(res.reason, "10.") ||
		!strings.HasPrefix(res.reason, "access token: ") || !strings.Contains(res.logged(), "10.1.2.3") {
		t.Errorf("%+v", res)
	}
}
