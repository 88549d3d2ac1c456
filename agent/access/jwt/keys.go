package jwt

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

type key struct {
	id          string // kid; empty: none
	alg         string
	public      any      // in the type that go-jose needs
	fingerprint [32]byte // identifies the key
}

// keySet is an immutable set of keys, nil if it is not known.
type keySet []key

func (s keySet) contains(fingerprint [32]byte) bool {
	return slices.ContainsFunc(s, func(k key) bool { return k.fingerprint == fingerprint })
}

// candidates returns the keys that may have signed a token with this header: keys with its kid, else keys without a
// kid. If the token has no kid, all keys of its algorithm are candidates. It returns at most maxTries keys.
func (s keySet) candidates(h header) (found []key) {
	for _, id := range []string{h.Kid, ""} {
		for _, k := range s {
			if k.alg == h.Alg && len(found) < maxTries && (k.id == id || h.Kid == "") {
				found = append(found, k)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found
}

// newKey returns a public key with the only algorithm it may verify.
func newKey(id string, public any) (key, error) {
	k := key{id: id, public: public}
	switch p := public.(type) {
	case *rsa.PublicKey:
		if bits := p.N.BitLen(); bits < minRSA || bits > maxRSA {
			return key{}, fmt.Errorf("an RSA key must have %d to %d bits", minRSA, maxRSA)
		}
		k.alg = string(jose.RS256)
	case *ecdsa.PublicKey:
		if p.Curve != elliptic.P256() {
			return key{}, errors.New("an ECDSA key must be on P-256")
		}
		k.alg = string(jose.ES256)
	case ed25519.PublicKey:
		k.alg = string(jose.EdDSA)
	default:
		return key{}, fmt.Errorf("%T is not an RSA, P-256 or Ed25519 public key", public)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return key{}, err
	}
	k.fingerprint = sha256.Sum256(der)
	return k, nil
}

func secretKey(secret []byte) key {
	return key{alg: string(jose.HS256), public: slices.Clone(secret), fingerprint: sha256.Sum256(secret)}
}

// CheckKeyFile returns an error if a file has no valid keys.
func CheckKeyFile(path string) error {
	_, err := readKeyFile(path)
	return err
}

// readKeyFile reads public keys: PEM blocks, or a JWKS.
func readKeyFile(path string) ([]key, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if json.Valid(content) {
		keys, refused, err := parseKeySet(content)
		return keys, errors.Join(err, refused)
	}
	var keys []key
	for {
		block, rest := pem.Decode(content)
		if block == nil {
			break
		}
		content = rest
		public, err := parseBlock(block)
		if err != nil {
			return nil, err
		}
		k, err := newKey("", public)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("the key file has neither PEM blocks nor a JSON key set")
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("the key file has more than %d keys", maxKeys)
	}
	return keys, nil
}

func parseBlock(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	default:
		return nil, fmt.Errorf("the key file has a block %.40q; only public keys (PUBLIC KEY) are allowed",
			block.Type)
	}
}

// parseKeySet reads a JWKS. Unusable keys are left out, because an issuer may publish keys for other purposes. refused
// has the reasons for these. err is set if the text is no key set, or has too many keys.
func parseKeySet(text []byte) (keys []key, refused, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, nil, errors.New("the key set is not an object with keys")
	}
	if len(set.Keys) > maxKeys {
		return nil, nil, fmt.Errorf("the key set has more than %d keys", maxKeys)
	}
	var reasons []error
	for i, raw := range set.Keys {
		k, err := parseKey(raw)
		if err != nil {
			reasons = append(reasons, fmt.Errorf("key %d: %w", i, err))
			continue
		}
		keys = append(keys, k)
	}
	return keys, errors.Join(reasons...), nil
}

func parseKey(raw json.RawMessage) (key, error) {
	var decoded jose.JSONWebKey
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return key{}, errors.New("not a supported key")
	}
	if !decoded.IsPublic() { // a shared secret, or a private key published by mistake
		return key{}, errors.New("not a public key")
	}
	if !decoded.Valid() || decoded.Use != "" && decoded.Use != "sig" {
		return key{}, errors.New("not valid, or not for signatures")
	}
	var more struct {
		Operations []string `json:"key_ops"`
	}
	if json.Unmarshal(raw, &more) != nil || more.Operations != nil && !slices.Contains(more.Operations, "verify") {
		return key{}, errors.New("not for verification")
	}
	k, err := newKey(decoded.KeyID, crypto.PublicKey(decoded.Key))
	if err == nil && decoded.Algorithm != "" && decoded.Algorithm != k.alg {
		err = errors.New("its algorithm is not supported with its type")
	}
	return k, err
}

// published is the key set that an issuer publishes. It is fetched when needed, at most once per Config.Retry for all
// callers and keys, and never concurrently.
type published struct {
	cfg *Config

	ctx  context.Context // of the fetches; close cancels it
	stop context.CancelFunc

	mu      sync.Mutex
	set     keySet        // nil: not fetched yet
	fetched time.Time     // time of the fetch of set
	tried   time.Time     // start of the last fetch
	running chan struct{} // closed when the running fetch ends; nil: none is running
	fetches sync.WaitGroup
}

func (p *published) close() {
	p.mu.Lock()
	p.stop()
	p.mu.Unlock()
	p.fetches.Wait()
}

// current returns the keys, nil if none are usable. If they are missing or old, it starts a fetch in the background.
func (p *published) current() keySet {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if p.set == nil || now.Sub(p.fetched) >= p.cfg.Refresh {
		p.fetchLocked(now)
	}
	if p.set != nil && now.Sub(p.fetched) > p.cfg.Refresh+p.cfg.KeepStale {
		return nil
	}
	return p.set
}

// newer returns the keys after a fetch: the running one, or a new one if Config.Retry allows it.
func (p *published) newer(ctx context.Context) keySet {
	p.mu.Lock()
	p.fetchLocked(p.cfg.Now())
	running := p.running
	p.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
	return p.current()
}

// fetchLocked starts a fetch, unless one is running or the last began less than Config.Retry ago.
func (p *published) fetchLocked(now time.Time) {
	if p.ctx.Err() != nil || p.running != nil || !p.tried.IsZero() && now.Sub(p.tried) < p.cfg.Retry {
		return
	}
	p.tried, p.running = now, make(chan struct{})
	p.fetches.Go(p.fetch)
}

// fetch replaces the set. If it fails, the previous set stays.
func (p *published) fetch() {
	ctx, cancel := context.WithTimeout(p.ctx, fetchTimeout)
	defer cancel()
	keys, refused, err := p.load(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.set, p.fetched = keys, p.cfg.Now()
	}
	close(p.running)
	p.running = nil
	switch {
	case err != nil && p.ctx.Err() == nil:
		p.cfg.Log.Warn("the keys of JSON Web Tokens were not fetched", "error", err, "known", p.set != nil)
	case refused != nil:
		p.cfg.Log.Debug("some published keys cannot be used", "reasons", refused)
	}
}

func (p *published) load(ctx context.Context) (keys []key, refused, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.cfg.KeySetURL, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := p.cfg.Client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the URL of the keys returned status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySet+1))
	if err != nil {
		return nil, nil, err
	}
	if len(body) > maxKeySet {
		return nil, nil, fmt.Errorf("the key set is longer than %d bytes", maxKeySet)
	}
	keys, refused, err = parseKeySet(body)
	if err == nil && len(keys) == 0 {
		// An issuer that signs publishes a key. An empty set is more likely a mistake than a revocation.
		err = errors.New("the key set has no usable keys")
	}
	return keys, refused, err
}
