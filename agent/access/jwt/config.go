package jwt

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/internal/secret"
)

// Defaults of Config, besides those of Settings.
const (
	DefaultRefresh   = 5 * time.Minute
	DefaultRetry     = 30 * time.Second
	DefaultKeepStale = 24 * time.Hour
)

// Bounds that cannot be configured.
const (
	minSecret    = 32               // bytes of a shared secret
	maxToken     = 8 << 10          // bytes of a token
	maxDepth     = 8                // nesting of its claims
	maxKeySet    = 512 << 10        // bytes of a key set
	maxKeys      = 64               // keys per set
	maxTries     = 4                // keys tried per token
	fetchTimeout = 10 * time.Second // per fetch of a key set
	minRSA       = 2048             // bits
	maxRSA       = 8192             // bits; above it, a check takes too long
)

// Settings say which tokens are accepted. Issuer, Audience and at least one key are required.
type Settings struct {
	Issuer    string        `env:"ISSUER" doc:"iss of accepted JSON Web Tokens. Required with a key."`
	Audience  string        `env:"AUDIENCE" doc:"aud of accepted JSON Web Tokens; others are rejected. Required with a key."`
	KeySetURL string        `env:"JWKS_URL" doc:"https URL of the identity provider's keys (JWKS): RS256, ES256 and EdDSA."`
	KeyFile   string        `env:"KEY_FILE" doc:"File of the issuer's public keys, PEM or JWKS; read at start."`
	Secret    secret.Text   `env:"SECRET" doc:"Secret shared with the issuer for HS256, at least 32 bytes."`
	Leeway    time.Duration `env:"LEEWAY" envDefault:"30s" doc:"Allowed difference between the clocks of issuer and gateway."`
	MaxAge    time.Duration `env:"MAX_AGE" envDefault:"24h" doc:"Longest accepted lifetime of a JSON Web Token."`

	Claims ClaimNames
}

// ClaimNames maps claims to the parts of an identity. A name is a claim's name. If no such claim exists, it is a path
// through objects, separated by dots, such as realm_access.roles.
type ClaimNames struct {
	Tenant   string `env:"TENANT_CLAIM" envDefault:"tenant" doc:"Claim with the tenant; without it: the default tenant. Dots lead into objects, also below."`
	User     string `env:"USER_CLAIM" envDefault:"sub" doc:"Claim with the user; a token without it is rejected."`
	Roles    string `env:"ROLES_CLAIM" envDefault:"roles" doc:"Claim with the roles (device, caller, approver, admin), a list or text with spaces. Others are ignored; without any the token has no rights."`
	Tools    string `env:"TOOLS_CLAIM" envDefault:"tools" doc:"Claim with globs of tools to call and register, a list or text with spaces. Without it: all. An empty one is rejected, as for the next two."`
	Operator string `env:"OPERATOR_ROLE" doc:"Name in the claim with the roles that makes a fleet operator (docs/tenants.md), in tokens of the default tenant only. Empty: no token does."`
	Context  string `env:"CONTEXT_CLAIM" envDefault:"context" doc:"Claim with the participants of conversations: main, group, or group sandboxed."`
	Device   string `env:"DEVICE_CLAIM" envDefault:"device_id" doc:"Claim with the only device_id that a device with the token may use."`
}

// Enabled reports whether there is a key to verify tokens with.
func (s Settings) Enabled() bool { return s.Secret != "" || s.KeyFile != "" || s.KeySetURL != "" }

// Config configures a Verifier. A negative Leeway means none.
type Config struct {
	Settings

	// Resource is the gateway's URL for clients, without a path. Tokens that an authorization server issued for it (RFC
	// 8707) are also accepted. Tokens for a URL of its MCP endpoint are valid only for requests to that URL and below.
	// Empty: only Audience is accepted.
	Resource string

	Refresh   time.Duration // how often published keys are fetched; default 5 min
	Retry     time.Duration // minimum time between two fetches, also for unknown keys; default 30 s
	KeepStale time.Duration // how long keys are used if fetching fails; default 24 h

	Client *http.Client     // default: a client that follows no redirects
	Now    func() time.Time // default: time.Now
	Log    *slog.Logger     // default: discard
}

// fill sets defaults, and returns all configuration errors.
func (c *Config) fill() error {
	envconf.Default(&c.Settings)
	c.Leeway = max(c.Leeway, 0)
	c.Refresh = cmp.Or(c.Refresh, DefaultRefresh)
	c.Retry = cmp.Or(c.Retry, DefaultRetry)
	c.KeepStale = cmp.Or(c.KeepStale, DefaultKeepStale)
	if c.Client == nil {
		c.Client = &http.Client{Transport: newTransport(), CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the URL of the keys redirects; redirects are not followed")
		}}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var errs []error
	wrong := func(is bool, text string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(text, args...))
		}
	}
	wrong(c.Issuer == "", "the issuer of tokens is missing")
	wrong(c.Audience == "", "the audience of tokens is missing; tokens for other services must not be accepted")
	wrong(!c.Enabled(), "no key to verify tokens")
	wrong(len(c.Secret) > 0 && len(c.Secret) < minSecret, "the secret must have at least %d bytes", minSecret)
	wrong(slices.Contains([]string{auth.NameDevice, auth.NameCaller, auth.NameApprover, auth.NameAdmin},
		c.Claims.Operator), "FARHAND_JWT_OPERATOR_ROLE must not be the name of another role")
	wrong(c.MaxAge < time.Minute, "the maximum age of tokens must be at least a minute")
	if c.KeySetURL != "" {
		errs = append(errs, CheckURL(c.KeySetURL))
	}
	return errors.Join(errs...)
}

// maxHeader bounds the header of an issuer's answer, in bytes. The default is 10 MiB.
const maxHeader = 64 << 10

// newTransport returns a transport for the requests to an issuer. It speaks HTTP/1.1 only: over HTTP/2 a server has its
// client answer pings, also between two fetches. A replaced http.DefaultTransport is used unchanged.
func newTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxResponseHeaderBytes = maxHeader
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// CheckURL returns an error if keys must not be fetched from a URL: an attacker that can change the response in transit
// could sign tokens.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("the URL of the keys must look like https://id.example.com/.well-known/jwks.json")
	case u.User != nil:
		return errors.New("the URL of the keys must not have a user or password")
	case u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackHost(u.Host):
		return nil
	default:
		return errors.New("the URL of the keys must be https, or http on localhost")
	}
}
