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

// Origins decides which web pages may talk to the gateway. Requests without an Origin header do not come from a
// page's script and pass; a page served by the gateway's own host passes; others must be listed.
type Origins struct {
	allowed      map[string]bool
	any          bool
	loopbackOnly bool
	hosts        map[string]bool // lower case; nil: any
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

// AllowHosts has requests pass only if their Host header is one of the names, an IP address, or localhost: then no page
// can reach the gateway under a name of its own (DNS rebinding). No names: any passes. It is called before Check.
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

// hostAllowed reports whether a Host header may be answered. A page cannot make a browser send an address in place of
// the page's own name.
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

// Check returns nil if the request may pass, and an *registry.Error with CodeForbidden otherwise.
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

// CheckNamed is Check for what a page must not reach under a name that it has had pointed at the gateway: a page of the
// gateway's own host passes only if that is one of AllowHosts, an IP address or localhost.
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
