package auth

import (
	"context"
	"net/http"
	"strings"

	"github.com/farhand/farhand/registry"
)

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
