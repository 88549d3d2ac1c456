// Package pairing gives each device its own credential. A device asks (Ask) and gets a secret, with which it polls, and
// a short code, which it shows to a person. An approver types the code and decides (Find, Decide). Then the device
// collects its credential, once (Collect). A credential with a public key is valid only with a signature of a nonce
// from the gateway (Challenge, Prove). A paired device may offer only tools whose definitions were approved (Review,
// ApproveTools). Any pod can do any step. The reasons are in docs/decisions/0031-pairing.md.
package pairing

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/parallel"
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
	registry.CredentialStore
	ForgetDevice(ctx context.Context, tenant string, keys ...string) error
}

// Config is what a Service needs. Store is required.
type Config struct {
	Store Store
	Mode  Mode          // default ModeCode
	TTL   time.Duration // lifetime of a request until the decision, and again until it is collected; default 5 min
	Log   *slog.Logger  // default: discard
	Audit auth.Auditor  // gets requests; default: discard

	// Ended asks the store whether an identity was revoked (CodeUnauthenticated). A device gets no credential if its
	// approver or user was revoked after its request. Nil: not checked.
	Ended func(context.Context, *auth.Identity) error
}

// Service pairs devices. It is safe for concurrent use. All state is in the store, except rate limits and a cache.
type Service struct {
	cfg      Config
	nodes    NodeConfig
	requests *auth.Buckets[netip.Prefix] // rate limits by source
	retries  *auth.Buckets[netip.Prefix] // of nodes that ask again

	looks *cache.Cache[string, []string] // by id
}

// New returns a service.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, errors.New("pairing: a service needs a store")
	}
	cfg.Mode, cfg.TTL = cmp.Or(cfg.Mode, ModeCode), cmp.Or(cfg.TTL, DefaultTTL)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Audit = cmp.Or[auth.Auditor](cfg.Audit, auth.NoAudit{})
	return &Service{
		cfg: cfg, requests: auth.NewBuckets[netip.Prefix](RequestRate()),
		retries: auth.NewBuckets[netip.Prefix](nodeRetries),
		looks:   cache.New[string, []string](looksBytes, 0),
	}, nil
}

// NodeConfig is what AdmitNode needs, besides the service. All fields are required.
type NodeConfig struct {
	Auth     auth.Authenticator // must pass its context on to Prove
	Refusals *auth.Refusals     // limits wrong tokens by source
	Sources  auth.Sources
}

// Serve sets what AdmitNode needs. Call it before AdmitNode.
func (s *Service) Serve(c NodeConfig) { s.nodes = c }

// Open reports whether devices may wait without a code for approvers of the default tenant.
func (s *Service) Open() bool { return s.cfg.Mode == ModeOpen }

// Mode returns which devices may request pairing.
func (s *Service) Mode() Mode { return s.cfg.Mode }

// Paired reports whether a device id is paired. If it is, only its credential may use that id.
func (s *Service) Paired(ctx context.Context, tenant, deviceID string) (bool, error) {
	all, err := s.cfg.Store.PairedDevices(ctx, tenant, deviceID)
	return len(all) > 0, err
}

// nameOf returns the name of an identity in logs and records: the credential, or the user.
func nameOf(id auth.Identity) string {
	if id.Credential == "" && id.User != "" {
		return "user:" + id.User
	}
	return cmp.Or(id.Credential, "anonymous")
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
			"Only credentials of paired devices need a signature; yours does not.")
	}
	random := make([]byte, nonceBytes)
	_, _ = rand.Read(random) // never fails
	sum := sha256.Sum256([]byte(source.String()))
	nonce = base64.RawURLEncoding.EncodeToString(append(random, sum[:sourceBytes]...))
	return nonce, s.cfg.Store.PutNonce(ctx, id.Tenant, nonceOwner(credential, nonce), nonce,
		registry.NonceTTL)
}

// nonceOwner returns the owner of a nonce in the store: the credential, and the source's digest at the nonce's end.
func nonceOwner(credential, nonce string) string {
	return credential + "/" + nonce[len(nonce)-sourceLength:]
}

// Prove checks the signature of a request whose credential has a public key. Only a valid signature consumes its nonce.
func (s *Service) Prove(ctx context.Context, r *http.Request, c registry.Credential) error {
	if len(c.PublicKey) == 0 || r.URL.Path == PathChallenge {
		return nil
	}
	if p, ok := ctx.Value(provenKey{}).(*proven); ok {
		return p.prove(c)
	}
	nonce, signature, ok := signatureOf(r)
	if !ok {
		return unsigned("The credential of this device requires a signature: get a nonce from " +
			PathChallenge + ", sign it, and send it in " + HeaderSignature + ".")
	}
	if len(c.PublicKey) != ed25519.PublicKeySize ||
		!ed25519.Verify(c.PublicKey, SignedText(nonce, c.DeviceID), signature) {
		return unsigned("The signature is not valid for this device.")
	}
	fresh, err := s.cfg.Store.TakeNonce(ctx, c.Tenant, nonceOwner(c.ID, nonce), nonce)
	if err != nil {
		return err
	}
	if !fresh {
		return unsigned("The nonce of the signature was already used or has expired. Get another nonce.")
	}
	return nil
}

func unsigned(text string) error { return registry.Errorf(registry.CodeUnauthenticated, "%s", text) }

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

// Device is a paired device with its tools.
type Device struct {
	registry.Credential
	registry.DeviceTools
}

// Pins returns the tools that were approved with a definition.
func (d Device) Pins() (all []registry.ApprovedTool) {
	for _, a := range d.Approved {
		if a.Hash != "" && a.Hash != hashRejected {
			all = append(all, a)
		}
	}
	return all
}

// Rejected returns the names of tools that the device must not offer.
func (d Device) Rejected() (names []string) {
	for _, a := range d.Approved {
		if a.Hash == hashRejected {
			names = append(names, a.Name)
		}
	}
	return names
}

// Device returns a paired device that the approver may see, by the id of its credential or by its device_id.
func (s *Service) Device(ctx context.Context, by Approver, id string) (Device, error) {
	c, err := s.find(ctx, by, id)
	if err != nil {
		return Device{}, err
	}
	tools, err := s.cfg.Store.DeviceTools(ctx, c.Tenant, c.ID)
	tools.Waiting = undecided(c, tools.Waiting)
	tools.Pinned = slices.DeleteFunc(tools.Pinned, func(t registry.ToolSpec) bool {
		hash, _ := pinOf(c.Approved, t.Name)
		return hash != t.Hash()
	})
	return Device{c, tools}, err
}

// undecided returns the stored waiting tools of a device without those that were decided after it registered them.
func undecided(c registry.Credential, waiting []registry.ToolSpec) []registry.ToolSpec {
	return slices.DeleteFunc(waiting, func(t registry.ToolSpec) bool {
		hash, ok := pinOf(c.Approved, t.Name)
		return ok && (hash == t.Hash() || hash == hashRejected)
	})
}

// waitingReads bounds how many devices' tools are read at a time: up to registry.MaxDeviceDefinitions bytes each.
const waitingReads = 8

// WaitingTools returns how many tools of each of these paired devices wait for approval.
func (s *Service) WaitingTools(ctx context.Context, devices ...registry.Credential) ([]int, error) {
	counts := make([]int, len(devices))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err := parallel.Each(len(devices), waitingReads, func(i int) error {
		c := devices[i]
		tools, err := s.cfg.Store.DeviceTools(ctx, c.Tenant, c.ID)
		if err != nil {
			stop() // the others are of no use
		}
		counts[i] = len(undecided(c, tools.Waiting))
		return err
	})
	return counts, err
}

func (s *Service) find(ctx context.Context, by Approver, id string) (registry.Credential, error) {
	c, err := s.cfg.Store.Credential(ctx, by.Tenant, id)
	if err != nil && !errors.Is(err, registry.CodeNotFound) {
		return c, err
	}
	if err == nil && c.Kind == registry.CredentialDevice && by.Sees(c.User) {
		return c, nil
	}
	paired, err := s.cfg.Store.PairedDevices(ctx, by.Tenant, id)
	if err == nil && (len(paired) == 0 || !by.Sees(paired[0].User)) {
		err = errNoDevice()
	}
	if err != nil {
		return c, err
	}
	return paired[0], nil
}

func errNoDevice() error {
	return registry.Errorf(registry.CodeNotFound, "No paired device has this id.")
}

// Rename changes the name of a paired device.
func (s *Service) Rename(ctx context.Context, by Approver, id, name string) (Device, error) {
	if err := (registry.Session{Name: name}).ValidateAttributes(); err != nil {
		return Device{}, err
	}
	d, err := s.Device(ctx, by, id)
	if err != nil {
		return Device{}, err
	}
	d.Credential, err = s.cfg.Store.UpdateCredential(ctx, d.Tenant, d.ID, func(c *registry.Credential) error {
		c.Name = name
		return nil
	})
	return d, gone(err)
}

// Revoke removes the credential of a paired device. The device's socket, on any pod, is closed soon.
func (s *Service) Revoke(ctx context.Context, by Approver, id string) error {
	c, err := s.find(ctx, by, id)
	if err != nil {
		return err
	}
	// First, so that the device cannot pair itself again meanwhile with the code that it has.
	if err := s.cfg.Store.VoidSetups(ctx, c.Tenant, c.DeviceID); err != nil {
		return err
	}
	_, err = s.cfg.Store.RevokeCredential(ctx, c.Tenant, c.ID)
	if errors.Is(err, registry.CodeNotFound) { // it has used its code again since; any later use fails
		var again registry.Credential
		if again, err = s.find(ctx, by, id); err == nil {
			_, err = s.cfg.Store.RevokeCredential(ctx, again.Tenant, again.ID)
		}
	}
	if err != nil {
		return gone(err)
	}
	s.cfg.Log.Info("a paired device was revoked", "device", c.DeviceID, "credential", c.ID, "tenant", c.Tenant,
		"by", nameOf(by.Identity))
	paired := registry.Session{DeviceID: c.DeviceID, UserID: c.User, Bound: true}
	before := registry.Session{DeviceID: c.DeviceID, UserID: c.User} // others who chose the id have other devices
	return errors.Join(s.cfg.Store.SetDeviceTools(ctx, c.Tenant, c.ID, registry.DeviceTools{}),
		s.cfg.Store.ForgetDevice(ctx, c.Tenant, paired.DeviceKey(), before.DeviceKey()))
}

// gone maps a device that was revoked meanwhile to errNoDevice.
func gone(err error) error {
	if errors.Is(err, registry.CodeNotFound) {
		return errNoDevice()
	}
	return err
}

// ApproveTools approves waiting tools by the hash of their definition, and rejects others by name. The hash must be
// that of the waiting definition, so an approver approves what it saw. A connected device soon registers its tools
// again, on any pod.
func (s *Service) ApproveTools(
	ctx context.Context, by Approver, id string, approve []registry.ApprovedTool, reject []string,
) (Device, error) {
	d, err := s.Device(ctx, by, id)
	if err != nil {
		return Device{}, err
	}
	for _, t := range approve {
		if err := checkScope(by, t.Name); err != nil {
			return Device{}, err
		}
		if !slices.ContainsFunc(d.Waiting, func(w registry.ToolSpec) bool {
			return w.Name == t.Name && w.Hash() == t.Hash
		}) {
			return Device{}, registry.Errorf(registry.CodeInvalidRequest,
				"approve: no tool %.80q with this hash waits. It may have changed: list the tools again.", t.Name)
		}
	}
	for _, name := range reject {
		if err := checkGlob(name); err != nil || isGlob(name) {
			return Device{}, registry.Errorf(registry.CodeInvalidRequest, "reject: %.80q is not a tool name.", name)
		}
	}
	d.Credential, err = s.cfg.Store.UpdateCredential(ctx, d.Tenant, d.ID, func(c *registry.Credential) error {
		for _, name := range reject {
			c.Approved = pin(c.Approved, registry.ApprovedTool{Name: name, Hash: hashRejected})
		}
		for _, t := range approve {
			c.Approved = pin(c.Approved, t)
		}
		return nil
	})
	if err != nil {
		return Device{}, gone(err)
	}
	s.cfg.Log.Info("tools of a paired device decided", "device", d.DeviceID, "credential", d.ID,
		"tenant", d.Tenant, "by", nameOf(by.Identity), "approved", len(approve), "rejected", len(reject))
	return s.Device(ctx, by, d.ID)
}
