// Package pairing gives each device its own credential. A device asks (Ask) and gets a secret, with which it polls, and
// a short code, which it shows to a person. An approver types the code and decides (Find, Decide). Then the device
// collects its credential, once (Collect). The reasons are in docs/decisions/0031-pairing.md.
//
// A credential may have a public key. Then it is valid only with a signature of a nonce from the gateway (Challenge,
// Prove), so a stolen copy is useless.
//
// A paired device may offer only approved tools, with the definitions that were approved. All other tools wait (Review,
// ApproveTools). All state is in the store, so any pod can do any step.
package pairing

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// Mode says which devices may ask to be paired.
type Mode string

// The modes.
const (
	ModeOff  Mode = "off"  // none
	ModeCode Mode = "code" // every device; the approver must type its code, and the device joins the approver's tenant
	ModeOpen Mode = "open" // as ModeCode; approvers of the default tenant also see every request, and need no code
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{ModeOff, ModeCode, ModeOpen} }

// DefaultTTL is the default of Config.TTL.
const DefaultTTL = 5 * time.Minute

// Store is the part of registry.Store that pairing needs.
type Store interface {
	registry.PairingStore
	CreateCredential(ctx context.Context, c registry.Credential) (registry.Credential, error)
	Credential(ctx context.Context, tenant, id string) (registry.Credential, error)
	Credentials(ctx context.Context, q registry.CredentialQuery) ([]registry.Credential, string, error)
	UpdateCredential(
		ctx context.Context, tenant, id string, change func(*registry.Credential) error,
	) (registry.Credential, error)
	RevokeCredential(ctx context.Context, tenant, id string) (registry.Credential, error)
	PairedDevices(ctx context.Context, tenant string, deviceIDs ...string) ([]registry.Credential, error)
	PairedIDs(ctx context.Context, tenant string) ([]string, error)
	AppendChange(ctx context.Context, c registry.CredentialChange) (registry.CredentialChange, error)
}

// Config is what a Service needs. Store is required.
type Config struct {
	Store Store
	Mode  Mode          // default ModeCode
	TTL   time.Duration // lifetime of a request until the decision, and again until it is collected; default 5 min
	Log   *slog.Logger  // default: discard
	Audit auth.Auditor  // gets requests; default: discard

	// Ended asks the store whether an identity has ended: CodeUnauthenticated means revoked, any other error unknown.
	// If the approver or the user was revoked after the request was made, the device gets no credential. Nil: not
	// checked.
	Ended func(context.Context, *auth.Identity) error
}

// Service pairs devices. It is safe for concurrent use. All state is in the store, except rate limits and a cache.
type Service struct {
	cfg  Config
	asks *auth.Buckets[netip.Prefix] // rate limits by source

	looks *cache.Cache[string, []string] // by id
}

// New returns a service.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, errors.New("pairing: a service needs a store")
	}
	if cfg.Mode == "" {
		cfg.Mode = ModeCode
	}
	if cfg.TTL <= 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Audit == nil {
		cfg.Audit = auth.NoAudit{}
	}
	return &Service{cfg, auth.NewBuckets[netip.Prefix](Asks()), cache.New[string, []string](looksBytes, 0)}, nil
}

// Open reports whether devices may wait without a code for approvers of the default tenant.
func (s *Service) Open() bool { return s.cfg.Mode == ModeOpen }

// Paired reports whether a device id is paired. If it is, only its credential may use that id.
func (s *Service) Paired(ctx context.Context, tenant, deviceID string) (bool, error) {
	all, err := s.cfg.Store.PairedDevices(ctx, tenant, deviceID)
	return len(all) > 0, err
}

// nameOf returns the name of an identity in logs and records: the credential, or the user.
func nameOf(id auth.Identity) string {
	if id.Credential != "" {
		return id.Credential
	}
	if id.User != "" {
		return "user:" + id.User
	}
	return "anonymous"
}

// How a device sends its signature with a request: in a header or, in browsers, in an offered subprotocol.
const (
	HeaderSignature     = "Farhand-Signature"
	subprotocolPrefix   = "signature."
	headerSubprotocol   = "Sec-Websocket-Protocol"
	PathChallenge       = "/pair/challenge" // the only path for which a device with a key needs no signature
	credentialPrefix    = string(registry.CredentialDevice) + ":"
	signedTextBeginning = "farhand-device-v1\n"
	nonceBytes          = 33                  // random bytes; three of them are four letters of base64
	sourceBytes         = 9                   // of the digest of a source, at the end of a nonce
	sourceLength        = sourceBytes / 3 * 4 // their length in base64
)

// SignedText returns the text that a device signs.
func SignedText(nonce, deviceID string) []byte {
	return []byte(signedTextBeginning + nonce + "\n" + deviceID)
}

// Challenge returns a nonce that a paired device signs within registry.NonceTTL, for one request from any source. Each
// source has its own nonces, so that a stolen copy of the credential cannot use up the device's nonces.
func (s *Service) Challenge(ctx context.Context, id auth.Identity, source netip.Prefix) (nonce string, err error) {
	credential, ok := strings.CutPrefix(id.Credential, credentialPrefix)
	if !ok {
		return "", registry.Errorf(registry.CodeInvalidRequest,
			"Only the credential of a paired device signs anything; yours needs no signature.")
	}
	random := make([]byte, nonceBytes)
	_, _ = rand.Read(random) // never fails
	sum := sha256.Sum256([]byte(source.String()))
	nonce = base64.RawURLEncoding.EncodeToString(append(random, sum[:sourceBytes]...))
	return nonce, s.cfg.Store.PutNonce(ctx, id.Tenant, nonceOwner(credential, nonce), nonce,
		registry.NonceTTL)
}

// nonceOwner returns the owner of a nonce in the store: the credential and the source that asked for it. The source's
// digest is the end of the nonce.
func nonceOwner(credential, nonce string) string {
	return credential + "/" + nonce[len(nonce)-sourceLength:]
}

// Prove checks the signature of a request whose credential has a public key. Only a valid signature consumes its nonce,
// so only the device can. It is for auth.KeysConfig.
func (s *Service) Prove(ctx context.Context, r *http.Request, c registry.Credential) error {
	if len(c.PublicKey) == 0 || r.URL.Path == PathChallenge {
		return nil
	}
	nonce, signature, ok := signatureOf(r)
	if !ok {
		return unsigned("The credential of this device is good with a signature only: get a nonce from " +
			PathChallenge + ", sign it, and send it in " + HeaderSignature + ".")
	}
	if len(c.PublicKey) != ed25519.PublicKeySize ||
		!ed25519.Verify(c.PublicKey, SignedText(nonce, c.DeviceID), signature) {
		return unsigned("The signature is not right for this device.")
	}
	fresh, err := s.cfg.Store.TakeNonce(ctx, c.Tenant, nonceOwner(c.ID, nonce), nonce)
	if err != nil {
		return err
	}
	if !fresh {
		return unsigned("The nonce of the signature was used before, or is too old. Get another one.")
	}
	return nil
}

func unsigned(text string) error { return registry.Errorf(registry.CodeUnauthenticated, "%s", text) }

// signatureOf returns the nonce and the signature of a request.
func signatureOf(r *http.Request) (nonce string, signature []byte, ok bool) {
	value := r.Header.Get(HeaderSignature)
	for _, line := range r.Header.Values(headerSubprotocol) {
		for p := range strings.SplitSeq(line, ",") {
			if s, found := strings.CutPrefix(strings.TrimSpace(p), subprotocolPrefix); found && value == "" {
				value = s
			}
		}
	}
	nonce, text, ok := strings.Cut(value, ".")
	if !ok || len(nonce) < sourceLength || len(value) > 512 {
		return "", nil, false
	}
	signature, err := base64.RawURLEncoding.DecodeString(text)
	return nonce, signature, err == nil
}
