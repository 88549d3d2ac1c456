package farhand

import (
	"context"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/web"
)

// openSignIn begins to discover the identity provider of the console, if one is configured.
func (g *Gateway) openSignIn() (err error) {
	if g.cfg.ConsoleClient != "" {
		g.provider, err = jwt.NewProvider(jwt.Config{Settings: g.cfg.JWT, Log: g.log})
	}
	return err
}

// signIn says how people sign in at the console.
func (g *Gateway) signIn(ctx context.Context) (wire.SignIn, error) {
	if g.provider == nil {
		return wire.SignIn{}, nil
	}
	m := g.provider.Metadata(ctx)
	if m == nil {
		return wire.SignIn{}, &registry.Error{
			Code: registry.CodeStoreUnavailable, RetryAfter: jwt.DefaultRetry,
			Message: "The identity provider cannot be reached. Sign in with a key, or retry in a moment.",
		}
	}
	token := wire.TokenAccess
	if g.cfg.JWT.Audience == g.cfg.ConsoleClient { // an ID token is for its client
		token = wire.TokenID
	}
	return wire.SignIn{OIDC: &wire.OIDC{
		ClientID: g.cfg.ConsoleClient, Scope: g.cfg.ConsoleScopes, Token: token,
		Provider: wire.OIDCProvider{
			Issuer: m.Issuer, AuthorizationEndpoint: m.AuthorizationEndpoint, TokenEndpoint: m.TokenEndpoint,
			RevocationEndpoint: m.RevocationEndpoint, ResponseModes: m.ResponseModes, Algorithms: m.Algorithms,
			SendsIssuer: m.SendsIssuer,
		},
	}}, nil
}

// pages returns the pages for people. The console may connect to the token endpoint of the identity provider.
func (g *Gateway) pages() *web.Pages {
	if g.provider == nil {
		return web.New(nil)
	}
	return web.New(func(ctx context.Context) string {
		if m := g.provider.Metadata(ctx); m != nil {
			return m.TokenOrigin()
		}
		return ""
	})
}

func (c Config) checkSignIn(check *checker) {
	if c.ConsoleClient == "" {
		return
	}
	check.that(c.Console != consoleOff, "CONSOLE_OIDC_CLIENT", "needs the console; remove FARHAND_CONSOLE=off")
	check.that(c.JWT.Enabled(), "CONSOLE_OIDC_CLIENT",
		"needs the provider's keys: set FARHAND_JWT_ISSUER, FARHAND_JWT_AUDIENCE and FARHAND_JWT_JWKS_URL")
	if c.JWT.Enabled() && c.JWT.Issuer != "" {
		check.none(jwt.CheckIssuer(c.JWT.Issuer), "JWT_ISSUER")
	}
	check.that(slices.Contains(strings.Fields(c.ConsoleScopes), "openid"), "CONSOLE_OIDC_SCOPES", "must have openid")
}
