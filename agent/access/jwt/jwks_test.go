package jwt_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/registry"
)

// withURL takes keys from an issuer only.
func withURL(s *issuerServer) func(*jwt.Config) {
	return func(c *jwt.Config) { c.Secret, c.KeySetURL = "", s.URL }
}

// Keys are rotated: a token of a new key is accepted at once, and one of a key that was withdrawn no longer, also if it
// was accepted before.
func TestRotation(t *testing.T) {
	c, s := newClock(), makeSigners()
	issuer := newIssuer(t, published("old", &s.rsa.PublicKey))
	v := open(t, c, withURL(issuer))
	old := sign(t, "RS256", s.rsa, map[string]any{"kid": "old"}, c.claims(nil))
	fresh := sign(t, "RS256", s.otherRSA, map[string]any{"kid": "new"}, c.claims(nil))
	if _, err := authenticate(t, v, old); err != nil {
		t.Fatal(err)
	}
	if _, err := authenticate(t, v, fresh); !errors.Is(err, registry.CodeUnauthenticated) {
		t.Fatalf("a key nobody published: %v", err)
	}
	issuer.publish(published("new", &s.otherRSA.PublicKey))
	c.move(jwt.DefaultRetry)
	if _, err := authenticate(t, v, fresh); err != nil {
		t.Errorf("the new key: %v", err)
	}
	if _, err := authenticate(t, v, old); !errors.Is(err, registry.CodeUnauthenticated) {
		t.Errorf("the withdrawn key: %v", err)
	}
	if n := issuer.fetches.Load(); n != 2 {
		t.Errorf("%d fetches", n)
	}
}

// Whoever makes up keys costs one fetch for each interval, however many ask at once.
func TestUnknownKeysAreFetchedSeldom(t *testing.T) {
	c, s := newClock(), makeSigners()
	issuer := newIssuer(t, published("k", &s.rsa.PublicKey))
	v := open(t, c, withURL(issuer))
	good := sign(t, "RS256", s.rsa, map[string]any{"kid": "k"}, c.claims(nil))
	for interval := range int64(3) {
		var asking sync.WaitGroup
		for i := range 50 {
			asking.Go(func() {
				kid := fmt.Sprintf("made-up-%d-%d", interval, i)
				token := sign(t, "RS256", s.otherRSA, map[string]any{"kid": kid}, c.claims(nil))
				if _, err := v.Authenticate(t.Context(), nil, token); !errors.Is(err, registry.CodeUnauthenticated) {
					t.Errorf("a made-up key: %v", err)
				}
			})
		}
		asking.Wait()
		if n := issuer.fetches.Load(); n != interval+1 {
			t.Errorf("interval %d: %d fetches", interval, n)
		}
		if _, err := authenticate(t, v, good); err != nil {
			t.Errorf("the right key meanwhile: %v", err)
		}
		c.move(jwt.DefaultRetry)
	}
}

// An issuer that is away, answers nonsense, or too much leaves the keys in place, for a while.
func TestStaleKeys(t *testing.T) {
	s := makeSigners()
	for name, broken := range map[string]http.HandlerFunc{
		"error":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"nonsense": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"no keys":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"keys":[]}`) },
		"too many": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":[`+strings.Repeat("{},", 64)+`{}]}`)
		},
		"too long": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":[],"x":"`+strings.Repeat("x", 600<<10)+`"}`)
		},
		"elsewhere": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			issuer := newIssuer(t, published("k", &s.rsa.PublicKey))
			v := open(t, c, withURL(issuer))
			token := func() string {
				return sign(t, "RS256", s.rsa, map[string]any{"kid": "k"}, c.claims(nil))
			}
			if _, err := authenticate(t, v, token()); err != nil {
				t.Fatal(err)
			}
			issuer.handle(broken)
			other := sign(t, "RS256", s.otherRSA, map[string]any{"kid": "other"}, c.claims(nil))
			c.move(jwt.DefaultRefresh + jwt.DefaultKeepStale)
			_, err := authenticate(t, v, other) // which waits for the fetch that fails
			if !errors.Is(err, registry.CodeUnauthenticated) {
				t.Errorf("an unknown key: %v", err)
			}
			if _, err := authenticate(t, v, token()); err != nil {
				t.Errorf("a stale key: %v", err)
			}
			c.move(time.Second)
			if _, err := authenticate(t, v, token()); !errors.Is(err, registry.CodeStoreUnavailable) ||
				registry.AsError(err).RetryAfter <= 0 {
				t.Errorf("a key that is too old: %v", err)
			}
			issuer.publish(published("k", &s.rsa.PublicKey))
			c.move(jwt.DefaultRetry)
			if _, err := authenticate(t, v, token()); err != nil {
				t.Errorf("after the issuer has come back: %v", err)
			}
		})
	}
}

// An issuer that does not answer holds up nobody who closes, and nobody whose token it has nothing to say about.
func TestSlowIssuer(t *testing.T) {
	c, s := newClock(), makeSigners()
	release := make(chan struct{})
	issuer := newIssuer(t)
	t.Cleanup(func() { close(release) })
	issuer.handle(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	v := open(t, c, func(cfg *jwt.Config) { cfg.KeySetURL = issuer.URL })
	if _, err := authenticate(t, v, sign(t, "HS256", secret, nil, c.claims(nil))); err != nil {
		t.Errorf("the shared secret: %v", err)
	}
	waiting := make(chan error)
	go func() {
		_, err := v.Authenticate(t.Context(), nil, sign(t, "RS256", s.rsa, nil, c.claims(nil)))
		waiting <- err
	}()
	v.Close()
	if err := <-waiting; !errors.Is(err, registry.CodeStoreUnavailable) {
		t.Errorf("whoever waited: %v", err)
	}
}

// Keys for other purposes are left out of a set; what is logged has no key in it.
func TestKeysOfNoUse(t *testing.T) {
	c, s := newClock(), makeSigners()
	issuer := newIssuer(t, published("p384", &s.ec384.PublicKey), published("secret", secret),
		published("private", s.otherRSA), jose.JSONWebKey{KeyID: "enc", Key: &s.otherRSA.PublicKey, Use: "enc"},
		jose.JSONWebKey{KeyID: "ps", Key: &s.otherRSA.PublicKey, Algorithm: "PS256"},
		published("good", &s.rsa.PublicKey))
	var log bytes.Buffer
	v := open(t, c, func(cfg *jwt.Config) {
		withURL(issuer)(cfg)
		cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	if _, err := authenticate(t, v, sign(t, "RS256", s.rsa, map[string]any{"kid": "good"},
		c.claims(nil))); err != nil {
		t.Errorf("the good key: %v", err)
	}
	for kid, token := range map[string]string{
		"p384":    sign(t, "ES384", s.ec384, map[string]any{"kid": "p384"}, c.claims(nil)),
		"secret":  sign(t, "HS256", secret, map[string]any{"kid": "secret"}, c.claims(nil)),
		"private": sign(t, "RS256", s.otherRSA, map[string]any{"kid": "private"}, c.claims(nil)),
		"enc":     sign(t, "RS256", s.otherRSA, map[string]any{"kid": "enc"}, c.claims(nil)),
		"ps":      sign(t, "PS256", s.otherRSA, map[string]any{"kid": "ps"}, c.claims(nil)),
		"no kid":  sign(t, "RS256", s.otherRSA, nil, c.claims(nil)),
	} {
		if _, err := authenticate(t, v, token); !errors.Is(err, registry.CodeUnauthenticated) {
			t.Errorf("%s: %v", kid, err)
		}
	}
	v.Close() // so that nothing is logged any more
	if text := log.String(); !strings.Contains(text, "keys cannot be used") || strings.Contains(text, encode(secret)) {
		t.Errorf("log: %s", text)
	}
}

// An issuer cannot fill memory with a header, nor have the gateway answer HTTP/2 pings between two fetches.
func TestHeadersOfAnIssuerAreBounded(t *testing.T) {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{published("k", &makeSigners().rsa.PublicKey)}}
	keys, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"short": true, "long": false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range 4 {
				if name == "long" {
					w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 32<<10))
				}
			}
			_, _ = w.Write(keys)
		}))
		t.Cleanup(s.Close)
		n, err := jwt.Probe(t.Context(), jwt.Settings{Issuer: issuer, Audience: audience, KeySetURL: s.URL}, false)
		if (err == nil && n == 1) != want {
			t.Errorf("%s headers: %d keys, %v", name, n, err)
		}
	}
}
