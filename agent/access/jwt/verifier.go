// Package jwt proves identities by JSON Web Tokens that an identity provider signs. A Verifier checks a token from the
// outside in: its length and grammar (claims.go), the key that may have signed it (keys.go), the times and
// the audience, and then reads the identity out of its claims (claims.go). What was verified once is remembered until
// it ends (verifier.go).
//
// The algorithm is decided by the key, never by the token: a shared secret verifies HS256 only, an RSA key RS256, a key
// on P-256 ES256 and an Ed25519 key EdDSA. Whatever a token says about keys of its own is a reason to refuse it.
//
// golang-jwt checks signatures and times, and go-jose decodes single keys. The set of keys is fetched here, because how
// often, how long and how much may be fetched is for the gateway to say.
package jwt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"

	gojwt "github.com/golang-jwt/jwt/v5"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// Verifier proves identities by JWTs. It is an auth.Authenticator, and safe for concurrent use. Close it to stop.
type Verifier struct {
	cfg       Config
	own       *keySet    // of the secret and the file
	published *published // nil without a URL
	parser    *gojwt.Parser
	known     *cache.Cache[[sha256.Size]byte, verified] // by digest of the token
}

var _ auth.Authenticator = (*Verifier)(nil)

// verified is a token that was checked.
type verified struct {
	id          auth.Identity
	fingerprint [sha256.Size]byte // of the key that signed it
	paths       []string          // of the only requests it is for; empty: all
}

// Bounds of the verified tokens that are remembered.
const (
	knownBytes = 2 << 20 // of each of two generations
	knownEntry = 256     // about what one takes beside its texts
)

// New returns a verifier. The keys that are published are fetched in the background, so New does not fail when the
// issuer is away.
func New(cfg Config) (*Verifier, error) {
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("jwt: %w", err)
	}
	v := &Verifier{cfg: cfg, known: cache.New[[sha256.Size]byte, verified](knownBytes, 0)}
	var keys []key
	if len(cfg.KeyFile) > 0 {
		parsed, err := parseKeyFile(cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("jwt: %w", err)
		}
		keys = parsed
	}
	if len(cfg.Secret) > 0 {
		keys = append(keys, secretKey(cfg.Secret))
	}
	v.own = newKeySet(keys)
	v.parser = gojwt.NewParser(
		gojwt.WithValidMethods([]string{"HS256", "RS256", "ES256", "EdDSA"}),
		gojwt.WithIssuer(cfg.Issuer), gojwt.WithExpirationRequired(), gojwt.WithIssuedAt(),
		gojwt.WithLeeway(cfg.Leeway), gojwt.WithTimeFunc(cfg.Now), gojwt.WithStrictDecoding(),
	)
	if cfg.KeySetURL != "" {
		v.published = newPublished(&v.cfg)
		v.published.current()
	}
	return v, nil
}

// Close ends a fetch of keys that runs, and waits for it. What is asked afterwards is answered with the keys there are.
func (v *Verifier) Close() {
	if v.published != nil {
		v.published.close()
	}
}

// Authenticate implements auth.Authenticator. A client is not told why its token is refused; the cause of the error
// says it, without a part of the token. A token is checked once; then it is known until it ends or its key is
// withdrawn.
func (v *Verifier) Authenticate(ctx context.Context, r *http.Request, token string) (auth.Identity, error) {
	now, err := v.check(ctx, token)
	if err == nil && !isFor(now.paths, r) {
		err = reason("the token is for another part of the gateway")
	}
	if err != nil {
		return auth.Identity{}, refusal(err)
	}
	return now.id, nil
}

// check verifies a token, unless that is known.
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

// trusts reports whether a key still verifies tokens.
func (v *Verifier) trusts(fingerprint [sha256.Size]byte) bool {
	return v.own.has(fingerprint) || v.published != nil && v.published.current().has(fingerprint)
}

// errNoKeys is the cause when the published keys are not known.
var errNoKeys = errors.New("the published keys could not be fetched")

// refusal is what the client is told.
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
	if err := v.checkTimes(claims); err != nil {
		return verified{}, err
	}
	keys, err := v.keysFor(ctx, h)
	if err != nil {
		return verified{}, err
	}
	for _, k := range keys {
		_, err = v.parser.ParseWithClaims(token, gojwt.MapClaims{}, func(*gojwt.Token) (any, error) {
			return k.public, nil
		})
		if err == nil {
			paths, err := v.audience(claims)
			if err != nil {
				return verified{}, err
			}
			id, err := v.identity(claims)
			return verified{id, k.fingerprint, paths}, err
		}
		if !errors.Is(err, gojwt.ErrTokenSignatureInvalid) {
			break
		}
	}
	return verified{}, causeOf(err)
}

// keysFor returns the keys that a token of this header may be signed with. The header's algorithm is that of each.
func (v *Verifier) keysFor(ctx context.Context, h header) ([]key, error) {
	keys := v.own.candidates(h)
	if v.published == nil || h.Alg == gojwt.SigningMethodHS256.Alg() { // no secret is ever published
		return orUnknown(keys)
	}
	set := v.published.current()
	found := set.candidates(h)
	if len(found) == 0 {
		set = v.published.newer(ctx)
		found = set.candidates(h)
	}
	if keys = append(keys, found...); set == nil && len(keys) == 0 {
		return nil, errNoKeys
	}
	return orUnknown(keys)
}

func orUnknown(keys []key) ([]key, error) {
	if len(keys) == 0 {
		return nil, reason("no key is known for the token's alg and kid")
	}
	return keys, nil
}

// causeOf returns why golang-jwt refused a token, in words that have nothing of the token in them.
func causeOf(err error) error {
	for _, known := range []error{
		gojwt.ErrTokenSignatureInvalid, gojwt.ErrTokenExpired, gojwt.ErrTokenNotValidYet,
		gojwt.ErrTokenUsedBeforeIssued, gojwt.ErrTokenInvalidIssuer, gojwt.ErrTokenRequiredClaimMissing,
		gojwt.ErrTokenMalformed,
	} {
		if errors.Is(err, known) {
			return reason(known.Error())
		}
	}
	return reason("the token's claims are not valid")
}

// NamesUsers returns true.
func (v *Verifier) NamesUsers() bool { return true }

// pathMCP is the endpoint whose URLs may be audiences: clients of the Model Context Protocol ask an authorization
// server for a token for the very URL they connect to.
const pathMCP = "/mcp"

// audience returns the paths that a token is for; none: it is for the whole gateway. A token for somebody else is an
// error.
func (v *Verifier) audience(claims gojwt.MapClaims) (paths []string, err error) {
	audiences, err := claims.GetAudience()
	if err != nil {
		return nil, reason("the claim aud is no text, and no list of texts")
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

// isFor reports whether a token that is for some paths is good for a request.
func isFor(paths []string, r *http.Request) bool {
	if len(paths) == 0 {
		return true
	}
	for _, path := range paths {
		if r != nil && within(r.URL.Path, path) {
			return true
		}
	}
	return false
}

// within reports whether a path is another one, or below it.
func within(path, top string) bool {
	rest, ok := strings.CutPrefix(path, top)
	return ok && (rest == "" || rest[0] == '/')
}
