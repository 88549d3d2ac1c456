package pairing

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Request is a device's request to be paired. Its content is not trusted: an approver checks it.
type Request struct {
	DeviceID   string            // empty: the gateway creates one
	DeviceName string            // for people
	Platform   string            // for people
	PublicKey  ed25519.PublicKey // nil: the device does not sign
	Tools      []string          // names of tools it wants to offer
}

// Asked is the answer to a request. Secret and Code are returned only here, and only once.
type Asked struct {
	ID        string
	Secret    string // with it, the device asks for the state of its request
	Code      string // the device shows it to a person: two groups of four letters or digits, as in ABCD-2345
	DeviceID  string
	ExpiresIn time.Duration
}

const (
	secretPrefix = "fhr_" // of the secret of a request
	codeAlphabet = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
	codeLength   = 8  // characters: 40 bits
	idBytes      = 12 // bytes of the secret's digest that form the request's id
	codeAttempts = 4  // attempts to find an unused code
)

// RequestRate is the rate limit per source and pod. The store bounds how many requests wait.
func RequestRate() auth.Limit { return auth.Limit{Rate: 0.2, Burst: 20} }

// Ask stores a device's request from source until an approver decides it. It fails with CodeRateLimited if a source
// asks too often, or if there is no room.
func (s *Service) Ask(ctx context.Context, r Request, source netip.Prefix) (Asked, error) {
	if s.cfg.Mode == ModeOff {
		return Asked{}, registry.Errorf(registry.CodeNotFound,
			"Pairing is off on this gateway (FARHAND_PAIRING).")
	}
	if r.DeviceID == "" {
		r.DeviceID = "device-" + strings.ToLower(rand.Text()[:16])
	}
	if err := r.validate(); err != nil {
		return Asked{}, err
	}
	if !s.requests.Take(source, 1) {
		e := registry.Errorf(registry.CodeRateLimited, "Too many pairing requests from this address. Retry later.")
		e.RetryAfter = time.Duration(float64(time.Second) / RequestRate().Rate)
		return Asked{}, e
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret := secretPrefix + base64.RawURLEncoding.EncodeToString(random)
	p := registry.Pairing{
		ID: idOf(secret), Digest: auth.SecretDigest(secret), Source: source.String(), Network: networkOf(source),
		DeviceID: r.DeviceID, DeviceName: r.DeviceName, Platform: r.Platform, PublicKey: r.PublicKey, Tools: r.Tools,
	}
	if s.cfg.Mode == ModeOpen {
		p.Tenant = registry.DefaultTenant
	}
	for range codeAttempts {
		code := newCode()
		p.CodeDigest = codeDigest(code)
		made, err := s.cfg.Store.CreatePairing(ctx, p, s.cfg.TTL)
		switch {
		case err == nil:
			s.noteAsked(made, source)
			shown := code[:codeLength/2] + "-" + code[codeLength/2:]
			return Asked{p.ID, secret, shown, p.DeviceID, made.ExpiresAt.Sub(made.CreatedAt)}, nil
		case !errors.Is(err, registry.ErrCodeTaken):
			return Asked{}, err
		}
	}
	return Asked{}, registry.ErrPairingsFull
}

// Prefix lengths of networks. All sources in a network share a quota of waiting requests, because one customer of a
// provider can have many addresses in it.
const (
	networkBits4 = 24
	networkBits6 = 32
)

// networkOf returns the network of a source. Empty: the source is unknown.
func networkOf(source netip.Prefix) string {
	bits, addr := networkBits6, source.Addr().Unmap()
	if addr.Is4() {
		bits = networkBits4
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return ""
	}
	return network.String()
}

// noteAsked records a request in the log and the audit log, that of the default tenant while the tenant is unknown.
func (s *Service) noteAsked(p registry.Pairing, source netip.Prefix) {
	id, _, _ := strings.Cut(p.ID, ".") // without a node's code
	s.cfg.Log.Info("a device requests pairing", "pairing", id, "device", p.DeviceID, "source", source)
	e := registry.AuditEntry{
		Tenant: cmp.Or(p.Tenant, registry.DefaultTenant), Actor: registry.AuditActor{Source: auth.SourceName(source)},
		Action: registry.AuditPairAsk, Target: id, DeviceID: p.DeviceID,
	}
	e.Decide(nil)
	s.cfg.Audit.Note(e)
}

func (r Request) validate() error {
	attributes := registry.Session{DeviceID: r.DeviceID, DeviceName: r.DeviceName, Platform: r.Platform}
	if err := cmp.Or(attributes.ValidateAttributes(), checkSpaces(r.DeviceID)); err != nil {
		return err
	}
	if r.PublicKey != nil && len(r.PublicKey) != ed25519.PublicKeySize {
		return registry.Errorf(registry.CodeInvalidRequest,
			"public_key: must be an Ed25519 key, 32 bytes in base64url.")
	}
	if len(r.Tools) > registry.MaxPairingTools {
		return registry.Errorf(registry.CodeInvalidRequest, "tools: at most %d are allowed.", registry.MaxPairingTools)
	}
	for _, name := range r.Tools {
		if err := checkGlob(name); err != nil || isGlob(name) {
			return registry.Errorf(registry.CodeInvalidRequest, "tools: %.80q is not a tool name.", name)
		}
	}
	return nil
}

func idOf(secret string) string { return auth.SecretDigest(secret)[:2*idBytes] }

func newCode() string {
	random := make([]byte, codeLength)
	_, _ = rand.Read(random) // never fails
	for i, b := range random {
		random[i] = codeAlphabet[int(b)%len(codeAlphabet)] // 256 is a multiple of the alphabet's length
	}
	return string(random)
}

// readCode parses a code that a person typed, or the id of a node's request, which ends with its code. Empty: it is
// neither.
func readCode(typed string) string {
	if _, code, ok := strings.Cut(typed, "."); ok {
		typed = code
	}
	code := strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(typed))
	if len(code) != codeLength || strings.Trim(code, codeAlphabet) != "" {
		return ""
	}
	return code
}

// codeDigest returns the stored digest of a code, by which codes are compared: timing reveals nothing.
func codeDigest(code string) string { return auth.SecretDigest("farhand pairing code\n" + code) }

// State is the state of a request.
type State string

// The states.
const (
	StatePending  State = "pending"
	StateRejected State = "rejected"
	StateApproved State = "approved" // the credential comes with it, once
)

// StateOf returns the state of a request.
func StateOf(p registry.Pairing) State {
	switch {
	case p.Decision == nil:
		return StatePending
	case p.Decision.Approved:
		return StateApproved
	default:
		return StateRejected
	}
}

// Collected is the answer to a device about its request.
type Collected struct {
	State      State
	Credential string // of StateApproved; returned only once
	DeviceID   string
	Name       string
}

// Collect returns the state of a request, by its secret. The first call after the approval returns the credential and
// removes the request; if that fails, the device must ask again.
func (s *Service) Collect(ctx context.Context, secret string) (Collected, error) {
	if !strings.HasPrefix(secret, secretPrefix) || len(secret) > 128 {
		return Collected{}, registry.ErrNoPairing
	}
	p, err := s.cfg.Store.Pairing(ctx, idOf(secret))
	if err != nil {
		return Collected{}, err
	}
	if subtle.ConstantTimeCompare([]byte(p.Digest), []byte(auth.SecretDigest(secret))) != 1 {
		return Collected{}, registry.ErrNoPairing
	}
	answer := Collected{State: StateOf(p), DeviceID: p.DeviceID}
	if answer.State != StateApproved {
		return answer, nil
	}
	if p, err = s.cfg.Store.TakePairing(ctx, p.ID); err != nil {
		return Collected{}, err
	}
	if err := s.stillTrusted(ctx, p); err != nil {
		return Collected{}, err
	}
	answer.Name = p.Decision.Name
	answer.Credential, err = s.issue(ctx, p, auth.NewCredentialID())
	return answer, err
}

// credentialOf returns the credential with an id for an approved request, without its secret and tools.
func credentialOf(p registry.Pairing, id string) registry.Credential {
	return registry.Credential{
		Tenant: p.Decision.Tenant, ID: id, Kind: registry.CredentialDevice, Name: p.Decision.Name,
		Roles: []string{auth.NameDevice}, User: p.Decision.User, DeviceID: p.DeviceID, PublicKey: p.PublicKey,
		CreatedBy: p.Decision.By,
	}
}

// issue creates the credential with an id for an approved request. It returns the secret.
func (s *Service) issue(ctx context.Context, p registry.Pairing, id string) (string, error) {
	secret := auth.NewSecret(registry.CredentialDevice)
	c := credentialOf(p, id)
	c.Digest = auth.SecretDigest(secret)
	for _, glob := range p.Decision.Tools {
		c.Approved = append(c.Approved, registry.ApprovedTool{Name: glob})
	}
	if _, err := s.cfg.Store.CreateCredential(ctx, c); err != nil {
		return "", err
	}
	// Connections that use this device id without its credential must close.
	_, err := s.cfg.Store.AppendChange(ctx, registry.CredentialChange{
		Tenant: c.Tenant, Kind: registry.ChangeDevice, ID: c.DeviceID,
	})
	if err != nil {
		return "", err
	}
	s.cfg.Log.Info("a device was paired", "device", c.DeviceID, "credential", c.ID, "tenant", c.Tenant,
		"by", c.CreatedBy)
	return secret, nil
}

// stillTrusted returns ErrNoPairing if the approver, the user or the device of an approved request was revoked since
// the device asked. Otherwise a user could leave a device behind before being revoked.
func (s *Service) stillTrusted(ctx context.Context, p registry.Pairing) error {
	if s.cfg.Ended == nil {
		return nil
	}
	d := p.Decision
	for _, id := range [...]auth.Identity{
		{Tenant: d.Tenant, User: d.User, Device: p.DeviceID, Issued: p.CreatedAt},
		{Tenant: d.Tenant, User: d.ByUser, Credential: d.By, Issued: p.CreatedAt},
	} {
		err := s.cfg.Ended(ctx, &id)
		if errors.Is(err, registry.CodeUnauthenticated) {
			s.cfg.Log.Warn("device not paired: its approver, user or id was revoked",
				"pairing", p.ID, "device", p.DeviceID, "tenant", d.Tenant, "by", d.By)
			return registry.ErrNoPairing
		}
		if err != nil {
			return err
		}
	}
	return nil
}
