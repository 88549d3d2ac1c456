// Package auth identifies the sender of a request: the identity behind its token (Authenticator; Chain chooses between
// Keys, JWTs and the shared token), the web page that sent it (Origins), and the address behind trusted proxies
// (Sources). Issuer creates and revokes credentials. Live ends what still runs for an identity that was revoked or has
// expired. The APIs also share the statuses of error codes (Problem), the log of refusals (Refusals), and Buckets.
package auth

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/farhand/farhand/registry"
)

// Authenticator identifies the sender of a request. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the identity behind a request. token is its bearer token, empty if it has none. Authenticate
	// must not keep r or read its body. ctx ends when the client disconnects. A wrong or missing credential fails with
	// CodeUnauthenticated. Any other error also refuses the request, and the client does not see its text.
	Authenticate(ctx context.Context, r *http.Request, token string) (Identity, error)
}

// AuthenticatorFunc is a function that authenticates. If it returns an identity without a tenant, the tenant is
// registry.DefaultTenant. An identity that has no roles and is no admin gets RoleDevice and RoleCaller.
type AuthenticatorFunc func(ctx context.Context, r *http.Request, token string) (Identity, error)

// Authenticate implements Authenticator.
func (f AuthenticatorFunc) Authenticate(ctx context.Context, r *http.Request, token string) (Identity, error) {
	id, err := f(ctx, r, token)
	if err != nil {
		return Identity{}, err
	}
	if id.Tenant == "" {
		id.Tenant = registry.DefaultTenant
	}
	if !id.Admin && id.Roles == 0 {
		id.Roles = RoleDevice | RoleCaller
	}
	return id, nil
}

// NamesUsers reports whether identities of an authenticator may name users. An authenticator whose identities never do
// has a method NamesUsers() bool that returns false. Then nothing belongs to a particular user.
func NamesUsers(a Authenticator) bool {
	says, ok := a.(interface{ NamesUsers() bool })
	return !ok || says.NamesUsers()
}

// Anonymous accepts every request as an admin. It is for a server that only this machine can reach.
type Anonymous struct{}

// Authenticate implements Authenticator.
func (Anonymous) Authenticate(context.Context, *http.Request, string) (Identity, error) {
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

// Chain selects the authenticator by the form of the token: Farhand's own secrets have a prefix, and a JWT has two
// dots. It rejects identities that have expired or were revoked.
type Chain struct {
	Keys      Authenticator       // for tokens with a prefix of IsSecret
	JWT       Authenticator       // for tokens with two dots; nil: Otherwise gets them
	Otherwise Authenticator       // for all other tokens, and for requests without one
	Live      *Live               // knows what was revoked
	Seen      func(tenant string) // is called for each identity that is admitted; must not block; may be nil
}

// Authenticate implements Authenticator.
func (c Chain) Authenticate(ctx context.Context, r *http.Request, token string) (Identity, error) {
	a := c.Otherwise
	switch {
	case IsSecret(token):
		a = c.Keys
	case c.JWT != nil && strings.Count(token, ".") == 2:
		a = c.JWT
	}
	id, err := a.Authenticate(ctx, r, token)
	if err == nil {
		err = c.Live.Check(ctx, &id)
	}
	if err != nil {
		return Identity{}, err
	}
	if c.Seen != nil {
		c.Seen(id.Tenant)
	}
	return id, nil
}

// DenyAll rejects every request: each needs a credential for another authenticator.
type DenyAll struct{}

// Authenticate implements Authenticator.
func (DenyAll) Authenticate(context.Context, *http.Request, string) (Identity, error) {
	return Identity{}, registry.Errorf(registry.CodeUnauthenticated, "A valid bearer token is required.")
}

// NamesUsers returns false.
func (DenyAll) NamesUsers() bool { return false }

// Sources finds the address that a request comes from. A client can write anything into X-Forwarded-For, so only
// entries that trusted proxies added count. The zero value trusts no proxy.
type Sources struct{ trusted []netip.Prefix }

// NewSources takes the addresses or networks of the proxies in front of the gateway.
func NewSources(proxies []string) (Sources, error) {
	var s Sources
	for _, p := range proxies {
		network, err := netip.ParsePrefix(p)
		if addr, err2 := netip.ParseAddr(p); err2 == nil {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return Sources{}, fmt.Errorf("%q must be an address or a network, for example 10.0.0.0/8", p)
		}
		s.trusted = append(s.trusted, network.Masked())
	}
	return s, nil
}

// sourceBits is the length of the IPv6 prefix that counts as one source, because a client usually has a whole /64.
const sourceBits = 64

// Network returns the source of a request: an IPv4 address or an IPv6 network. All requests without an address share
// the zero value.
func (s Sources) Network(r *http.Request) netip.Prefix {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr := peer.Addr().Unmap()
	if s.trusts(addr) {
		addr = s.behind(addr, r.Header.Values("X-Forwarded-For"))
	}
	if addr.Is4() {
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	network, _ := addr.WithZone("").Prefix(sourceBits) // fails for other numbers of bits only
	return network
}

// behind reads forwarded from the right while the address is a trusted proxy's. It returns the first untrusted address,
// or the last address that it could parse.
func (s Sources) behind(proxy netip.Addr, forwarded []string) netip.Addr {
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for i := len(hops) - 1; i >= 0 && s.trusts(proxy); i-- {
		hop := strings.TrimSpace(hops[i])
		addr, err := netip.ParseAddr(hop)
		if err != nil {
			withPort, err := netip.ParseAddrPort(hop)
			if err != nil {
				break
			}
			addr = withPort.Addr()
		}
		proxy = addr.Unmap()
	}
	return proxy
}

func (s Sources) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(s.trusted, func(network netip.Prefix) bool { return network.Contains(a) })
}

// Origins decides which web pages may talk to the gateway. Requests without an Origin header do not come from a page's
// script and pass. Pages from the gateway's own host also pass. All other origins must be listed.
type Origins struct {
	allowed      map[string]bool
	any          bool
	loopbackOnly bool
	hosts        map[string]bool // lower case; nil: any
}

// NewOrigins takes exact origins (scheme://host[:port]), or "*" for all. With loopbackOnly, the server is for this
// machine alone: the Host header must name this machine, which prevents DNS rebinding.
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
				"the origin %q must look like https://console.example.com; wildcards are not supported", a)
		}
		o.allowed[origin] = true
	}
	return o, nil
}

// AllowHosts restricts the Host header to these names, IP addresses and localhost. Then no page can reach the gateway
// under its own host name (DNS rebinding). No names: any host passes. Call it before Check.
func (o *Origins) AllowHosts(names ...string) error {
	for _, name := range names {
		host := strings.ToLower(name)
		if host == "" || strings.ContainsAny(host, "*?/:@ []") {
			return registry.Errorf(registry.CodeInvalidRequest,
				"the host %q must look like gateway.example.com; ports and wildcards are not supported", name)
		}
		if o.hosts == nil {
			o.hosts = make(map[string]bool)
		}
		o.hosts[host] = true
	}
	return nil
}

// hostAllowed reports whether a Host header is accepted. IP addresses are always accepted, because a page cannot make a
// browser send an address instead of the page's own name.
func (o *Origins) hostAllowed(hostport string) bool {
	host := hostOf(hostport)
	_, err := netip.ParseAddr(host)
	return err == nil || o.hosts[strings.ToLower(host)] || strings.EqualFold(host, "localhost")
}

// canonicalOrigin returns an origin as browsers send it: lower case, without the default port of its scheme.
func canonicalOrigin(s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		strings.ContainsAny(s, "*?#@") || u.Path != "" {
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

// Check returns nil if the request may pass, else an *registry.Error with CodeForbidden.
func (o *Origins) Check(r *http.Request) error {
	if err := o.CheckHost(r); err != nil {
		return err
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

// CheckHost is the part of Check that does not depend on the page, for files that every page may read.
func (o *Origins) CheckHost(r *http.Request) error {
	if o.loopbackOnly && !IsLoopbackHost(r.Host) {
		return registry.Errorf(registry.CodeForbidden,
			"Without a token the gateway serves only localhost. Set FARHAND_TOKEN to serve other host names.")
	}
	if o.hosts != nil && !o.hostAllowed(r.Host) {
		return registry.Errorf(registry.CodeForbidden,
			"This host name is not allowed. Add it to FARHAND_ALLOWED_HOSTS.")
	}
	return nil
}

// CheckNamed is a stricter Check, for endpoints that a page must not reach under a name that its owner pointed at the
// gateway. A page from the gateway's own host passes only if the host is in AllowHosts, an IP address or localhost.
func (o *Origins) CheckNamed(r *http.Request) error {
	if err := o.Check(r); err != nil {
		return err
	}
	origin := strings.ToLower(r.Header.Get("Origin"))
	if origin == "" || o.any || o.allowed[origin] || o.hostAllowed(r.Host) {
		return nil
	}
	return registry.Errorf(registry.CodeForbidden,
		"This web origin is not allowed here. Add it to FARHAND_ALLOWED_ORIGINS, or its host to FARHAND_ALLOWED_HOSTS.")
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.User == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, host)
}

// IsLoopbackHost reports whether a Host header names this machine.
func IsLoopbackHost(hostport string) bool {
	host := hostOf(hostport)
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = host
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}
