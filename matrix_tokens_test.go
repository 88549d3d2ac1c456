package farhand_test

import (
	"net/http"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// matrixSecret is what JSON Web Tokens are signed with.
const matrixSecret = "a-secret-of-an-issuer-0123456789-"

// tokenOf returns the credential of an actor, always the same. Admins name no user, as whoever has the one token.
func (w *world) tokenOf(actor, user, tenant string) string {
	w.Helper()
	name := strings.Join([]string{actor, user, tenant}, "/")
	if actor != "nobody" && w.tokens[name] == "" {
		w.tokens[name] = w.newToken(actor, user, tenant)
	}
	return w.tokens[name]
}

// newToken makes a credential that is good, unless its actor is one that has ended.
func (w *world) newToken(actor, user, tenant string) string {
	w.Helper()
	life := time.Hour
	switch actor {
	case "admin":
		return makeKey(w.T, w.url, `{"roles":["admin"],"tenant":"`+tenant+`"}`).Key
	case "operator":
		return makeKey(w.T, w.url, `{"roles":["operator"]}`).Key
	case "device", "caller":
		return makeKey(w.T, w.url, `{"roles":["`+actor+`"],"user_id":"`+user+`","tenant":"`+tenant+`"}`).Key
	case "expired":
		k := makeKey(w.T, w.url, `{"roles":["admin"],"user_id":"`+user+`","tenant":"`+tenant+`","expires_in":1}`)
		return w.until(k.Key, func() {})
	case "revoked":
		k := makeKey(w.T, w.url, `{"roles":["admin"],"user_id":"`+user+`","tenant":"`+tenant+`"}`)
		return w.until(k.Key, func() { remove(w.T, w.url+"/api/keys/"+k.ID, w.tokenOf("admin", "", tenant)) })
	case "expired token":
		life = -time.Hour
	}
	token := signed(w.T, matrixSecret, map[string]any{
		"iss": "issuer", "aud": "farhand", "sub": user, "tenant": tenant, "roles": "approver", "jti": "jti of " + actor,
		"iat": time.Now().Add(-2 * time.Hour).Unix(), "exp": time.Now().Add(life).Unix(),
	})
	if actor == "revoked token" {
		w.until(token, func() {
			send(w.T, w.url+"/api/revocations", `{"jti":"jti of revoked token"}`, w.tokenOf("admin", "", tenant))
		})
	}
	return token
}

// until returns a token that is good, and is not some time after end.
func (w *world) until(token string, end func()) string {
	w.Helper()
	if status, text := send(w.T, w.url+"/api/devices", "", token); status != http.StatusOK {
		w.Fatalf("what is to end is no good before: %d %s", status, text)
	}
	end()
	testkit.Eventually(w.T, "it is no good any more", func() bool {
		status, _ := send(w.T, w.url+"/api/devices", "", token)
		return status == http.StatusUnauthorized
	})
	return token
}
