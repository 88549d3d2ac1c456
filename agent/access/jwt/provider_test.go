package jwt_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/jwt"
)

// discovered returns a provider of an issuer that says what answer writes, and the clock of both.
func discovered(t *testing.T, answer http.HandlerFunc) (*jwt.Provider, *issuerServer, *clock) {
	t.Helper()
	s, c := newIssuer(t), newClock()
	s.handle(answer)
	p, err := jwt.NewProvider(jwt.Config{
		Settings: jwt.Settings{Issuer: s.URL, Audience: audience, Secret: shared}, Now: c.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, s, c
}

// metadata writes a discovery document with changes.
func metadata(changes map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		self := "http://" + r.Host
		all := map[string]any{
			"issuer": self, "authorization_endpoint": self + "/authorize",
			"token_endpoint":      "https://tokens.example.com/x",
			"revocation_endpoint": "https://tokens.example.com/revoke",
		}
		maps.Copy(all, changes)
		_ = json.NewEncoder(w).Encode(all)
	}
}

func TestProvider(t *testing.T) {
	p, s, c := discovered(t, metadata(nil))
	m := p.Metadata(t.Context())
	if m == nil || m.Issuer != s.URL || m.TokenOrigin() != "https://tokens.example.com" || m.RevocationEndpoint == "" {
		t.Fatalf("%+v", m)
	}
	s.handle(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	c.move(jwt.DefaultRefresh)
	if p.Metadata(t.Context()) == nil {
		t.Error("forgotten while the provider is away")
	}
	if p.Metadata(t.Context()); s.fetches.Load() > 2 {
		t.Errorf("%d fetches", s.fetches.Load())
	}
	elsewhere, _, _ := discovered(t, metadata(map[string]any{"revocation_endpoint": "https://other.example.com/"}))
	if m := elsewhere.Metadata(t.Context()); m == nil || m.RevocationEndpoint != "" {
		t.Errorf("a revocation endpoint that pages cannot reach: %+v", m)
	}
}

// TestOddProviders: nothing of a provider that cannot be trusted or understood is used, and waiting for one ends.
func TestOddProviders(t *testing.T) {
	held := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"late":               func(http.ResponseWriter, *http.Request) { <-held },
		"garbage":            func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"an error":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"too long":           metadata(map[string]any{"x": strings.Repeat("x", 64<<10)}),
		"moved":              http.RedirectHandler("/other", http.StatusFound).ServeHTTP,
		"another issuer":     metadata(map[string]any{"issuer": "https://other.example.com"}),
		"no token endpoint":  metadata(map[string]any{"token_endpoint": nil}),
		"plain http":         metadata(map[string]any{"token_endpoint": "http://tokens.example.com/"}),
		"a script":           metadata(map[string]any{"authorization_endpoint": "javascript:alert(1)"}),
		"more of the policy": metadata(map[string]any{"token_endpoint": "https://a.example.com;script-src/"}),
		"any origin":         metadata(map[string]any{"token_endpoint": "https://*/"}),
	} {
		p, _, _ := discovered(t, answer)
		ctx, cancel := context.WithCancel(t.Context())
		if name == "late" {
			cancel()
		}
		if m := p.Metadata(ctx); m != nil {
			t.Errorf("%s: %+v", name, m)
		}
		cancel()
	}
	close(held)
	for _, issuer := range []string{
		"id", "http://id.example.com", "https://id.example.com?x", "https://a:b@id.example.com",
	} {
		if jwt.CheckIssuer(issuer) == nil {
			t.Errorf("%s is accepted", issuer)
		}
	}
}
