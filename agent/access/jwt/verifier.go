// Package jwt authenticates identities by JSON Web Tokens from an identity provider. A Verifier checks a token's length
// and grammar, signing key, times, and audience. Then it reads the identity from the claims.
//
// The key decides the algorithm, never the token: a shared secret verifies only HS256, an RSA key RS256, a P-256 key
// ES256 and an Ed25519 key EdDSA. A token that contains keys of its own is rejected. go-jose checks signatures and
// decodes single keys. This package fetches the set of keys itself, to bound how often, how long and how much.
package jwt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// Verifier authenticates identities by JWTs. It is safe for concurrent use. Call Close when done.
type Verifier struct {
	cfg       Config
	own       keySet                                    // from the secret and the key file
	published *published                                // nil without a URL
	known     *cache.Cache[[sha256.Size]byte, verified] // by digest of the token
}

var _ auth.Authenticator = (*Verifier)(nil)

type verified struct {
	id          auth.Identity
	fingerprint [sha256.Size]byte // of the key that signed it
	paths       []string          // the token is valid only for requests to these; empty: all
}

// Bounds of the cache of verified tokens.
const (
	knownBytes = 2 << 20 // per generation; there are two
	knownEntry = 256     // approximate bytes of an entry without its texts
)

// New returns a verifier. It fetches published keys in the background, and does not fail if that does.
func New(cfg Config) (*Verifier, error) {
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("jwt: %w", err)
	}
	v := &Verifier{cfg: cfg, known: cache.New[[sha256.Size]byte, verified](knownBytes, 0)}
	var keys []key
	if len(cfg.KeyFile) > 0 {
		var err error
		if keys, err = parseKeyFile(cfg.KeyFile); err != nil {
			return nil, fmt.Errorf("jwt: %w", err)
		}
	}
	if len(cfg.Secret) > 0 {
		keys = append(keys, secretKey(cfg.Secret))
	}
	v.own = keys
	if cfg.KeySetURL != "" {
		v.published = &published{cfg: &v.cfg}
		v.published.ctx, v.published.stop = context.WithCancel(context.Background())
		v.published.current()
	}
	return v, nil
}

// Close cancels a running fetch of keys and waits for it. Later requests use the keys fetched so far.
func (v *Verifier) Close() {
	if v.published != nil {
		v.published.close()
	}
}

// Authenticate implements auth.Authenticator. Only the error's cause says why a token is rejected, without any part of
// it. A verified token is cached until it expires or its key is withdrawn.
func (v *Verifier) Authenticate(ctx context.Context, r *http.Request, token string) (auth.Identity, error) {
	now, err := v.check(ctx, token)
	if err == nil && !coversRequest(now.paths, r) {
		err = reason("the token is for another part of the gateway")
	}
	if err != nil {
		return auth.Identity{}, refusal(err)
	}
	return now.id, nil
}

func (v *Verifier) check(ctx context.Context, token string) (verified, error) {
	digest := sha256.Sum256([]byte(token))
	if known, ok := v.known.Get(digest); ok {
		if !known.id.Expired(v.cfg.Now()) && v.trusts(known.fingerprint) {
			return known, nil
		}
		v.known.Delete(digest)
	}
	now, err := v.verify(ctx, token)
	if err != nil {
		return verified{}, err
	}
	id, size := now.id, knownEntry
	for _, text := range append(now.paths, id.Tenant, id.User, id.Device, id.Tools, id.Credential) {
		size += len(text)
	}
	v.known.Put(digest, now, size)
	return now, nil
}

func (v *Verifier) trusts(fingerprint [sha256.Size]byte) bool {
	return v.own.contains(fingerprint) || v.published != nil && v.published.current().contains(fingerprint)
}

// errNoKeys is the cause if the published keys are unavailable.
var errNoKeys = errors.New("the published keys could not be fetched")

func refusal(err error) error {
	if errors.Is(err, errNoKeys) {
		return &registry.Error{
			Code: registry.CodeStoreUnavailable, RetryAfter: DefaultRetry / 10, Cause: err,
			Message: "The gateway cannot fetch the keys that tokens are checked with. Retry after a moment.",
		}
	}
	return &registry.Error{
		Code: registry.CodeUnauthenticated, Message: "The token is invalid or expired.", Cause: err,
	}
}

func (v *Verifier) verify(ctx context.Context, token string) (verified, error) {
	h, claims, err := open(token)
	if err != nil {
		return verified{}, err
	}
	if err := v.checkLifetime(claims); err != nil {
		return verified{}, err
	}
	keys, err := v.keysFor(ctx, h)
	if err != nil {
		return verified{}, err
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(h.Alg)})
	if err != nil {
		return verified{}, reason("token is malformed")
	}
	i := slices.IndexFunc(keys, func(k key) bool {
		_, err := signed.Verify(k.public)
		return err == nil
	})
	if i < 0 {
		return verified{}, reason("token signature is invalid")
	}
	if err := v.checkValid(claims); err != nil {
		return verified{}, err
	}
	paths, err := v.audience(claims)
	if err != nil {
		return verified{}, err
	}
	id, err := v.identity(claims)
	return verified{id, keys[i].fingerprint, paths}, err
}

// keysFor returns the keys that may have signed a token with this header. Each has the header's algorithm.
func (v *Verifier) keysFor(ctx context.Context, h header) ([]key, error) {
	keys := v.own.candidates(h)
	if v.published != nil && h.Alg != string(jose.HS256) { // secrets are never published
		set := v.published.current()
		found := set.candidates(h)
		if len(found) == 0 {
			set = v.published.newer(ctx)
			found = set.candidates(h)
		}
		if keys = append(keys, found...); set == nil && len(keys) == 0 {
			return nil, errNoKeys
		}
	}
	if len(keys) == 0 {
		return nil, reason("no key is known for the token's alg and kid")
	}
	return keys, nil
}

// pathMCP is the endpoint whose URLs may be audiences: MCP clients ask an authorization server for a token for the
// exact URL they connect to.
const pathMCP = "/mcp"

// audience returns the paths that a token is valid for, none for the whole gateway. It fails for another service.
func (v *Verifier) audience(claims map[string]any) (paths []string, err error) {
	audiences, err := readAudiences(claims["aud"])
	if err != nil {
		return nil, err
	}
	for _, a := range audiences {
		if a == v.cfg.Audience {
			return nil, nil
		}
		path, below := strings.CutPrefix(a, v.cfg.Resource)
		switch path = strings.TrimSuffix(path, "/"); {
		case v.cfg.Resource == "" || !below:
		case path == "":
			return nil, nil
		case within(path, pathMCP):
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, reason("the token is for another service")
	}
	return paths, nil
}

// coversRequest reports whether a token for some paths is valid for a request.
func coversRequest(paths []string, r *http.Request) bool {
	return len(paths) == 0 || r != nil &&
		slices.ContainsFunc(paths, func(path string) bool { return within(r.URL.Path, path) })
}

// within reports whether path is top or below it.
func within(path, top string) bool {
	rest, ok := strings.CutPrefix(path, top)
	return ok && (rest == "" || rest[0] == '/')
}

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

// Config says which tokens are accepted. Issuer, Audience, and Secret, KeyFile or KeySetURL are required.
type Config struct {
	Issuer   string // iss of every token
	Audience string // must be in aud of every token, unless Resource is

	// Resource is the gateway's URL for clients, without a path; empty: none. Tokens for it (RFC 8707) are also
	// accepted. Tokens for a URL of its MCP endpoint are valid only for requests to that URL and below.
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

// fill sets defaults, and returns all configuration errors.
func (c *Config) fill() error {
	c.Leeway, c.MaxAge = max(cmp.Or(c.Leeway, DefaultLeeway), 0), cmp.Or(c.MaxAge, DefaultMaxAge)
	c.Refresh, c.Retry = cmp.Or(c.Refresh, DefaultRefresh), cmp.Or(c.Retry, DefaultRetry)
	c.KeepStale = cmp.Or(c.KeepStale, DefaultKeepStale)
	n := &c.Claims
	n.Tenant, n.User, n.Roles = cmp.Or(n.Tenant, "tenant"), cmp.Or(n.User, "sub"), cmp.Or(n.Roles, "roles")
	n.Tools, n.Context = cmp.Or(n.Tools, "tools"), cmp.Or(n.Context, "context")
	n.Device = cmp.Or(n.Device, "device_id")
	c.Client = cmp.Or(c.Client, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the URL of the keys must answer itself: redirects are not followed")
	}})
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
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

// CheckURL returns an error if keys must not be fetched from a URL: an attacker that can change the response in transit
// could sign tokens.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("the URL of the keys must look like https://id.example.com/.well-known/jwks.json")
	case u.User != nil:
		return errors.New("the URL of the keys must not hold a user or a password")
	case u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackHost(u.Host):
		return nil
	default:
		return errors.New("the URL of the keys must be https, or http of this machine")
	}
}
