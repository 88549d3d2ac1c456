package farhand

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
)

// checkPublicURL reports whether FARHAND_PUBLIC_URL can be what it must, as validate asks.
func checkPublicURL(text string) (ok bool, variable, message string) {
	const must = "must look like https://gateway.example.com: https, or http of this machine, and no path"
	u, err := url.Parse(strings.TrimSuffix(text, "/"))
	ok = err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackHost(u.Host))
	if ok {
		_, err = auth.NewOrigins([]string{strings.TrimSuffix(text, "/")}, false)
	}
	return ok && err == nil, "PUBLIC_URL", must
}

// publicURL returns the URL of the gateway without a slash at its end and in lower case, as clients compare it; empty:
// it is not known.
func (c Config) publicURL() string { return strings.ToLower(strings.TrimSuffix(c.PublicURL, "/")) }

// origins returns the web origins that may connect: the gateway's own is one of them.
func (c Config) origins() []string {
	if c.PublicURL == "" {
		return c.AllowedOrigins
	}
	return append(slices.Clone(c.AllowedOrigins), c.publicURL())
}

// hosts returns the host names the gateway answers to; none: any. Addresses always pass.
func (c Config) hosts() []string {
	u, err := url.Parse(c.publicURL())
	if err != nil || u.Hostname() == "" || len(c.AllowedHosts) == 0 {
		return c.AllowedHosts
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return c.AllowedHosts
	}
	return append(slices.Clone(c.AllowedHosts), u.Hostname())
}

// resource returns what MCP clients are told to get a token by. The issuer of JSON Web Tokens is an authorization
// server if its name is the URL of one, as OAuth demands. A token's scopes are roles only if they are read as such.
func (c Config) resource() api.Resource {
	r := api.Resource{URL: c.publicURL()}
	u, err := url.Parse(c.JWTIssuer)
	if err == nil && c.acceptsJWT() && u.Host != "" && u.User == nil &&
		(u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackHost(u.Host)) {
		r.Issuer = c.JWTIssuer
	}
	if c.JWTRolesClaim == "scope" || c.JWTRolesClaim == "scp" {
		r.Scopes = []string{auth.NameCaller}
	}
	return r
}
