package farhand

import (
	"context"
	"time"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

// openIdentity makes what says who is asking, and what ends those who may not go on.
func (g *Gateway) openIdentity(ctx context.Context, store registry.Store) error {
	var err error
	if g.tokens, err = g.cfg.openJWT(g.cfg.publicURL(), g.log); err != nil {
		return err
	}
	g.pairing, err = pairing.New(pairing.Config{
		Store: store, Mode: pairing.Mode(g.cfg.Pairing), TTL: g.cfg.PairingTTL, Log: g.log, Ended: g.ended,
		Audit: g.audit,
	})
	if err != nil {
		return err
	}
	live := auth.NewLive(auth.LiveConfig{
		Store: store, Remember: g.cfg.changeTTL(), Log: g.log, Changed: g.credentialsChanged,
	})
	if err := live.Start(ctx); err != nil {
		return err
	}
	g.live = live
	g.keys = auth.NewKeys(auth.KeysConfig{Store: store, Live: live, Prove: g.pairing.Prove, Log: g.log})
	g.keys.Start()
	return nil
}

// ended returns why an identity may not go on, or why that is not known.
func (g *Gateway) ended(ctx context.Context, id *auth.Identity) error { return g.live.Verify(ctx, id) }

// changeTTL is how long it is remembered what was revoked: longer than a JSON Web Token may be presented.
func (c Config) changeTTL() time.Duration {
	return max(registry.DefaultChangeTTL, c.JWTMaxAge+c.JWTLeeway+time.Hour)
}

// closeIdentity ends what openIdentity has begun.
func (g *Gateway) closeIdentity(ctx context.Context) {
	if g.keys != nil {
		g.keys.Close(ctx)
	}
	if g.live != nil {
		g.live.Close()
	}
	if g.tokens != nil {
		g.tokens.Close()
	}
}

// authenticator returns what says who is asking.
func (g *Gateway) authenticator() auth.Authenticator {
	chain := auth.Chain{Keys: g.keys, Live: g.live}
	if g.tokens != nil {
		chain.JWT = g.tokens
	}
	switch {
	case g.parts.authenticator != nil:
		chain.Otherwise = g.parts.authenticator
	case g.cfg.Token != "":
		chain.Otherwise = auth.NewStaticToken(string(g.cfg.Token))
	case g.cfg.needsCredential():
		chain.Otherwise = auth.Nobody{}
	default:
		chain.Otherwise = auth.Anonymous{}
	}
	return chain
}

// approverWays returns the ways to hold the role approver beside keys.
func (g *Gateway) approverWays() (ways []approval.Approver) {
	everything := auth.Identity{Tenant: registry.DefaultTenant, Admin: true}
	switch {
	case g.parts.authenticator != nil:
	case g.cfg.Token != "":
		everything.Credential = auth.CredentialToken
		ways = append(ways, approval.Approver{Name: "whoever has FARHAND_TOKEN", Who: &everything})
	case !g.cfg.needsCredential():
		ways = append(ways, approval.Approver{Name: "the user of the gateway's machine", Who: &everything})
	}
	if g.cfg.acceptsJWT() && g.cfg.JWTRolesClaim != "" {
		ways = append(ways, approval.Approver{Name: "users whose JSON Web Token has the role approver"})
	}
	return ways
}

// Anonymous reports whether the settings let callers and devices in without a credential. An authenticator that a
// program brings is not considered.
func (c Config) Anonymous() bool { return c.Token == "" && !c.needsCredential() }

// needsCredential reports whether nobody is let in without a credential although there is no token.
func (c Config) needsCredential() bool { return c.KeysOnly || c.acceptsJWT() }

// credentialsChanged tells the connections of paired devices what was decided of their tools, and whoever keeps grants
// whose are to be dropped.
func (g *Gateway) credentialsChanged(changes []registry.CredentialChange) {
	g.approvals.CredentialsChanged(changes)
	if devices := g.told.Load(); devices != nil {
		devices.CredentialsChanged(changes)
	}
}
