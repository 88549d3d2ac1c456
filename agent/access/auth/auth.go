// Package auth identifies the sender of a request and its origin. Both APIs call it before they serve a request. It
// checks the identity behind a token (Authenticator; Chain chooses between Keys, JWTs and the shared token), the web
// page that sent the request (Origins), and the address behind trusted proxies (Sources). Issuer creates and revokes
// credentials. Live ends what still runs for an identity that was revoked or has expired. The package also has what the
// APIs share for refusals: the table from error codes to HTTP statuses (Problem), the log of refusals (Refusals), and
// token buckets (Buckets).
//
// Of this project, it imports only registry and internal packages. Start reading at auth.go.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/farhand/farhand/registry"
)

// Authenticator identifies the sender of a request. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the identity behind a request. token is the request's bearer token, from any place where its
	// client may put one. Empty: the request has none. Authenticate must not keep r or read its body. ctx ends when the
	// client disconnects. A wrong or missing credential fails with an *registry.Error with CodeUnauthenticated. Any
	// other error also refuses the request, and the client does not see its text.
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

// CredentialToken is Identity.Credential of requests with the shared token.
const CredentialToken = "token"

// StaticToken accepts one token, shared by all devices and callers. Its holders are admins, because there is no other
// credential.
type StaticToken struct{ digest [sha256.Size]byte }

// NewStaticToken returns an authenticator for the token, which must not be empty.
func NewStaticToken(token string) StaticToken {
	return StaticToken{digest: sha256.Sum256([]byte(token))}
}

// Authenticate implements Authenticator. It takes the same time for every wrong token.
func (s StaticToken) Authenticate(_ context.Context, _ *http.Request, token string) (Identity, error) {
	digest := sha256.Sum256([]byte(token))
	if token == "" || subtle.ConstantTimeCompare(digest[:], s.digest[:]) != 1 {
		return Identity{}, registry.Errorf(registry.CodeUnauthenticated, "A valid bearer token is required.")
	}
	return Identity{Tenant: registry.DefaultTenant, Admin: true, Credential: CredentialToken}, nil
}

// NamesUsers returns false.
func (StaticToken) NamesUsers() bool { return false }

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
	Keys      Authenticator // for tokens with a prefix of IsSecret
	JWT       Authenticator // for tokens with two dots; nil: Otherwise gets them
	Otherwise Authenticator // for all other tokens, and for requests without one
	Live      *Live         // knows what was revoked
}

// Authenticate implements Authenticator.
func (c Chain) Authenticate(ctx context.Context, r *http.Request, token string) (Identity, error) {
	id, err := c.authenticatorFor(token).Authenticate(ctx, r, token)
	if err != nil {
		return Identity{}, err
	}
	if err := c.Live.Check(ctx, &id); err != nil {
		return Identity{}, err
	}
	return id, nil
}

func (c Chain) authenticatorFor(token string) Authenticator {
	switch {
	case IsSecret(token):
		return c.Keys
	case c.JWT != nil && strings.Count(token, ".") == 2:
		return c.JWT
	default:
		return c.Otherwise
	}
}

// NamesUsers returns true: keys may name users.
func (Chain) NamesUsers() bool { return true }

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
		if err != nil {
			var addr netip.Addr
			if addr, err = netip.ParseAddr(p); err == nil {
				network = netip.PrefixFrom(addr, addr.BitLen())
			}
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
	for _, network := range s.trusted {
		if network.Contains(a) {
			return true
		}
	}
	return false
}
