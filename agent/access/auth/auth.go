// Package auth says who is asking, and from where. Both APIs check with it before they serve a request: the identity
// behind a token (Authenticator; Chain chooses between Keys, JWTs and the one token), the web page a request comes from
// (Origins), the address behind trusted proxies (Sources). Issuer makes and revokes credentials, and Live ends what
// still runs of an identity that was revoked or has expired. It also keeps what the APIs share of refusing: the table
// from error codes to HTTP statuses (Problem), the log of refusals (Refusals), and token buckets (Buckets).
//
// Of this project it imports registry and internal packages only. Start reading at auth.go.
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

// Authenticator says who sends a request. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the identity behind a request. token is the bearer token of the request, from wherever its
	// client may put one; empty: there is none. It must not keep r or read its body. ctx ends when the client is gone.
	// The error for a wrong or missing credential is an *registry.Error with CodeUnauthenticated; any other error lets
	// nobody in, and its text is not told to the client.
	Authenticate(ctx context.Context, r *http.Request, token string) (Identity, error)
}

// AuthenticatorFunc is a function that authenticates. An identity without a tenant belongs to registry.DefaultTenant,
// and one without roles that is no admin's has the roles RoleDevice and RoleCaller.
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

// NamesUsers reports whether identities of an authenticator may name users. One that cannot says so with a method
// NamesUsers() bool: then nothing belongs to anybody in particular.
func NamesUsers(a Authenticator) bool {
	says, ok := a.(interface{ NamesUsers() bool })
	return !ok || says.NamesUsers()
}

// CredentialToken is Identity.Credential of whoever has the one token.
const CredentialToken = "token"

// StaticToken accepts one token, shared by all devices and callers. Whoever has it is an admin: it is the only
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

// Anonymous accepts everybody. It is for a server that only this machine can reach, whose user is its admin.
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

// Chain asks the authenticator that a token is for, by what the token looks like: a secret of ours has a prefix, and a
// JWT has two dots. It lets nobody in whose identity has expired or was revoked.
type Chain struct {
	Keys      Authenticator // of secrets of ours, if there is a store for them
	JWT       Authenticator // of tokens with two dots; nil: they are Otherwise's
	Otherwise Authenticator // of everything else, and of requests without a token
	Live      *Live         // what says who was revoked
}

// Authenticate implements Authenticator.
func (c Chain) Authenticate(ctx context.Context, r *http.Request, token string) (Identity, error) {
	id, err := c.of(token).Authenticate(ctx, r, token)
	if err != nil {
		return Identity{}, err
	}
	if err := c.Live.Check(ctx, &id); err != nil {
		return Identity{}, err
	}
	return id, nil
}

func (c Chain) of(token string) Authenticator {
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

// Nobody lets nobody in: everybody needs a credential that another authenticator is for.
type Nobody struct{}

// Authenticate implements Authenticator.
func (Nobody) Authenticate(context.Context, *http.Request, string) (Identity, error) {
	return Identity{}, registry.Errorf(registry.CodeUnauthenticated, "A valid bearer token is required.")
}

// NamesUsers returns false.
func (Nobody) NamesUsers() bool { return false }

// Sources tells where requests come from. A client writes into X-Forwarded-For what it likes, so only what a trusted
// proxy has added to it counts. The zero value trusts none.
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

// sourceBits is how much of an IPv6 address is one source: whoever has an address there has the whole network.
const sourceBits = 64

// Of returns the source of a request: an IPv4 address or an IPv6 network. The zero value stands for all that have no
// address.
func (s Sources) Of(r *http.Request) netip.Prefix {
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

// behind returns the last address that was not added about a trusted proxy, or the one nearest to it.
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
