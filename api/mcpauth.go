package api

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// pathResource is where clients of the MCP endpoint are told where to get a token (RFC 9728).
const pathResource = "/.well-known/oauth-protected-resource"

// Resource is what clients of the MCP are told to get a token by: the gateway is a protected resource in the words of
// OAuth. They are told nothing without an authorization server.
type Resource struct {
	URL    string   // of the gateway as clients reach it, without a path; empty: only those of this machine are told
	Issuer string   // the authorization server; empty: there is none
	Scopes []string // that a token needs; none: the authorization server knows
}

// origin returns the URL of the gateway without a path, as the client of a request knows it. Whoever sends a request
// chooses its Host header, so that counts only where it names this machine.
func (s Resource) origin(r *http.Request) (origin string, known bool) {
	if s.Issuer == "" {
		return "", false
	}
	return s.reached(r), s.URL != "" || auth.IsLoopbackHost(r.Host)
}

// reached returns the URL of the gateway without a path: the configured one, else the one that the client of a request
// says it has reached. Who is not yet known must not be told the latter.
func (s Resource) reached(r *http.Request) string {
	switch {
	case s.URL != "":
		return s.URL
	case r.TLS != nil:
		return "https://" + r.Host
	default:
		return "http://" + r.Host
	}
}

// resourceMetadata is the document of RFC 9728.
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}

// protectedResource answers with the metadata of the gateway or, below a path of the MCP endpoint, of that one: a
// client must find there the very URL it connects to.
func (h *handler) protectedResource(c *gin.Context, _ params) error {
	origin, known := h.Resource.origin(c.Request)
	path := strings.TrimPrefix(c.Request.URL.EscapedPath(), pathResource)
	if !known || path != "" && !isMCP(path) {
		return registry.Errorf(registry.CodeNotFound, "No authorization server is known for this address. Use an "+
			"API key, or set FARHAND_PUBLIC_URL and FARHAND_JWT_ISSUER to the URLs of gateway and authorization "+
			"server.")
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, resourceMetadata{
		Resource: origin + path, Servers: []string{h.Resource.Issuer}, Scopes: h.Resource.Scopes,
		Methods: []string{"header"}, Name: "Farhand",
	})
	return nil
}

// Errors of a challenge, as RFC 6750 names them.
const (
	invalidToken      = "invalid_token"
	insufficientScope = "insufficient_scope"
)

// challenge tells a client of the MCP endpoint what is wrong with its token, and where to get another. Elsewhere it
// does nothing.
func (h *handler) challenge(c *gin.Context, wrong string) {
	path := c.Request.URL.EscapedPath()
	if !isMCP(path) {
		return
	}
	var params []string
	add := func(name, value string) {
		params = append(params, name+`="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)+`"`)
	}
	if wrong != invalidToken || c.GetHeader("Authorization") != "" {
		add("error", wrong)
	}
	if origin, known := h.Resource.origin(c.Request); known {
		add("resource_metadata", origin+pathResource+path)
	}
	if len(h.Resource.Scopes) > 0 {
		add("scope", strings.Join(h.Resource.Scopes, " "))
	}
	c.Header("WWW-Authenticate", strings.TrimSpace("Bearer "+strings.Join(params, ", ")))
}

// refuseQueryToken refuses a token in the query string of the MCP endpoint, where logs and histories would keep it.
func refuseQueryToken(r *http.Request) error {
	if !isMCP(r.URL.Path) || r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil && !query.Has("token") && !query.Has("access_token") {
		return nil
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"A token does not belong into the URL. Send it in the header Authorization: Bearer …, and revoke this one.")
}
