package api_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// resource makes the pods of a fleet tell clients of the MCP where to get a token.
func resource(r api.Resource) setup {
	return setup{change: func(cfg *api.Config) { cfg.Resource = r }}
}

var publicResource = api.Resource{
	URL: "https://gateway.example.com", Issuer: "https://id.example.com", Scopes: []string{"caller"},
}

// protected is the metadata as a client reads it.
type protected struct {
	Resource string
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}

const wellKnown = "/.well-known/oauth-protected-resource"

// TestMCPChallenge: who comes to the MCP endpoint without a valid token is told where to get one, whatever path below
// it is asked for, and at no other endpoint.
func TestMCPChallenge(t *testing.T) {
	f := newFleet(t, resource(publicResource))
	const metadata = `resource_metadata="https://gateway.example.com` + wellKnown
	for _, tc := range []struct{ path, authorization, want string }{
		{"/mcp", "", `Bearer ` + metadata + `/mcp", scope="caller"`},
		{"/mcp/sessions/s1", "", `Bearer ` + metadata + `/mcp/sessions/s1", scope="caller"`},
		{"/mcp", "Bearer wrong", `Bearer error="invalid_token", ` + metadata + `/mcp", scope="caller"`},
		{"/mcp/%22x", "Bearer wrong", `Bearer error="invalid_token", ` + metadata + `/mcp/%22x", scope="caller"`},
		{"/api/tools", "Bearer wrong", "Bearer"}, {"/mcpx", "Bearer wrong", ""},
	} {
		header := http.Header{}
		if tc.authorization != "" {
			header.Set("Authorization", tc.authorization)
		}
		got := f.atMCP(http.MethodPost, tc.path, header)
		if got.header.Get("WWW-Authenticate") != tc.want || tc.want != "" && got.status != http.StatusUnauthorized {
			t.Errorf("%s with %q: %d %q, want %q", tc.path, tc.authorization, got.status,
				got.header.Get("WWW-Authenticate"), tc.want)
		}
	}
}

// TestMCPMetadata: a client finds the very URL that it connects to, and the authorization server. A Host header decides
// nothing unless it names this machine, and without an authorization server there is nothing to tell.
func TestMCPMetadata(t *testing.T) {
	f := newFleet(t, resource(publicResource))
	for path, want := range map[string]string{"": "", "/mcp": "/mcp", "/mcp/sessions/s1": "/mcp/sessions/s1"} {
		for _, host := range []string{"gateway.example.com", "evil.example", "localhost"} {
			got := f.send(request{path: wellKnown + path, header: http.Header{"Authorization": nil, "Host": {host}}})
			m := decode[protected](got, http.StatusOK)
			if m.Resource != "https://gateway.example.com"+want ||
				strings.Join(m.Servers, " ") != publicResource.Issuer ||
				strings.Join(m.Methods, " ") != "header" || strings.Join(m.Scopes, " ") != "caller" || m.Name == "" {
				t.Errorf("%s for host %s: %s", path, host, got.body)
			}
		}
	}
	for _, path := range []string{"/api", "/mcpx", "/", "/ws/chat"} {
		wantProblem(f.get(wellKnown+path), 404, registry.CodeNotFound)
	}

	local := newFleet(t, resource(api.Resource{Issuer: "https://id.example.com"}))
	at := local.pods[0].server.URL
	if m := decode[protected](local.get(wellKnown+"/mcp"), 200); m.Resource != at+"/mcp" {
		t.Errorf("on this machine: %+v", m)
	}
	evil := request{path: wellKnown + "/mcp", header: http.Header{"Host": {"evil.example"}}}
	wantProblem(local.send(evil), 404, registry.CodeNotFound)
	unknown := local.atMCP(http.MethodPost, "/mcp", http.Header{"Host": {"evil.example"}})
	if got := unknown.header.Get("WWW-Authenticate"); got != "Bearer" {
		t.Errorf("challenge for a host that is not known: %q", got)
	}
	wantProblem(newFleet(t, setup{}).get(wellKnown+"/mcp"), 404, registry.CodeNotFound)
}

// atMCP sends a request without credentials, wherever it goes and whatever is answered.
func (f *fleet) atMCP(method, path string, header http.Header) reply {
	f.Helper()
	req, err := http.NewRequestWithContext(f.Context(), method, f.pods[0].server.URL+path, strings.NewReader("{}"))
	f.must(err)
	req.Header, req.Host = header, header.Get("Host")
	resp, err := f.pods[0].server.Client().Do(req)
	f.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	f.must(err)
	return reply{T: f.T, status: resp.StatusCode, header: resp.Header, body: body}
}

// TestMCPTokensInURLs: a token in the query string is refused even beside a good one, because logs keep it.
func TestMCPTokensInURLs(t *testing.T) {
	f := newFleet(t, setup{})
	for _, query := range []string{"token=" + token, "access_token=" + token, "a=%zz", "x=1&token="} {
		r := f.atMCP(http.MethodPost, "/mcp?"+query, http.Header{"Authorization": {"Bearer " + token}})
		if r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "Authorization: Bearer") ||
			strings.Contains(string(r.body), token) {
			t.Errorf("%s: %d %s", query, r.status, r.body)
		}
	}
}

// TestMCPOrigins: a page that had its own name pointed at the gateway does not get in, though its origin and its Host
// agree; pages of allowed origins do, and may read what they need to get a token.
func TestMCPOrigins(t *testing.T) {
	origins, err := auth.NewOrigins([]string{"https://console.example.com", "https://gateway.example.com"}, false)
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, setup{change: func(cfg *api.Config) { cfg.Origins, cfg.Resource = origins, publicResource }})
	own, err := url.Parse(f.pods[0].server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		host, origin string
		want         int
	}{
		{"", "", 401}, {own.Host, "http://" + own.Host, 401}, {"localhost:1", "http://localhost:1", 401},
		{"", "https://console.example.com", 401}, {"gateway.example.com", "https://gateway.example.com", 401},
		{"evil.example", "http://evil.example", 403}, {"evil.example:80", "http://evil.example:80", 403},
		{"gateway.example.com", "https://evil.example", 403}, {"", "null", 403},
		{"", "https://console.example.com.evil.example", 403},
		{"127.0.0.1.evil.example", "http://127.0.0.1.evil.example", 403},
	} {
		header := http.Header{}
		if tc.host != "" {
			header["Host"] = []string{tc.host}
		}
		if tc.origin != "" {
			header["Origin"] = []string{tc.origin}
		}
		if got := f.atMCP(http.MethodPost, "/mcp", header); got.status != tc.want {
			t.Errorf("host %q, origin %q: %d, want %d", tc.host, tc.origin, got.status, tc.want)
		}
	}

	r := f.atMCP(http.MethodPost, "/mcp", http.Header{"Origin": {"https://console.example.com"}})
	if exposed := r.header.Get("Access-Control-Expose-Headers"); !strings.Contains(exposed, "WWW-Authenticate") ||
		!strings.Contains(exposed, "Mcp-Session-Id") {
		t.Errorf("a page may not read the challenge, or the name it cancels with: %q", exposed)
	}
	preflight := f.atMCP(http.MethodOptions, "/mcp", http.Header{
		"Origin": {"https://console.example.com"}, "Access-Control-Request-Method": {"POST"},
		"Access-Control-Request-Headers": {"authorization,mcp-method,mcp-protocol-version,mcp-param-city"},
	})
	allowed := preflight.header.Get("Access-Control-Allow-Headers")
	if preflight.status != http.StatusNoContent || !strings.Contains(allowed, "Authorization") ||
		!strings.HasSuffix(allowed, "*") {
		t.Errorf("preflight: %d %v", preflight.status, preflight.header)
	}
}

// TestMCPNeedsARole: whose token is good but has another role is told so, and which scope is missing.
func TestMCPNeedsARole(t *testing.T) {
	f := newFleet(t, setup{change: func(cfg *api.Config) {
		cfg.Resource = publicResource
		cfg.Auth = auth.AuthenticatorFunc(func(context.Context, *http.Request, string) (auth.Identity, error) {
			return auth.Identity{Roles: auth.RoleDevice | auth.RoleApprover}, nil
		})
	}})
	got := f.atMCP(http.MethodPost, "/mcp", http.Header{"Authorization": {"Bearer x"}})
	const want = `Bearer error="insufficient_scope", resource_metadata="https://gateway.example.com` + wellKnown +
		`/mcp", scope="caller"`
	if got.status != http.StatusForbidden || got.header.Get("WWW-Authenticate") != want {
		t.Errorf("%d %s: %s", got.status, got.header.Get("WWW-Authenticate"), got.body)
	}
	if got := f.get("/api/tools"); got.status != http.StatusForbidden || got.header.Get("WWW-Authenticate") != "" {
		t.Errorf("elsewhere: %d %s", got.status, got.header.Get("WWW-Authenticate"))
	}
}
