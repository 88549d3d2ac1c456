// Package guard is what every door checks before it lets a request in: who is asking, and from which web page. It is
// shared by the HTTP and the WebSocket door, which know nothing of each other.
package guard

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/farhand/farhand/registry"
)

// Identity is who is asking, taken from verified credentials only.
type Identity struct {
	Tenant string
	User   string // empty when the credentials name nobody in particular
	Admin  bool   // may call tools whose security level is registry.SecurityAdminOnly
}

// Authenticator verifies a bearer token. It returns an *registry.Error with CodeUnauthenticated for a wrong or
// missing one. It is safe for concurrent use.
type Authenticator interface {
	Authenticate(token string) (Identity, error)
}

// NamesUsers reports whether identities of an authenticator may name users. One that cannot says so with a method
// NamesUsers() bool: then nothing belongs to anybody in particular.
func NamesUsers(a Authenticator) bool {
	says, ok := a.(interface{ NamesUsers() bool })
	return !ok || says.NamesUsers()
}

// StaticToken accepts one token, shared by all devices and callers: until there are others, who has it is the admin.
type StaticToken struct{ digest [sha256.Size]byte }

// NewStaticToken returns an authenticator for the token, which must not be empty.
func NewStaticToken(token string) StaticToken {
	return StaticToken{digest: sha256.Sum256([]byte(token))}
}

// Authenticate implements Authenticator. It takes the same time for every wrong token.
func (s StaticToken) Authenticate(token string) (Identity, error) {
	digest := sha256.Sum256([]byte(token))
	if token == "" || subtle.ConstantTimeCompare(digest[:], s.digest[:]) != 1 {
		return Identity{}, registry.Errorf(registry.CodeUnauthenticated, "A valid bearer token is required.")
	}
	return Identity{Tenant: registry.DefaultTenant, Admin: true}, nil
}

// NamesUsers returns false.
func (StaticToken) NamesUsers() bool { return false }

// Anonymous accepts everybody. It is for a server that only this machine can reach, whose user is its admin.
type Anonymous struct{}

// Authenticate implements Authenticator.
func (Anonymous) Authenticate(string) (Identity, error) {
	return Identity{Tenant: registry.DefaultTenant, Admin: true}, nil
}

// NamesUsers returns false.
func (Anonymous) NamesUsers() bool { return false }

// BearerHeader returns the token of an Authorization header, empty if there is none.
func BearerHeader(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Origins decides which web pages may talk to the gateway. Requests without an Origin header do not come from a
// page's script and pass; a page served by the gateway's own host passes; others must be listed.
type Origins struct {
	allowed      map[string]bool
	any          bool
	loopbackOnly bool
}

// NewOrigins takes exact origins (scheme://host[:port]), or "*" for all. loopbackOnly says that the server is meant
// for this machine alone: then the Host header must name it, which defeats DNS rebinding.
func NewOrigins(allowed []string, loopbackOnly bool) (*Origins, error) {
	o := &Origins{allowed: make(map[string]bool, len(allowed)), loopbackOnly: loopbackOnly}
	for _, a := range allowed {
		if a == "*" {
			o.any = true
			continue
		}
		origin, ok := canonicalOrigin(a)
		if !ok {
			return nil, registry.Errorf(registry.CodeInvalidRequest,
				"the origin %q must look like https://console.example.com; wildcards are not understood", a)
		}
		o.allowed[origin] = true
	}
	return o, nil
}

// canonicalOrigin returns an origin as browsers send it: lower case, without the default port of its scheme.
func canonicalOrigin(s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsAny(s, "*?#@") || u.Path != "" {
		return "", false
	}
	port := u.Port()
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return "", false
	}
	host := strings.ToLower(u.Host)
	if u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + host, true
}

// Check returns nil if the request may pass, and an *registry.Error with CodeForbidden otherwise.
func (o *Origins) Check(r *http.Request) error {
	if o.loopbackOnly && !loopbackHost(r.Host) {
		return registry.Errorf(registry.CodeForbidden,
			"Without a token this gateway answers only to localhost. Set FARHAND_TOKEN to serve other host names.")
	}
	values := r.Header.Values("Origin")
	if len(values) == 0 || o.any {
		return nil
	}
	origin := strings.ToLower(values[0])
	if len(values) == 1 && (o.allowed[origin] || sameHost(origin, r.Host)) {
		return nil
	}
	return registry.Errorf(registry.CodeForbidden,
		"This web origin is not allowed. Add it to FARHAND_ALLOWED_ORIGINS.")
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.User == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, host)
}

func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
