package pairing_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

// signing pairs a device that signs.
func (f *fixture) signing() (registry.Credential, auth.Identity, ed25519.PrivateKey) {
	f.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	f.must(err)
	c, id := f.pair(pairing.Request{DeviceID: "cam-1", PublicKey: public})
	return c, id, key
}

func signed(key ed25519.PrivateKey, nonce, device string) string {
	return nonce + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, pairing.SignedText(nonce, device)))
}

// A signature is sent in a header or, by a browser, in a subprotocol beside the token.
func TestSignaturesOfDevices(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, id, key := f.signing()
	nonce := func() string {
		n, err := f.Challenge(t.Context(), id, source(1))
		f.must(err)
		return n
	}
	used := signed(key, nonce(), "cam-1")
	for _, step := range []struct {
		what, path string
		header     http.Header
		want       registry.Code
	}{
		{"a header", "/ws/chat", http.Header{"Farhand-Signature": {used}}, ""},
		{"it again", "/ws/chat", http.Header{"Farhand-Signature": {used}}, registry.CodeUnauthenticated},
		{"a browser", "/ws/chat", http.Header{"Sec-Websocket-Protocol": {
			"clawseed.v1, bearer.fhd_x, signature." + signed(key, nonce(), "cam-1"),
		}}, ""},
		{"a browser, on lines", "/ws/chat", http.Header{"Sec-Websocket-Protocol": {
			"clawseed.v1", "signature." + signed(key, nonce(), "cam-1"),
		}}, ""},
		{"a browser, again", "/ws/chat", http.Header{"Sec-Websocket-Protocol": {"signature." + used}},
			registry.CodeUnauthenticated},
		{"the header counts", "/ws/chat", http.Header{
			"Farhand-Signature": {used}, "Sec-Websocket-Protocol": {"signature." + signed(key, nonce(), "cam-1")},
		}, registry.CodeUnauthenticated},
		{"none", "/ws/chat", nil, registry.CodeUnauthenticated},
		{"none is needed for a nonce", pairing.PathChallenge, nil, ""},
		{"another device", "/ws/chat", http.Header{"Farhand-Signature": {signed(key, nonce(), "cam-2")}},
			registry.CodeUnauthenticated},
		{"a made-up nonce", "/ws/chat", http.Header{"Farhand-Signature": {signed(key, "made-up-nonce-000", "cam-1")}},
			registry.CodeUnauthenticated},
		{"a short nonce", "/ws/chat", http.Header{"Farhand-Signature": {signed(key, "short", "cam-1")}},
			registry.CodeUnauthenticated},
	} {
		r := httptest.NewRequest(http.MethodGet, step.path, nil)
		r.Header = step.header
		f.want(step.what, f.Prove(t.Context(), r, c), step.want)
	}
	_, err := f.Challenge(t.Context(), auth.Identity{Tenant: tenant, Credential: "key:x"}, source(1))
	f.want("a key needs no nonce", err, registry.CodeInvalidRequest)
	plain, _ := f.pair(pairing.Request{DeviceID: "cam-2"})
	f.want("a device without a key", f.Prove(t.Context(), httptest.NewRequest(http.MethodGet, "/", nil), plain), "")
}

// Whoever has a copy of the token asks for nonces without end, from elsewhere: those of the device stay, and are good
// from any of its addresses.
func TestNoncesAreNotCrowdedOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, id, key := f.signing()
	mine, err := f.Challenge(t.Context(), id, source(1))
	f.must(err)
	for i := range 60 {
		_, err := f.Challenge(t.Context(), id, source(byte(2+i%3)))
		f.must(err)
	}
	r := httptest.NewRequest(http.MethodGet, "http://gateway/ws/chat", nil)
	r.Header.Set(pairing.HeaderSignature, signed(key, mine, "cam-1"))
	f.want("the device", f.Prove(t.Context(), r, c), "")
}

// FuzzSignature: whatever is presented in place of a signature proves nothing.
func FuzzSignature(f *testing.F) {
	f.Add("nonce.c2ln", "signature.x.y")
	f.Add("", ", signature.,signature.a.b")
	f.Fuzz(func(t *testing.T, header, protocols string) {
		s := newFixture(t)
		public, _, err := ed25519.GenerateKey(nil)
		s.must(err)
		r := httptest.NewRequest(http.MethodGet, "/ws/chat", nil)
		r.Header = http.Header{"Farhand-Signature": {header}, "Sec-Websocket-Protocol": {protocols}}
		c := registry.Credential{Tenant: tenant, ID: "k1", DeviceID: "cam-1", PublicKey: public}
		s.want("anything", s.Prove(t.Context(), r, c), registry.CodeUnauthenticated)
	})
}
