// Package jwt authenticates identities by JSON Web Tokens from an identity provider. A Verifier checks a token's length
// and grammar, signing key, times, and audience. Then it reads the identity from the claims.
//
// The key decides the algorithm, never the token: a shared secret verifies only HS256, an RSA key RS256, a P-256 key
// ES256 and an Ed25519 key EdDSA. A token that contains keys of its own is rejected. go-jose checks signatures and
// decodes single keys. This package fetches the set of keys itself, to bound how often, how long and how much.
//
// A Provider discovers where people sign in to get such tokens.
package jwt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// Verifier authenticates identities by JWTs. It is safe for concurrent use. Call Close when done.
type Verifier struct {
	cfg       Config
	own       keySet                                    // from the secret and the key file
	published *remote[keySet]                           // nil without a URL
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
	if cfg.KeyFile != "" {
		var err error
		if keys, err = readKeyFile(cfg.KeyFile); err != nil {
			return nil, fmt.Errorf("jwt: %w", err)
		}
	}
	if len(cfg.Secret) > 0 {
		keys = append(keys, secretKey([]byte(cfg.Secret)))
	}
	v.own = keys
	if cfg.KeySetURL != "" {
		v.published = newRemote(&v.cfg, "the keys of JSON Web Tokens", v.cfg.loadKeys)
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
			Message: "The gateway cannot fetch the keys that verify tokens. Retry in a moment.",
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
		return nil, reason("no key matches the token's alg and kid")
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
