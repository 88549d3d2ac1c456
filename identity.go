package farhand

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/tools"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/web"
)

type tokens interface {
	auth.Authenticator
	Close()
}

// openIdentity builds what identifies callers and devices, and what ends their work when a credential is revoked.
func (g *Gateway) openIdentity(ctx context.Context, store registry.Store) error {
	var err error
	if g.cfg.JWT.Enabled() {
		verifier, err := jwt.New(jwt.Config{Settings: g.cfg.JWT, Resource: g.cfg.publicURL(), Log: g.log})
		if err != nil {
			return err
		}
		g.tokens = verifier
	}
	if err := g.openSignIn(); err != nil {
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

// ended returns why an identity has ended, or an error if that cannot be determined.
func (g *Gateway) ended(ctx context.Context, id *auth.Identity) error { return g.live.Verify(ctx, id) }

// changeTTL is how long revocations are kept: longer than any JSON Web Token is valid.
func (c Config) changeTTL() time.Duration {
	return max(registry.DefaultChangeTTL, c.JWT.MaxAge+c.JWT.Leeway+time.Hour)
}

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
	if g.provider != nil {
		g.provider.Close()
	}
}

func (g *Gateway) authenticator(sources auth.Sources) auth.Authenticator {
	chain := auth.Chain{Keys: g.keys, JWT: g.tokens, Live: g.live, Seen: g.budgets.Seen}
	switch {
	case g.settings.authenticator != nil:
		chain.Otherwise = g.settings.authenticator
	case g.cfg.Token != "":
		token := auth.NewStaticToken(string(g.cfg.Token))
		if previous := g.cfg.previousTokens(); len(previous) > 0 {
			g.rotation = auth.NewRotation(sources, g.log)
			token = token.Accepting(previous, g.rotation)
		}
		chain.Otherwise = token
	case g.cfg.needsCredential():
		chain.Otherwise = auth.DenyAll{}
	default:
		chain.Otherwise = auth.Anonymous{}
	}
	return chain
}

// approverWays returns the ways to hold the role approver other than keys.
func (g *Gateway) approverWays() (ways []approval.Approver) {
	everything := auth.Identity{Tenant: registry.DefaultTenant, Admin: true}
	switch {
	case g.settings.authenticator != nil:
	case g.cfg.Token != "":
		everything.Credential = auth.CredentialToken
		ways = append(ways, approval.Approver{Name: "holders of FARHAND_TOKEN", Who: &everything})
	case !g.cfg.needsCredential():
		ways = append(ways, approval.Approver{Name: "the user of the gateway's machine", Who: &everything})
	}
	if g.cfg.JWT.Enabled() && g.cfg.JWT.Claims.Roles != "" {
		ways = append(ways, approval.Approver{Name: "users whose JSON Web Token has the role approver"})
	}
	return ways
}

// Anonymous reports whether callers and devices need no credential. It ignores an authenticator that the program
// brings.
func (c Config) Anonymous() bool { return c.Token == "" && !c.needsCredential() }

// needsCredential reports whether a credential is required although there is no token.
func (c Config) needsCredential() bool { return c.KeysOnly || c.JWT.Enabled() }

// credentialsChanged passes changes of credentials to the approvals, which drop grants, and to the connections of
// paired devices, which apply decisions about their tools.
func (g *Gateway) credentialsChanged(changes []registry.CredentialChange) {
	g.approvals.CredentialsChanged(changes)
	g.wakes.CredentialsChanged(changes)
	if devices := g.revocationTarget.Load(); devices != nil {
		devices.CredentialsChanged(changes)
	}
}

// Minimum of a token on an address that other machines can reach.
const (
	minTokenLength   = 16
	minTokenDistinct = 6 // different characters; 16 random hexadecimal digits have fewer once in a hundred thousand
)

// previousTokens returns the tokens that still work while FARHAND_TOKEN is rotated.
func (c Config) previousTokens() []string {
	return strings.FieldsFunc(string(c.TokenPrevious), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

func (c Config) checkTokens(check *checker) {
	check.that(!auth.IsSecret(string(c.Token)), "TOKEN", "must not begin like an API key: it would be looked up as one")
	check.that(c.TokenPrevious == "" || c.Token != "", "TOKEN_PREVIOUS",
		"requires FARHAND_TOKEN: it is what replaces them")
	for _, token := range c.previousTokens() {
		check.that(token != string(c.Token), "TOKEN_PREVIOUS", "contains FARHAND_TOKEN itself: set that to a new token")
		check.that(!auth.IsSecret(token) && !(c.JWT.Enabled() && jwt.IsToken(token)), "TOKEN_PREVIOUS",
			"must not contain an API key or JSON Web Token")
	}
}

// weakToken returns the variable with a token that is easy to guess; empty: none has one.
func (c Config) weakToken() string {
	switch {
	case c.Token == "":
		return ""
	case weakToken(string(c.Token)):
		return "FARHAND_TOKEN"
	case slices.ContainsFunc(c.previousTokens(), weakToken):
		return "A token of FARHAND_TOKEN_PREVIOUS"
	default:
		return ""
	}
}

// weakToken reports whether a token is easy to guess: short, or long only by repetition. It cannot detect phrases: a
// single token does not show how it was chosen.
func weakToken(token string) bool {
	distinct := make(map[byte]bool)
	for i := range len(token) {
		distinct[token[i]] = true
	}
	return period(token) < minTokenLength || len(distinct) < minTokenDistinct
}

// period returns the length of the shortest part that repeats throughout the text, at least twice. It returns the
// text's length if no part repeats.
func period(s string) int {
	for p := 1; p <= len(s)/2; p++ {
		if s[p:] == s[:len(s)-p] {
			return p
		}
	}
	return len(s)
}

// CreateKey makes an API key directly in the store, without a gateway: in Config.RedisURL, or in the state file of
// Config.DataDir while no gateway has it. Access to the store is the only authorization. It is for the first key of
// gateways that have no token. The secret is returned once and not stored.
func CreateKey(ctx context.Context, cfg Config, r auth.KeyRequest) (secret string, c registry.Credential, err error) {
	cfg = cfg.withDefaults()
	if cfg.RedisURL == "" {
		return createFileKey(ctx, cfg, r)
	}
	options := cfg.redis()
	options.Limits = registry.Limits{Credentials: cfg.MaxCredentials, ChangeTTL: cfg.changeTTL()}
	conn, err := redisstore.Dial(ctx, options)
	if err != nil {
		return "", registry.Credential{}, explainRedis(err)
	}
	secret, c, err = auth.Issuer{Store: conn.Store()}.CreateFirstKey(ctx, r)
	return secret, c, errors.Join(err, conn.Close())
}

func createFileKey(
	ctx context.Context, cfg Config, r auth.KeyRequest,
) (secret string, c registry.Credential, err error) {
	if !cfg.keepsFile() {
		return "", registry.Credential{}, errors.New("FARHAND_REDIS_URL or FARHAND_DATA_DIR: is required to write a " +
			"key to the store; with memory alone a gateway loses its keys when it stops")
	}
	store, _, err := cfg.openMemory(cfg.storeLimits(), nil)
	if err != nil {
		return "", registry.Credential{}, err
	}
	secret, c, err = auth.Issuer{Store: store}.CreateFirstKey(ctx, r)
	return secret, c, errors.Join(err, store.Close(ctx))
}

// openPolicy returns the policy: that of the policy file if one is set, else that of the environment.
func (g *Gateway) openPolicy() (*policy.Policy, error) {
	o := policy.Options{Lists: g.cfg.ToolNames, Unconfirmed: g.cfg.Unconfirmed}
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

// notePolicy records in the audit log that the policy was replaced or that its file was rejected. It writes to the
// default tenant, whose admins are the operators.
func (g *Gateway) notePolicy(digest string, err error) {
	e := registry.AuditEntry{Tenant: registry.DefaultTenant, Action: registry.AuditPolicyReload, Target: digest}
	if err != nil {
		err = registry.Errorf(registry.CodeInvalidRequest, "%s", err)
	}
	e.Decide(err)
	g.audit.Note(e)
}

// warnings returns the operator's warnings of a pod that serves.
func (g *Gateway) warnings() (all []string) {
	if g.policyFile != nil && g.policyFile.Status().Err != nil {
		all = append(all, "policy_file_refused")
	}
	if g.prices.Status().Err != nil {
		all = append(all, "model_prices_refused")
	}
	if g.certificate != nil && g.certificate.Status().Refused {
		all = append(all, "certificate_refused")
	}
	return all
}

// builtinNames returns the names reserved for the gateway, including built-in tools that are not enabled: a device must
// not offer a tool under a name that models know as a built-in one.
func (g *Gateway) builtinNames(enabled *agent.LocalTools) []string {
	return append(enabled.Names(), tools.Names()...)
}

func checkPolicyFile(path string) error {
	text, err := policy.ReadFile(path)
	if err == nil {
		err = policy.Check(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %v", path, err)
	}
	return nil
}

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
