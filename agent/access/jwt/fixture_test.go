package jwt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	issuer   = "https://id.example.com"
	audience = "farhand"
	shared   = "0123456789abcdef0123456789abcdef"
)

var secret = []byte(shared)

// clock is a clock that stands until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// claims are those of a good token, with changes; nil removes a claim.
func (c *clock) claims(changes map[string]any) map[string]any {
	now := c.Now().Unix()
	all := map[string]any{
		"iss": issuer, "aud": audience, "sub": "ann", "jti": "t1", "iat": now, "exp": now + 3600,
		"roles": []string{"caller"},
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func sign(t testing.TB, alg string, key any, header, claims map[string]any) string {
	t.Helper()
	return testkit.JWT(t, alg, key, header, claims)
}

// raw makes a token of a header and claims as they are written, signed with the secret.
func raw(t testing.TB, header, claims string) string {
	t.Helper()
	return testkit.SignedJWT(t, "HS256", secret, header, claims)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// fileOf returns the name of a file with a content.
func fileOf(t testing.TB, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// open returns a verifier with the secret, changed by with.
func open(t testing.TB, c *clock, with func(*jwt.Config)) *jwt.Verifier {
	t.Helper()
	cfg := jwt.Config{Settings: jwt.Settings{Issuer: issuer, Audience: audience, Secret: shared}, Now: c.Now}
	if with != nil {
		with(&cfg)
	}
	v, err := jwt.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func authenticate(t testing.TB, v *jwt.Verifier, token string) (auth.Identity, error) {
	t.Helper()
	return v.Authenticate(t.Context(), nil, token)
}

// keys of every kind, made once.
type signers struct {
	rsa, otherRSA *rsa.PrivateKey
	ec            *ecdsa.PrivateKey
	ec384         *ecdsa.PrivateKey
	ed            ed25519.PrivateKey
}

var makeSigners = sync.OnceValue(func() signers {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var s signers
	var err error
	s.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	s.otherRSA, err = rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	s.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	s.ec384, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(err)
	_, s.ed, err = ed25519.GenerateKey(rand.Reader)
	must(err)
	return s
})

func pemOf(t testing.TB, public crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// issuerServer publishes keys.
type issuerServer struct {
	*httptest.Server
	fetches atomic.Int64

	mu     sync.Mutex
	answer http.HandlerFunc
}

func newIssuer(t testing.TB, keys ...jose.JSONWebKey) *issuerServer {
	t.Helper()
	s := &issuerServer{}
	s.publish(keys...)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fetches.Add(1)
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *issuerServer) publish(keys ...jose.JSONWebKey) {
	s.handle(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: keys})
	})
}

func (s *issuerServer) handle(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = h
}

func published(kid string, public any) jose.JSONWebKey {
	return jose.JSONWebKey{KeyID: kid, Key: public}
}
