package farhand

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/tools"
	"github.com/farhand/farhand/redisstore"
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

// Least of what a token must be that strangers may try to guess.
const (
	minTokenLength   = 16
	minTokenDistinct = 6 // different characters; 16 random hexadecimal digits have fewer once in a hundred thousand
)

// weakToken reports whether a token is easy to guess: short, or long only by repeating itself. It cannot tell a phrase
// from chance; nothing can that sees one token.
func weakToken(token string) bool {
	distinct := make(map[byte]bool)
	for i := range len(token) {
		distinct[token[i]] = true
	}
	return period(token) < minTokenLength || len(distinct) < minTokenDistinct
}

// period returns how long the part is that a text repeats at least twice from its beginning to its end; its length if
// it repeats none.
func period(s string) int {
	for p := 1; p <= len(s)/2; p++ {
		if s[p:] == s[:len(s)-p] {
			return p
		}
	}
	return len(s)
}

// CreateKey makes an API key in the store of a fleet, without asking a gateway: whoever knows Config.RedisURL is
// trusted. It is for the first key of a fleet that has no token. The secret is returned once and stored nowhere.
func CreateKey(ctx context.Context, cfg Config, r auth.KeyRequest) (secret string, c registry.Credential, err error) {
	if cfg.RedisURL == "" {
		return "", registry.Credential{}, errors.New("FARHAND_REDIS_URL: is needed to write a key to the store; " +
			"a gateway without Redis forgets its keys when it stops")
	}
	cfg = cfg.withDefaults()
	options := cfg.redis()
	options.Limits = registry.Limits{Credentials: cfg.MaxCredentials, ChangeTTL: cfg.changeTTL()}
	conn, err := redisstore.Dial(ctx, options)
	if err != nil {
		return "", registry.Credential{}, explainRedis(err)
	}
	secret, c, err = auth.Issuer{Store: conn.Store()}.CreateFirstKey(ctx, r)
	return secret, c, errors.Join(err, conn.Close())
}

// openPolicy returns who may do what: as the policy file has it, if there is one.
func (g *Gateway) openPolicy() (*policy.Policy, error) {
	o := policy.Options{Lists: g.cfg.policyRules(), Unconfirmed: g.cfg.Unconfirmed}
	if g.cfg.PolicyFile == "" {
		return policy.New(o)
	}
	rules, file, err := policy.Open(g.cfg.PolicyFile, o, policy.DefaultInterval, g.log)
	if err != nil {
		return nil, fmt.Errorf("FARHAND_POLICY_FILE: %w", err)
	}
	g.policyFile = file
	file.NoteWith(g.notePolicy)
	return rules, nil
}

// notePolicy notes in the audit log of the default tenant, whose admins are the operators, that the policy was
// replaced, or not.
func (g *Gateway) notePolicy(digest string, err error) {
	e := registry.AuditEntry{Tenant: registry.DefaultTenant, Action: registry.AuditPolicyReload, Target: digest}
	if err != nil {
		err = registry.Errorf(registry.CodeInvalidRequest, "%s", err)
	}
	e.Decide(err)
	g.audit.Note(e)
}

// warnings returns what an operator should look at although the pod serves.
func (g *Gateway) warnings() []string {
	if g.policyFile != nil && g.policyFile.Status().Err != nil {
		return []string{"policy_file_refused"}
	}
	return nil
}

// ownNames returns the names that are the gateway's own, also those of built-in tools that are not enabled: what a
// model knows as one of them must not be a device's.
func (g *Gateway) ownNames(enabled *agent.LocalTools) []string {
	return append(enabled.Names(), tools.Names()...)
}

// checkPolicyFile reports what is wrong with a policy file.
func checkPolicyFile(path string) (ok bool, variable, message string) {
	text, err := policy.ReadFile(path)
	if err == nil {
		err = policy.Check(text)
	}
	if err != nil {
		return false, "POLICY_FILE", fmt.Sprintf("%s: %v", path, err)
	}
	return true, "", ""
}
