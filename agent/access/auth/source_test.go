package auth

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

func TestSourceOfARequest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, trusted, peer, forwarded, want string }{
		{"a peer", "", "192.0.2.1:99", "", "192.0.2.1/32"},
		{"nobody is trusted by default", "", "10.0.0.1:99", "198.51.100.7", "10.0.0.1/32"},
		{"a proxy", "10.0.0.0/8", "10.0.0.1:99", "198.51.100.7", "198.51.100.7/32"},
		{"what the client wrote itself does not count", "10.0.0.0/8", "10.0.0.1:99", "1.1.1.1, 198.51.100.7",
			"198.51.100.7/32"},
		{"several proxies", "10.0.0.0/8,203.0.113.5", "10.0.0.1:99", "1.1.1.1, 198.51.100.7, 203.0.113.5",
			"198.51.100.7/32"},
		{"a stranger that says it is a proxy", "10.0.0.0/8", "192.0.2.1:99", "198.51.100.7", "192.0.2.1/32"},
		{"a port", "10.0.0.0/8", "10.0.0.1:99", "198.51.100.7:4711", "198.51.100.7/32"},
		{"nonsense", "10.0.0.0/8", "10.0.0.1:99", "198.51.100.7, unknown", "10.0.0.1/32"},
		{"a network of IPv6", "", "[2001:db8:1:2:3::4]:99", "", "2001:db8:1:2::/64"},
		{"IPv4 in IPv6", "10.0.0.0/8", "[::ffff:10.0.0.1]:99", "198.51.100.7", "198.51.100.7/32"},
		{"no address", "", "@", "", "invalid Prefix"},
	} {
		var proxies []string
		if tc.trusted != "" {
			proxies = strings.Split(tc.trusted, ",")
		}
		s, err := NewSources(proxies)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tc.peer
		if tc.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tc.forwarded)
		}
		if got := s.Network(r).String(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	if _, err := NewSources([]string{"balancer"}); err == nil {
		t.Error("a name was taken for an address")
	}
}

// A refusal leaves a line that names the setting; many leave few; no line holds a secret.
func TestRefusalsAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := NewRefusals(Sources{}, slog.New(slog.NewTextHandler(&log, nil)))
	r := httptest.NewRequest("GET", "/ws/chat?token=geheim", nil)
	r.Header.Set("Origin", "https://app.example.com")
	r.Header.Set("Authorization", "Bearer geheim")
	unknown := registry.Errorf(registry.CodeUnauthenticated, "A valid bearer token is required.")
	limited := 0
	for range 500 {
		if err := f.Token(r, "geheim", unknown); errors.Is(err, registry.CodeRateLimited) {
			limited++
			if registry.AsError(err).RetryAfter <= 0 {
				t.Fatal("no advice when to come back")
			}
		}
		if err := f.Token(r, "", unknown); !errors.Is(err, registry.CodeUnauthenticated) {
			t.Fatalf("no token: %v", err)
		}
	}
	if limited < 300 {
		t.Errorf("%d of 500 guesses were told to wait", limited)
	}
	refused := registry.Errorf(registry.CodeForbidden, "Add it to FARHAND_ALLOWED_ORIGINS.")
	_ = f.Origin(r, refused) // other lines do not keep it out
	text := log.String()
	if n := strings.Count(text, "refused=token"); n < 5 || n > 20 {
		t.Errorf("%d lines about tokens", n)
	}
	if !strings.Contains(text, "origin=https://app.example.com") || !strings.Contains(text, "FARHAND_ALLOWED_ORIGINS") {
		t.Errorf("the origin is not told: %s", text)
	}
	if strings.Contains(text, "geheim") {
		t.Error("a token is in the log")
	}
}

func TestBucketsForget(t *testing.T) {
	t.Parallel()
	b := NewBuckets[string](Limit{Rate: 0.001, Burst: 2})
	for i := range 2 * maxBuckets {
		b.Take(fmt.Sprint(i), 1)
	}
	if n := len(b.by); n > maxBuckets {
		t.Errorf("%d are remembered", n)
	}
	if !b.Take("x", 2) || b.Take("x", 1) {
		t.Error("a bucket of two holds another number")
	}
	b.Refund("x", 1)
	if !b.Take("x", 1) || b.Take("x", 1) {
		t.Error("what is given back can be taken once")
	}
	if wait := b.Spend("x", 1); wait <= 0 {
		t.Errorf("a debt is paid in %v", wait)
	}
}

// A source that is throttled stays so, however many others come: each of them has spent less.
func TestManyKeysDoNotRefillABucket(t *testing.T) {
	t.Parallel()
	for range 8 { // otherwise luck may keep it
		b := NewBuckets[int](Limit{Rate: 0.001, Burst: 3})
		if !b.Take(-1, 3) {
			t.Fatal("a new bucket is not full")
		}
		for i := range 2 * maxBuckets {
			b.Take(i, 1+float64(i%2))
		}
		if b.Take(-1, 1) {
			t.Fatal("the throttled source may go on")
		}
		if n := len(b.by); n > maxBuckets {
			t.Fatalf("%d are remembered", n)
		}
	}
}
