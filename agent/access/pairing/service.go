package pairing

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// Mode says who may ask to be paired.
type Mode string

// The modes.
const (
	ModeOff  Mode = "off"  // nobody
	ModeCode Mode = "code" // every device; whoever approves it needs its code, which makes it a device of their tenant
	ModeOpen Mode = "open" // as before, and approvers of the default tenant see every request, and need no code
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{ModeOff, ModeCode, ModeOpen} }

// DefaultTTL is how long a request waits unless Config says otherwise.
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
	TTL   time.Duration // of a request, until it is decided, and from then until it is collected; default 5 min
	Log   *slog.Logger  // default: discard
	Audit auth.Auditor  // has who asked; default: nobody

	// Ended asks the store why an identity has ended: it was revoked, or nobody knows. Nil: none ends. A request whose
	// approver or user was revoked after it was made brings its device nothing.
	Ended func(context.Context, *auth.Identity) error
}

// Service pairs devices. It is safe for concurrent use. What it knows is in the store, but for who asked lately.
type Service struct {
	cfg  Config
	asks *auth.Buckets[netip.Prefix] // by source

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

// Open reports whether devices may ask without a code, and wait to be approved by approvers of the default tenant.
func (s *Service) Open() bool { return s.cfg.Mode == ModeOpen }

// Paired reports whether a device with an id is paired: then only its credential may say that it is that device.
func (s *Service) Paired(ctx context.Context, tenant, deviceID string) (bool, error) {
	all, err := s.cfg.Store.PairedDevices(ctx, tenant, deviceID)
	return len(all) > 0, err
}

// nameOf returns how logs and records name who did something: the credential, or the user.
func nameOf(id auth.Identity) string {
	if id.Credential != "" {
		return id.Credential
	}
	if id.User != "" {
		return "user:" + id.User
	}
	return "anonymous"
}
