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
	"os"
	"slices"

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

// loadKeys fetches the key set.
func (cfg *Config) loadKeys(ctx context.Context) (keySet, error) {
	body, err := get(ctx, cfg.Client, cfg.KeySetURL, "application/jwk-set+json, application/json", maxKeySet)
	if err != nil {
		return nil, err
	}
	keys, refused, err := parseKeySet(body)
	switch {
	case err == nil && len(keys) == 0:
		// An issuer that signs publishes a key. An empty set is more likely a mistake than a revocation.
		return nil, errors.New("the key set has no usable keys")
	case refused != nil:
		cfg.Log.Debug("some published keys cannot be used", "reasons", refused)
	}
	return keys, err
}
