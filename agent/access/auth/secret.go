package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// Prefixes of the secrets that Farhand makes. Secret scanners find both by the pattern fh[kd]_[0-9A-Za-z]{49}.
const (
	PrefixKey    = "fhk_" // an API key
	PrefixDevice = "fhd_" // the credential of a device
)

const (
	secretBytes    = 32 // random ones
	secretDigits   = 43 // base 62, of 256 bits
	checksumDigits = 6  // base 62, of 32 bits
	secretLength   = len(PrefixKey) + secretDigits + checksumDigits
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewSecret returns a new secret of a kind of credential: 256 random bits and a checksum.
func NewSecret(kind registry.CredentialKind) string {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	body := prefixOf(kind) + bodyOf(random)
	return body + checksum(body)
}

// IsSecret reports whether a token claims to be a secret of ours; SecretKind says whether it can be one.
func IsSecret(token string) bool {
	return strings.HasPrefix(token, PrefixKey) || strings.HasPrefix(token, PrefixDevice)
}

// SecretKind returns the kind of credential that a secret belongs to. It reports false for a token that is malformed or
// whose checksum is wrong.
func SecretKind(token string) (registry.CredentialKind, bool) {
	if len(token) != secretLength || !IsSecret(token) {
		return "", false
	}
	end := len(token) - checksumDigits
	if checksum(token[:end]) != token[end:] {
		return "", false
	}
	if strings.HasPrefix(token, PrefixDevice) {
		return registry.CredentialDevice, true
	}
	return registry.CredentialKey, true
}

// SecretDigest returns what the store has of a secret.
func SecretDigest(secret string) string {
	digest := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(digest[:])
}

// NewCredentialID returns an id for a new credential. It says nothing of the secret, and sorts behind those made in
// milliseconds before it.
func NewCredentialID() string {
	random := make([]byte, 6)
	_, _ = rand.Read(random)
	return fmt.Sprintf("%011x%x", time.Now().UnixMilli(), random)
}

// CredentialName returns the name of a credential, as Identity.Credential has it.
func CredentialName(kind registry.CredentialKind, id string) string { return string(kind) + ":" + id }

func prefixOf(kind registry.CredentialKind) string {
	if kind == registry.CredentialDevice {
		return PrefixDevice
	}
	return PrefixKey
}

// checksum is of everything before it, the prefix too. It finds typing errors and what only looks like a secret.
func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	var text [checksumDigits]byte
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = base62[sum%62]
		sum /= 62
	}
	return string(text[:])
}

// bodyOf writes random bits in base 62.
func bodyOf(random []byte) string {
	n, base, rest := new(big.Int).SetBytes(random), big.NewInt(int64(len(base62))), new(big.Int)
	var text [secretDigits]byte
	for i := len(text) - 1; i >= 0; i-- {
		n.DivMod(n, base, rest)
		text[i] = base62[rest.Int64()]
	}
	return string(text[:])
}
