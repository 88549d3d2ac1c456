package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/farhand/farhand/internal/testkit"
)

// identityProvider is an OpenID Connect provider whose person agrees to everything at once. It gives each code and each
// refresh token once.
type identityProvider struct {
	*httptest.Server
	t   testing.TB
	key *ecdsa.PrivateKey

	mu       sync.Mutex
	odd      oddities
	codes    map[string]url.Values // the request that each unused code is for
	refresh  string                // the refresh token that is valid
	renewals int
	revoked  string
	answer   string   // the last URL that a browser was sent back to
	issued   []string // all codes and tokens
}

// oddities are what the provider does wrong. The zero value: nothing.
type oddities struct {
	state, nonce, audience string           // instead of the right one
	failure                url.Values       // the answer to an authorization request
	query                  bool             // answers in the query
	token                  http.HandlerFunc // answers instead of the token endpoint
	roles                  []string         // of the person; default: admin
}

const oidcClient, oidcAudience = "farhand-console", "farhand"

const idTokenAge = time.Minute // of an ID token when it is sent, by the clock of the page

func startIdentityProvider(t testing.TB) *identityProvider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &identityProvider{t: t, key: key, codes: make(map[string]url.Values)}
	mux := http.NewServeMux()
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"revocation_endpoint": p.URL + "/revoke", "jwks_uri": p.URL + "/keys",
			"response_modes_supported":              []string{"query", "fragment"},
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.tokens)
	mux.HandleFunc("POST /revoke", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		p.mu.Lock()
		defer p.mu.Unlock()
		p.revoked = r.PostFormValue("token")
	})
	return p
}

// settings are those of a gateway whose console uses the provider.
func (p *identityProvider) settings() []string {
	return []string{
		"FARHAND_JWT_ISSUER=" + p.URL, "FARHAND_JWT_AUDIENCE=" + oidcAudience, "FARHAND_JWT_JWKS_URL=" +
			p.URL + "/keys", "FARHAND_CONSOLE_OIDC_CLIENT=" + oidcClient,
		"FARHAND_CONSOLE_OIDC_SCOPES=openid offline_access",
	}
}

// be makes the provider odd.
func (p *identityProvider) be(odd oddities) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.odd = odd
}

func (p *identityProvider) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := r.URL.Query()
	answer := url.Values{"state": asked["state"]}
	if asked.Get("client_id") != oidcClient || asked.Get("code_challenge_method") != "S256" || r.Referer() != "" {
		p.t.Errorf("asked to sign in with %v from %q", asked, r.Referer())
	}
	switch {
	case p.odd.failure != nil:
		maps.Copy(answer, p.odd.failure)
	default:
		code := p.issueLocked(rand.Text())
		p.codes[code] = asked
		answer.Set("code", code)
	}
	if p.odd.state != "" {
		answer.Set("state", p.odd.state)
	}
	mark := "#"
	if p.odd.query || asked.Get("response_mode") != "fragment" {
		mark = "?"
	}
	p.answer = asked.Get("redirect_uri") + mark + answer.Encode()
	http.Redirect(w, r, p.answer, http.StatusFound)
}

func (p *identityProvider) tokens(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	p.mu.Lock()
	defer p.mu.Unlock()
	if odd := p.odd.token; odd != nil {
		p.mu.Unlock()
		defer p.mu.Lock()
		odd(w, r)
		return
	}
	asked := url.Values{}
	switch r.PostFormValue("grant_type") {
	case "refresh_token":
		if p.refresh == "" || r.PostFormValue("refresh_token") != p.refresh {
			p.refuse(w, "The refresh token is not valid.")
			return
		}
		p.renewals++
	default:
		code := r.PostFormValue("code")
		asked = p.codes[code]
		delete(p.codes, code)
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if asked == nil || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
			asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") {
			p.refuse(w, "The code is not valid.")
			return
		}
	}
	p.refresh = p.issueLocked(rand.Text())
	nonce, audience, roles := asked.Get("nonce"), oidcAudience, []string{"admin"}
	if p.odd.nonce != "" {
		nonce = p.odd.nonce
	}
	if p.odd.audience != "" {
		audience = p.odd.audience
	}
	if p.odd.roles != nil {
		roles = p.odd.roles
	}
	answerJSON(w, http.StatusOK, map[string]any{
		"token_type": "Bearer", "expires_in": 600, "refresh_token": p.refresh,
		"access_token": p.signLocked(map[string]any{"aud": audience, "roles": roles}),
		"id_token": p.signLocked(map[string]any{
			"aud": []string{oidcClient, oidcAudience}, "azp": oidcClient, "nonce": nonce, "roles": roles,
			"iat": time.Now().Add(-idTokenAge).Unix(),
		}),
	})
}

func (p *identityProvider) refuse(w http.ResponseWriter, text string) {
	answerJSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": text})
}

func (p *identityProvider) signLocked(claims map[string]any) string {
	now := time.Now().Unix()
	all := map[string]any{"iss": p.URL, "sub": "grace", "iat": now, "exp": now + 600, "jti": rand.Text()}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == "" })
	return p.issueLocked(testkit.JWT(p.t, "ES256", p.key, nil, all))
}

// issueLocked notes a secret.
func (p *identityProvider) issueLocked(secret string) string {
	p.issued = append(p.issued, secret)
	return secret
}

func answerJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // on failure the client is gone
}
