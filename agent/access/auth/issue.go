package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// KeyRequest asks for an API key.
type KeyRequest struct {
	Tenant  string   // empty: that of the asker
	Name    string   // for people
	Roles   []string // by name; none: caller
	User    string   // empty: nobody in particular
	Device  string   // the only device id that a device with the key may have; empty: any
	Tools   string   // globs over names of tools, separated by spaces; empty: all
	Context string   // empty: one trusted person
	Person  bool     // a person's program makes its calls over MCP, not a model
	Expires time.Time
}

// contexts are the values that Identity.Context may have beside none; those of agent.ContextKind.
var contexts = []string{"main", "group", "group sandboxed"}

// IsContext reports whether Identity.Context may have a value.
func IsContext(text string) bool { return text == "" || slices.Contains(contexts, text) }

// Issuer makes and revokes credentials. It is safe for concurrent use.
type Issuer struct{ Store registry.CredentialStore }

// CreateKey makes an API key for an admin. The secret is returned once and stored nowhere. An admin makes keys of the
// own tenant, with no more tools, in no other context and for no other device than the own credential; whoever has the
// one token, of any tenant. A key that ends makes keys that end with it or before.
func (i Issuer) CreateKey(ctx context.Context, asker Identity, r KeyRequest) (string, registry.Credential, error) {
	if r.Tenant == "" {
		r.Tenant = asker.Tenant
	}
	switch {
	case !asker.Admin:
		return "", registry.Credential{}, NeedRole(asker, NameAdmin)
	case r.Tenant != asker.Tenant && asker.Credential != CredentialToken:
		return "", registry.Credential{}, registry.Errorf(registry.CodeForbidden,
			"tenant: only FARHAND_TOKEN can make keys of another tenant.")
	case asker.Tools != "" && r.Tools != asker.Tools:
		return "", registry.Credential{}, registry.Errorf(registry.CodeForbidden,
			"tools: your credential is restricted, and its keys are to be restricted in the same way: %q.", asker.Tools)
	case asker.Context != "" && r.Context != asker.Context:
		return "", registry.Credential{}, registry.Errorf(registry.CodeForbidden,
			"context: your credential is restricted, and its keys are to be restricted in the same way: %q.",
			asker.Context)
	case asker.Device != "" && r.Device != asker.Device:
		return "", registry.Credential{}, registry.Errorf(registry.CodeForbidden,
			"device_id: your credential is bound to the device %q, and its keys are to be bound to it, too.",
			asker.Device)
	}
	isKey := strings.HasPrefix(asker.Credential, string(registry.CredentialKey)+":")
	if end := asker.Expires; isKey && !end.IsZero() && (r.Expires.IsZero() || r.Expires.After(end)) {
		r.Expires = end
	}
	return i.create(ctx, r, asker.Credential)
}

// CreateFirstKey makes an API key for whoever can write to the store.
func (i Issuer) CreateFirstKey(ctx context.Context, r KeyRequest) (string, registry.Credential, error) {
	if r.Tenant == "" {
		r.Tenant = registry.DefaultTenant
	}
	return i.create(ctx, r, "store")
}

func (i Issuer) create(ctx context.Context, r KeyRequest, by string) (string, registry.Credential, error) {
	if len(r.Roles) == 0 {
		r.Roles = []string{NameCaller}
	}
	if err := new(Identity).SetRoles(r.Roles...); err != nil {
		return "", registry.Credential{}, err
	}
	if !IsContext(r.Context) {
		return "", registry.Credential{}, registry.Errorf(registry.CodeInvalidRequest, "context: must be one of %s.",
			strings.Join(contexts, ", "))
	}
	tools := strings.Join(strings.Fields(r.Tools), " ")
	if tools == "" && r.Tools != "" {
		return "", registry.Credential{}, registry.Errorf(registry.CodeInvalidRequest,
			"tools: names no tool. Leave it out if the key is for all tools.")
	}
	secret := NewSecret(registry.CredentialKey)
	c, err := i.Store.CreateCredential(ctx, registry.Credential{
		Tenant: r.Tenant, ID: NewCredentialID(), Kind: registry.CredentialKey, Digest: SecretDigest(secret),
		Name: r.Name, Roles: r.Roles, User: r.User, DeviceID: r.Device, Tools: tools, Context: r.Context,
		Person:    r.Person,
		CreatedBy: by, ExpiresAt: r.Expires,
	})
	if err != nil {
		return "", registry.Credential{}, err
	}
	return secret, c, nil
}

// RevokeKey removes an API key. The credential of a device is not one: then the error is registry.ErrNoCredential.
func (i Issuer) RevokeKey(ctx context.Context, tenant, id string) (registry.Credential, error) {
	c, err := i.Store.Credential(ctx, tenant, id)
	switch {
	case err == nil && c.Kind != registry.CredentialKey:
		return registry.Credential{}, registry.ErrNoCredential
	case err != nil && !errors.Is(err, registry.CodeNotFound):
		return registry.Credential{}, err
	}
	return i.Store.RevokeCredential(ctx, tenant, id) // also what an attempt before has left on the list
}

// Revoke revokes everything of a user or a device that was issued until now, a credential by its name
// (Identity.Credential) or id, or a JWT by its jti. It returns how many credentials it removed. If it fails it is to be
// called again.
func (i Issuer) Revoke(ctx context.Context, tenant string, kind registry.ChangeKind, id string) (int, error) {
	if kind == registry.ChangeCredential {
		if of, after, named := strings.Cut(id, ":"); named {
			id = after
			if of == CredentialJWT {
				kind = registry.ChangeJWT
			}
		}
	}
	if kind == registry.ChangeCredential {
		_, err := i.Store.RevokeCredential(ctx, tenant, id)
		return 1, err
	}
	change, err := i.Store.AppendChange(ctx, registry.CredentialChange{
		Tenant: tenant, Kind: kind, ID: id, Revoked: true,
	})
	if err != nil || kind == registry.ChangeJWT {
		return 0, err
	}
	q := registry.CredentialQuery{Tenant: tenant}
	if kind == registry.ChangeUser {
		q.User = id
	} else {
		q.DeviceID = id
	}
	removed := 0
	for {
		page, next, err := i.Store.Credentials(ctx, q)
		if err != nil {
			return removed, err
		}
		for _, c := range page {
			if c.CreatedAt.After(change.At) { // made since, for somebody who is trusted again
				continue
			}
			_, err := i.Store.RevokeCredential(ctx, tenant, c.ID)
			switch {
			case err == nil:
				removed++
			case !errors.Is(err, registry.CodeNotFound): // else somebody was faster
				return removed, err
			}
		}
		if next == "" {
			return removed, nil
		}
		q.After = next
	}
}

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
