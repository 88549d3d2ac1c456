package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
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
