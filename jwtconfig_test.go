package farhand_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/internal/testkit"
)

// signed returns a JSON Web Token with a secret.
func signed(t *testing.T, secret string, claims map[string]any) string {
	t.Helper()
	return testkit.JWT(t, "HS256", []byte(secret), nil, claims)
}

// With a key for JSON Web Tokens the gateway takes them beside the one token, and nobody is let in without either, also
// not on this machine.
func TestJSONWebTokens(t *testing.T) {
	t.Parallel()
	const secret, token = "0123456789abcdef0123456789abcdef", "a-token-of-one-person"
	jwtSettings := jwt.Settings{Issuer: "issuer", Audience: "farhand", Secret: secret}
	claims := map[string]any{
		"iss": "issuer", "aud": "farhand", "sub": "ann", "roles": "caller", "exp": time.Now().Add(time.Hour).Unix(),
	}
	good, foreign := signed(t, secret, claims), ""
	claims["aud"] = "another"
	foreign = signed(t, secret, claims)
	for name, tc := range map[string]struct {
		cfg  farhand.Config
		want map[string]int
	}{
		"alone": {farhand.Config{JWT: jwtSettings}, map[string]int{
			good: http.StatusOK, foreign: http.StatusUnauthorized, "": http.StatusUnauthorized,
			token: http.StatusUnauthorized,
		}},
		"beside the token": {farhand.Config{JWT: jwtSettings, Token: token}, map[string]int{
			good: http.StatusOK, foreign: http.StatusUnauthorized, "": http.StatusUnauthorized, token: http.StatusOK,
		}},
	} {
		url := start(t, tc.cfg)
		for credential, want := range tc.want {
			if got, body := send(t, url+"/api/tools", "", credential); got != want {
				t.Errorf("%s: %.20q: status %d, want %d: %s", name, credential, got, want, body)
			} else if want != http.StatusOK && strings.Contains(body, "audience") {
				t.Errorf("%s: the client is told why: %s", name, body)
			}
		}
	}
}

func TestJWTSettings(t *testing.T) {
	t.Parallel()
	const withProvider = "FARHAND_CONSOLE_OIDC_CLIENT=c FARHAND_JWT_AUDIENCE=a " +
		"FARHAND_JWT_JWKS_URL=https://id.example FARHAND_JWT_ISSUER="
	for _, tc := range []struct{ environment, wrong string }{
		{"FARHAND_JWT_ISSUER=i", "FARHAND_JWT_ISSUER"},
		{"FARHAND_JWT_SECRET=0123456789abcdef0123456789abcdef", "FARHAND_JWT_AUDIENCE"},
		{"FARHAND_JWT_ISSUER=i FARHAND_JWT_AUDIENCE=a FARHAND_JWT_SECRET=short", "FARHAND_JWT_SECRET"},
		{"FARHAND_JWT_ISSUER=i FARHAND_JWT_AUDIENCE=a FARHAND_JWT_JWKS_URL=http://id.example", "FARHAND_JWT_JWKS_URL"},
		{"FARHAND_JWT_ISSUER=i FARHAND_JWT_AUDIENCE=a FARHAND_JWT_JWKS_URL=https://id.example FARHAND_TOKEN=a.b.c",
			"FARHAND_TOKEN"},
		{"FARHAND_JWT_ISSUER=i FARHAND_JWT_AUDIENCE=a FARHAND_JWT_JWKS_URL=https://id.example " +
			"FARHAND_ADDR=0.0.0.0:8080", ""},
		{"FARHAND_CONSOLE_OIDC_CLIENT=c", "FARHAND_CONSOLE_OIDC_CLIENT"},
		{withProvider + "i", "FARHAND_JWT_ISSUER"},
		{withProvider + "http://id.example", "FARHAND_JWT_ISSUER"},
		{withProvider + "https://id.example FARHAND_CONSOLE=off", "FARHAND_CONSOLE_OIDC_CLIENT"},
		{withProvider + "https://id.example FARHAND_CONSOLE_OIDC_SCOPES=profile", "FARHAND_CONSOLE_OIDC_SCOPES"},
		{withProvider + "https://id.example/realms/a", ""},
	} {
		_, err := farhand.LoadConfig(strings.Fields(tc.environment))
		if tc.wrong == "" && err != nil || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%s: %v", tc.environment, err)
		}
	}
}

// The console uses the token that the gateway accepts: the ID token if the audience is its client, else the access
// token. A provider that is away does not keep the gateway from starting.
func TestSignInSettings(t *testing.T) {
	t.Parallel()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		self := "http://" + r.Host
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q}`, self, self+"/a", self+"/t")
	}))
	t.Cleanup(provider.Close)
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	for _, tc := range []struct {
		issuer, audience string
		status           int
		has              string
	}{
		{provider.URL, "console", http.StatusOK, `"token":"id_token"`},
		{provider.URL, "farhand", http.StatusOK, `"token":"access_token"`},
		{away.URL, "farhand", http.StatusServiceUnavailable, "identity provider cannot be reached"},
	} {
		url := start(t, farhand.Config{ConsoleClient: "console", JWT: jwt.Settings{
			Issuer: tc.issuer, Audience: tc.audience, Secret: "0123456789abcdef0123456789abcdef",
		}})
		if got, body := send(t, url+"/sign-in", "", ""); got != tc.status || !strings.Contains(body, tc.has) {
			t.Errorf("%s: %d %s", tc.audience, got, body)
		}
	}
}
