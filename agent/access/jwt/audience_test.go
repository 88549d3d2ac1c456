package jwt_test

import (
	"net/http/httptest"
	"testing"

	"github.com/farhand/farhand/agent/access/jwt"
)

// Tokens for the URL of the gateway are as good as those for its audience; those for a URL of the MCP endpoint are good
// there and below only; whatever resembles them is for somebody else. What is remembered of a token changes nothing.
func TestAudiences(t *testing.T) {
	const gateway = "https://gateway.example.com"
	c := newClock()
	v := open(t, c, func(cfg *jwt.Config) { cfg.Resource = gateway })
	none := open(t, c, nil)
	for _, tc := range []struct {
		aud   any
		paths map[string]bool
	}{
		{audience, map[string]bool{"/api/tools": true, "/mcp": true}},
		{gateway, map[string]bool{"/api/tools": true, "/mcp": true}},
		{gateway + "/", map[string]bool{"/api/tools": true, "/mcp": true}},
		{gateway + "/mcp", map[string]bool{
			"/api/tools": false, "/mcp": true, "/mcp/sessions/s1": true, "/mcpx": false, "/ws/chat": false, "": false,
		}},
		{gateway + "/mcp/", map[string]bool{"/mcp": true, "/api/tools": false}},
		{gateway + "/mcp/sessions/s1", map[string]bool{
			"/mcp": false, "/mcp/sessions/s1": true, "/mcp/sessions/s12": false, "/mcp/sessions/s2": false,
		}},
		{[]string{"other", gateway + "/mcp/sessions/s1", gateway + "/mcp/sessions/s2"}, map[string]bool{
			"/mcp/sessions/s1": true, "/mcp/sessions/s2": true, "/mcp/sessions/s3": false,
		}},
		{[]string{gateway + "/mcp", audience}, map[string]bool{"/api/tools": true, "/mcp": true}},
		{gateway + "/api", map[string]bool{"/api/tools": false, "/mcp": false}},
		{gateway + "/mcpx", map[string]bool{"/mcp": false, "/mcpx": false}},
		{gateway + ".evil.example/mcp", map[string]bool{"/mcp": false}},
		{"http://gateway.example.com/mcp", map[string]bool{"/mcp": false}},
		{"https://gateway.example.com:444/mcp", map[string]bool{"/mcp": false}},
		{"", map[string]bool{"/mcp": false}},
		{[]any{7}, map[string]bool{"/mcp": false}},
		{[]any{audience, 5}, map[string]bool{"/api/tools": false}},
		{[]any{nil, audience}, map[string]bool{"/api/tools": false}},
		{map[string]any{"a": audience}, map[string]bool{"/api/tools": false}},
		{nil, map[string]bool{"/mcp": false}},
	} {
		token := sign(t, "HS256", secret, nil, c.claims(map[string]any{"aud": tc.aud}))
		for path, want := range tc.paths {
			for range 2 { // the second time it is remembered
				r := httptest.NewRequest("POST", gateway+path, nil)
				if _, err := v.Authenticate(t.Context(), r, token); (err == nil) != want {
					t.Errorf("aud %q at %q: %v", tc.aud, path, err)
				}
			}
			r := httptest.NewRequest("POST", gateway+path, nil)
			if _, err := none.Authenticate(t.Context(), r, token); err == nil && tc.aud == gateway {
				t.Errorf("aud %q is good for a gateway that does not know its URL", tc.aud)
			}
		}
	}
	token := sign(t, "HS256", secret, nil, c.claims(map[string]any{"aud": gateway + "/mcp"}))
	if _, err := authenticate(t, v, token); err == nil {
		t.Error("a token for one path is good for a request of which nothing is known")
	}
}
