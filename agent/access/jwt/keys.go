package jwt

import (
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
	"slices"

	"github.com/go-jose/go-jose/v4"
	gojwt "github.com/golang-jwt/jwt/v5"
)

// key verifies the signatures of one algorithm.
type key struct {
	id          string // kid; empty: it has none
	alg         string
	public      any      // as golang-jwt wants it
	fingerprint [32]byte // tells keys apart
}

// keySet is keys that belong together. It does not change.
type keySet struct {
	keys         []key
	fingerprints map[[32]byte]bool
}

func newKeySet(keys []key) *keySet {
	s := &keySet{keys: keys, fingerprints: make(map[[32]byte]bool, len(keys))}
	for _, k := range keys {
		s.fingerprints[k.fingerprint] = true
	}
	return s
}

// has reports whether a key is in the set. A nil set is empty.
func (s *keySet) has(fingerprint [32]byte) bool { return s != nil && s.fingerprints[fingerprint] }

// candidates returns the keys that may have signed a token of this header: those of its kid, else those that have no
// kid; all, if the token names none.
func (s *keySet) candidates(h header) []key {
	if s == nil {
		return nil
	}
	var found []key
	match := func(fits func(key) bool) {
		for _, k := range s.keys {
			if k.alg == h.Alg && len(found) < maxTries && fits(k) {
				found = append(found, k)
			}
		}
	}
	if h.Kid == "" {
		match(func(key) bool { return true })
		return found
	}
	match(func(k key) bool { return k.id == h.Kid })
	if len(found) == 0 {
		match(func(k key) bool { return k.id == "" })
	}
	return found
}

// newKey returns a public key with the only algorithm it is used with.
func newKey(id string, public any) (key, error) {
	k := key{id: id, public: public}
	switch p := public.(type) {
	case *rsa.PublicKey:
		if bits := p.N.BitLen(); bits < minRSA || bits > maxRSA {
			return key{}, fmt.Errorf("an RSA key must have %d to %d bits", minRSA, maxRSA)
		}
		k.alg = gojwt.SigningMethodRS256.Alg()
	case *ecdsa.PublicKey:
		if p.Curve != elliptic.P256() {
			return key{}, errors.New("an ECDSA key must be on P-256")
		}
		k.alg = gojwt.SigningMethodES256.Alg()
	case ed25519.PublicKey:
		k.alg = gojwt.SigningMethodEdDSA.Alg()
	default:
		return key{}, fmt.Errorf("%T is no public key of RSA, P-256 or Ed25519", public)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return key{}, err
	}
	k.fingerprint = sha256.Sum256(der)
	return k, nil
}

// secretKey returns the key for tokens that are signed with a shared secret.
func secretKey(secret []byte) key {
	return key{alg: gojwt.SigningMethodHS256.Alg(), public: slices.Clone(secret), fingerprint: sha256.Sum256(secret)}
}

// CheckKeys reports what is wrong with the content of a file of keys.
func CheckKeys(content []byte) error {
	_, err := parseKeyFile(content)
	return err
}

// parseKeyFile reads public keys: PEM blocks, or a JWKS.
func parseKeyFile(content []byte) ([]key, error) {
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
		return nil, errors.New("the file of keys has neither PEM blocks nor a set of keys as JSON")
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("the file of keys has more than %d keys", maxKeys)
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
		return nil, fmt.Errorf("the file of keys has a block %.40q; only PUBLIC KEY is wanted, and no private key",
			block.Type)
	}
}

// parseKeySet reads a JWKS. Keys that are of no use here are left out, because an issuer may publish keys for other
// purposes; refused says which, if any. The error is for a text that is no set, and for one with too many keys.
func parseKeySet(text []byte) (keys []key, refused, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, nil, errors.New("the set of keys is not an object with keys")
	}
	if len(set.Keys) > maxKeys {
		return nil, nil, fmt.Errorf("the set of keys has more than %d keys", maxKeys)
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
		return key{}, errors.New("not a key that is understood")
	}
	if !decoded.IsPublic() { // a shared secret, or a private key that should not be there
		return key{}, errors.New("not a public key")
	}
	if !decoded.Valid() || decoded.Use != "" && decoded.Use != "sig" {
		return key{}, errors.New("not valid, or not for signatures")
	}
	var more struct {
		Operations []string `json:"key_ops"`
	}
	if json.Unmarshal(raw, &more) != nil || more.Operations != nil && !slices.Contains(more.Operations, "verify") {
		return key{}, errors.New("not for verifying")
	}
	k, err := newKey(decoded.KeyID, crypto.PublicKey(decoded.Key))
	if err == nil && decoded.Algorithm != "" && decoded.Algorithm != k.alg {
		err = errors.New("for another algorithm than its type is used with here")
	}
	return k, err
}
