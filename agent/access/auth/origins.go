package auth

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/farhand/farhand/registry"
)

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
				"the origin %q must look like https://console.example.com; wildcards are not understood", a)
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
				"the host %q must look like gateway.example.com; ports and wildcards are not understood", name)
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
	if o.loopbackOnly && !IsLoopbackHost(r.Host) {
		return registry.Errorf(registry.CodeForbidden,
			"Without a token this gateway answers only to localhost. Set FARHAND_TOKEN to serve other host names.")
	}
	if o.hosts != nil && !o.hostAllowed(r.Host) {
		return registry.Errorf(registry.CodeForbidden,
			"This gateway does not answer to this host name. Add it to FARHAND_ALLOWED_HOSTS.")
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
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// hostOf returns the name or address in a Host header.
func hostOf(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}
