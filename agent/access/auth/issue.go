package auth

import (
	"cmp"
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
	Tenant  string   // empty: the asker's tenant
	Name    string   // for people
	Roles   []string // by name; none: caller
	User    string   // empty: no particular user
	Device  string   // the only device id that a device with the key may use; empty: any
	Tools   string   // globs over tool names, separated by spaces; empty: all tools
	Context string   // empty: one trusted person
	Person  bool     // its calls over MCP come from a person's program, not from a model
	Expires time.Time
}

// contexts are the values of Identity.Context besides "", the same as in agent.ContextKind.
var contexts = []string{"main", "group", "group sandboxed"}

// IsContext reports whether text is a valid Identity.Context.
func IsContext(text string) bool { return text == "" || slices.Contains(contexts, text) }

// Issuer creates and revokes credentials. It is safe for concurrent use.
type Issuer struct{ Store registry.CredentialStore }

// CreateKey creates an API key for an admin. It returns the secret, which is not stored. An admin creates keys of its
// own tenant, with the restrictions of its own credential: tools, context and device. Only the shared token may create
// keys of any tenant. Keys that an expiring key creates expire with it or earlier.
func (i Issuer) CreateKey(ctx context.Context, asker Identity, r KeyRequest) (string, registry.Credential, error) {
	r.Tenant = cmp.Or(r.Tenant, asker.Tenant)
	if err := mayCreate(asker, r); err != nil {
		return "", registry.Credential{}, err
	}
	isKey := strings.HasPrefix(asker.Credential, string(registry.CredentialKey)+":")
	if end := asker.Expires; isKey && !end.IsZero() && (r.Expires.IsZero() || r.Expires.After(end)) {
		r.Expires = end
	}
	return i.create(ctx, r, asker.Credential)
}

// mayCreate returns why an identity may not create a key, nil if it may.
func mayCreate(asker Identity, r KeyRequest) error {
	const restricted = "%s: must be %[2]q, because your credential has this restriction."
	switch {
	case !asker.Admin:
		return NeedRole(asker, NameAdmin)
	case r.Tenant != asker.Tenant && asker.Credential != CredentialToken:
		return registry.Errorf(registry.CodeForbidden, "tenant: only FARHAND_TOKEN can create keys for another tenant.")
	case slices.Contains(r.Roles, NameOperator) && asker.Credential != CredentialToken:
		return registry.Errorf(registry.CodeForbidden, "roles: only FARHAND_TOKEN can create keys of fleet operators; "+
			"farhand keys create --store --role operator also does.")
	case asker.Tools != "" && r.Tools != asker.Tools:
		return registry.Errorf(registry.CodeForbidden, restricted, "tools", asker.Tools)
	case asker.Context != "" && r.Context != asker.Context:
		return registry.Errorf(registry.CodeForbidden, restricted, "context", asker.Context)
	case asker.Device != "" && r.Device != asker.Device:
		return registry.Errorf(registry.CodeForbidden, "device_id: must be %q, because your "+
			"credential is bound to this device.", asker.Device)
	default:
		return nil
	}
}

// CreateFirstKey creates an API key for a caller with write access to the store.
func (i Issuer) CreateFirstKey(ctx context.Context, r KeyRequest) (string, registry.Credential, error) {
	r.Tenant = cmp.Or(r.Tenant, registry.DefaultTenant)
	return i.create(ctx, r, "store")
}

// CreateTenantKey creates the first key of a tenant for a fleet operator: an admin's, without restrictions. The caller
// checks that the tenant was never used.
func (i Issuer) CreateTenantKey(
	ctx context.Context, asker Identity, r KeyRequest,
) (string, registry.Credential, error) {
	if !asker.Has(RoleOperator) {
		return "", registry.Credential{}, NeedRole(asker, NameOperator)
	}
	return i.create(ctx, KeyRequest{
		Tenant: r.Tenant, Name: r.Name, Expires: r.Expires, Roles: []string{NameAdmin},
	}, asker.Credential)
}

// checkOperator returns an error if a key has the role operator and is for anything else.
func (r KeyRequest) checkOperator() error {
	alone := len(r.Roles) == 1 && r.Tenant == registry.DefaultTenant && r.User == "" && r.Device == "" &&
		r.Tools == "" && r.Context == "" && !r.Person
	if alone || !slices.Contains(r.Roles, NameOperator) {
		return nil
	}
	return registry.Errorf(registry.CodeInvalidRequest, "A key with the role operator has no other role, belongs to "+
		"the tenant %q, and has no user, device, tools or context.", registry.DefaultTenant)
}

func (i Issuer) create(ctx context.Context, r KeyRequest, by string) (string, registry.Credential, error) {
	if len(r.Roles) == 0 {
		r.Roles = []string{NameCaller}
	}
	if err := cmp.Or(new(Identity).SetRoles(r.Roles...), r.checkOperator()); err != nil {
		return "", registry.Credential{}, err
	}
	if !IsContext(r.Context) {
		return "", registry.Credential{}, registry.Errorf(registry.CodeInvalidRequest, "context: must be one of %s.",
			strings.Join(contexts, ", "))
	}
	tools := strings.Join(strings.Fields(r.Tools), " ")
	if tools == "" && r.Tools != "" {
		return "", registry.Credential{}, registry.Errorf(registry.CodeInvalidRequest,
			"tools: is empty. Omit it if the key is for all tools.")
	}
	secret := NewSecret(registry.CredentialKey)
	c, err := i.Store.CreateCredential(ctx, registry.Credential{
		Tenant: r.Tenant, ID: NewCredentialID(), Kind: registry.CredentialKey, Digest: SecretDigest(secret),
		Name: r.Name, Roles: r.Roles, User: r.User, DeviceID: r.Device, Tools: tools, Context: r.Context,
		Person: r.Person, CreatedBy: by, ExpiresAt: r.Expires,
	})
	if err != nil {
		return "", registry.Credential{}, err
	}
	return secret, c, nil
}

// DefaultOverlap is how long a former secret works after a rotation, by default.
const DefaultOverlap = 24 * time.Hour

// RotateKey gives an API key a new secret, and returns it. The current one works for the overlap. An admin rotates keys
// that it may create.
func (i Issuer) RotateKey(
	ctx context.Context, asker Identity, id string, overlap time.Duration,
) (string, registry.Credential, error) {
	c, err := i.Store.Credential(ctx, asker.Tenant, id)
	if err == nil && c.Kind != registry.CredentialKey {
		err = registry.ErrNoCredential
	}
	if err == nil {
		err = mayCreate(asker, KeyRequest{Tenant: c.Tenant, Tools: c.Tools, Context: c.Context, Device: c.DeviceID})
	}
	if err != nil {
		return "", registry.Credential{}, err
	}
	if end := asker.Expires; !end.IsZero() && (c.ExpiresAt.IsZero() || c.ExpiresAt.After(end)) {
		return "", c, registry.Errorf(registry.CodeForbidden, "The key would outlive your credential, which expires: "+
			"rotate it with another credential.")
	}
	return i.rotate(ctx, c, overlap, "")
}

// RotateDevice gives the credential of a paired device a new secret, and returns it. The secret with the digest keep,
// or the current one, works for the overlap.
func (i Issuer) RotateDevice(
	ctx context.Context, c registry.Credential, overlap time.Duration, keep string,
) (string, registry.Credential, error) {
	return i.rotate(ctx, c, overlap, keep)
}

func (i Issuer) rotate(
	ctx context.Context, c registry.Credential, overlap time.Duration, keep string,
) (string, registry.Credential, error) {
	secret := NewSecret(c.Kind)
	c, err := i.Store.RotateCredential(ctx, c.Tenant, c.ID, registry.Rotation{
		Digest: SecretDigest(secret), Overlap: overlap, Keep: keep,
	})
	if err != nil {
		return "", registry.Credential{}, err
	}
	return secret, c, nil
}

// RevokeKey removes an API key. For a device's credential it returns registry.ErrNoCredential.
func (i Issuer) RevokeKey(ctx context.Context, tenant, id string) (registry.Credential, error) {
	c, err := i.Store.Credential(ctx, tenant, id)
	switch {
	case err == nil && c.Kind != registry.CredentialKey:
		return registry.Credential{}, registry.ErrNoCredential
	case err != nil && !errors.Is(err, registry.CodeNotFound):
		return registry.Credential{}, err
	}
	return i.Store.RevokeCredential(ctx, tenant, id) // also finishes a removal that failed halfway
}

// Revoke revokes everything of a user or a device that was issued until now, a credential by its name or id, or a JWT
// by its jti. It returns how many credentials it removed. If it fails, call it again.
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
			if c.CreatedAt.After(change.At) { // created after the revocation: trusted again
				continue
			}
			_, err := i.Store.RevokeCredential(ctx, tenant, c.ID)
			switch {
			case err == nil:
				removed++
			case !errors.Is(err, registry.CodeNotFound): // not found: another caller removed it
				return removed, err
			}
		}
		if next == "" {
			return removed, nil
		}
		q.After = next
	}
}

// Prefixes of Farhand's secrets. Secret scanners find both with the pattern fh[kd]_[0-9A-Za-z]{49}.
const (
	PrefixKey    = "fhk_" // an API key
	PrefixDevice = "fhd_" // the credential of a device
)

const (
	secretBytes    = 32 // random bytes
	secretDigits   = 43 // base 62, of 256 bits
	checksumDigits = 6  // base 62, of 32 bits
	secretLength   = len(PrefixKey) + secretDigits + checksumDigits
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewSecret returns a new secret for a kind of credential: 256 random bits and a checksum.
func NewSecret(kind registry.CredentialKind) string {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	prefix := PrefixKey
	if kind == registry.CredentialDevice {
		prefix = PrefixDevice
	}
	body := prefix + bodyOf(random)
	return body + checksum(body)
}

// IsSecret reports whether a token has a prefix of Farhand's secrets. SecretKind also validates it.
func IsSecret(token string) bool {
	return strings.HasPrefix(token, PrefixKey) || strings.HasPrefix(token, PrefixDevice)
}

// SecretKind returns the kind of credential of a secret, false if it is malformed or its checksum is wrong.
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

// SecretDigest returns the digest of a secret, which the store has instead of the secret.
func SecretDigest(secret string) string {
	digest := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(digest[:])
}

// NewCredentialID returns an id that is independent of the secret, and sorts after ids of earlier milliseconds.
func NewCredentialID() string {
	random := make([]byte, 6)
	_, _ = rand.Read(random)
	return fmt.Sprintf("%011x%x", time.Now().UnixMilli(), random)
}

// CredentialName returns the name of a credential, as in Identity.Credential.
func CredentialName(kind registry.CredentialKind, id string) string { return string(kind) + ":" + id }

// checksum detects typing errors in the body and its prefix, and strings that only look like secrets.
func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	var text [checksumDigits]byte
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = base62[sum%62]
		sum /= 62
	}
	return string(text[:])
}

func bodyOf(random []byte) string {
	n, base, rest := new(big.Int).SetBytes(random), big.NewInt(int64(len(base62))), new(big.Int)
	var text [secretDigits]byte
	for i := len(text) - 1; i >= 0; i-- {
		n.DivMod(n, base, rest)
		text[i] = base62[rest.Int64()]
	}
	return string(text[:])
}
