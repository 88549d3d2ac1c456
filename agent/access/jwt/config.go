package jwt

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Defaults of Config.
const (
	DefaultLeeway    = 30 * time.Second
	DefaultMaxAge    = 24 * time.Hour
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

// Config says which tokens are accepted. Issuer, Audience and at least one of Secret, KeyFile and KeySetURL are
// required.
type Config struct {
	Issuer   string // iss of every token
	Audience string // must be in aud of every token, unless Resource is

	// Resource is the gateway's URL for clients, without a path. Tokens that an authorization server issued for it (RFC
	// 8707) are also accepted. Tokens for a URL of its MCP endpoint are valid only for requests to that URL and below.
	// Empty: only Audience is accepted.
	Resource string

	Secret    []byte // shared with the issuer, for HS256; at least 32 bytes
	KeyFile   []byte // content of a file with public keys: PEM blocks, or a JSON key set
	KeySetURL string // URL of the issuer's published keys (JWKS): https, or http on this machine

	Leeway    time.Duration // tolerated clock difference to the issuer; default 30 s, negative: none
	MaxAge    time.Duration // maximum life of a token; default 24 h
	Refresh   time.Duration // how often published keys are fetched; default 5 min
	Retry     time.Duration // minimum time between two fetches, also for unknown keys; default 30 s
	KeepStale time.Duration // how long keys are used if fetching fails; default 24 h

	Claims ClaimNames

	Client *http.Client     // default: a client that follows no redirects
	Now    func() time.Time // default: time.Now
	Log    *slog.Logger     // default: discard
}

// ClaimNames maps claims to the parts of an identity. A name is a claim's name. If no such claim exists, it is a path
// through objects, separated by dots, such as realm_access.roles. Empty fields mean their defaults.
type ClaimNames struct {
	Tenant  string // default tenant; missing in a token: the default tenant
	User    string // default sub; required, because an identity without a user sees the data of all users
	Roles   string // default roles; a list, or a text with spaces; unknown roles are ignored
	Tools   string // default tools; globs, a list or a text with spaces; missing in a token: no restriction
	Context string // default context
	Device  string // default device_id
}

func (n *ClaimNames) fill() {
	for _, f := range []struct {
		field *string
		name  string
	}{
		{&n.Tenant, "tenant"}, {&n.User, "sub"}, {&n.Roles, "roles"}, {&n.Tools, "tools"}, {&n.Context, "context"},
		{&n.Device, "device_id"},
	} {
		if *f.field == "" {
			*f.field = f.name
		}
	}
}

// fill sets defaults, and returns all configuration errors.
func (c *Config) fill() error {
	setDefault(&c.Leeway, DefaultLeeway)
	c.Leeway = max(c.Leeway, 0)
	setDefault(&c.MaxAge, DefaultMaxAge)
	setDefault(&c.Refresh, DefaultRefresh)
	setDefault(&c.Retry, DefaultRetry)
	setDefault(&c.KeepStale, DefaultKeepStale)
	c.Claims.fill()
	if c.Client == nil {
		c.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the URL of the keys must answer itself: redirects are not followed")
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
	wrong(c.Audience == "", "the audience of tokens is missing: a token for another service must not be one for this")
	wrong(len(c.Secret) == 0 && len(c.KeyFile) == 0 && c.KeySetURL == "", "no key to check tokens with")
	wrong(len(c.Secret) > 0 && len(c.Secret) < minSecret, "the secret must have at least %d bytes", minSecret)
	wrong(c.MaxAge < time.Minute, "the longest life of a token must be at least a minute")
	if c.KeySetURL != "" {
		errs = append(errs, CheckURL(c.KeySetURL))
	}
	return errors.Join(errs...)
}

func setDefault(d *time.Duration, def time.Duration) {
	if *d == 0 {
		*d = def
	}
}

// CheckURL returns an error if keys must not be fetched from a URL: an attacker that can change the response in transit
// could sign tokens.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("the URL of the keys must look like https://id.example.com/.well-known/jwks.json")
	case u.User != nil:
		return errors.New("the URL of the keys must not hold a user or a password")
	case u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Host):
		return nil
	default:
		return errors.New("the URL of the keys must be https, or http of this machine")
	}
}

func isLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
