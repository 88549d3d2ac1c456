package farhand_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/jwt"
)

// A client of the MCP finds the authorization server of a gateway that knows its URL, and a token from there for that
// URL lets it in, at the URL that the token is for.
func TestPublicURL(t *testing.T) {
	t.Parallel()
	const secret, gateway = "0123456789abcdef0123456789abcdef", "https://gateway.example.com"
	url := start(t, farhand.Config{PublicURL: "https://Gateway.Example.com/", JWT: jwt.Settings{
		Issuer: "https://id.example.com", Audience: "farhand", Secret: secret, Claims: jwt.ClaimNames{Roles: "scope"},
	}})
	resp, err := http.Post(url+"/mcp", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	const metadata = "/.well-known/oauth-protected-resource/mcp"
	challenge := `Bearer resource_metadata="` + gateway + metadata + `", scope="caller"`
	if got := resp.Header.Get("WWW-Authenticate"); resp.StatusCode != http.StatusUnauthorized || got != challenge {
		t.Errorf("%d, %s; want %s", resp.StatusCode, got, challenge)
	}
	var told struct {
		Resource string
		Servers  []string `json:"authorization_servers"`
	}
	status, body := send(t, url+metadata, "", "")
	if err := json.Unmarshal([]byte(body), &told); err != nil || status != http.StatusOK ||
		told.Resource != gateway+"/mcp" || strings.Join(told.Servers, " ") != "https://id.example.com" {
		t.Errorf("metadata: %d %s, %v", status, body, err)
	}
	claims := map[string]any{
		"iss": "https://id.example.com", "sub": "ann", "scope": "openid caller",
		"exp": time.Now().Add(time.Hour).Unix(),
	}
	for audience, want := range map[string]int{
		"farhand": http.StatusOK, gateway: http.StatusOK, gateway + "/mcp": http.StatusUnauthorized,
		"https://other.example.com": http.StatusUnauthorized,
	} {
		claims["aud"] = audience
		if got, body := send(t, url+"/api/tools", "", signed(t, secret, claims)); got != want {
			t.Errorf("token for %s: status %d, want %d: %s", audience, got, want, body)
		}
	}
}

func TestPublicURLSettings(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"https://gateway.example.com": true, "https://gateway.example.com:8443/": true, "http://127.0.0.1:8080": true,
		"http://localhost": true, "http://gateway.example.com": false, "gateway.example.com": false,
		"https://gateway.example.com/farhand": false, "https://a@gateway.example.com": false, "https://": false,
		"https://gateway.example.com?x=1": false, "ftp://gateway.example.com": false,
	} {
		_, err := farhand.LoadConfig([]string{"FARHAND_PUBLIC_URL=" + text})
		if good != (err == nil) || err != nil && !strings.Contains(err.Error(), "FARHAND_PUBLIC_URL") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
