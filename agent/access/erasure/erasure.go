// Package erasure erases what the gateway stores about a person, and says what it keeps and until when. Start with
// Service.Erase.
package erasure

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Config configures a Service. Store is required.
type Config struct {
	Store registry.Store

	// Lives of what is kept.
	AuditTTL, ChangeTTL, ActivityTTL, HistoryTTL, PlaceTTL, SessionTTL time.Duration

	// BlobTTL is how long the store remembers that the person's uploads were erased: longer than any upload lives.
	// Default: 1 h more than the default life of an upload.
	BlobTTL time.Duration

	Now func() time.Time // default: time.Now
}

// Service erases persons. It is safe for concurrent use.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.BlobTTL = cmp.Or(cfg.BlobTTL, 2*time.Hour)
	return &Service{cfg}
}

// Session is a session or conversation of a person.
type Session struct {
	Key          registry.Key
	Connected    *registry.Session // nil: it is not connected
	Conversation registry.ConversationInfo
}

// End ends a session, and erases its conversation with its places and files.
type End func(context.Context, Session) error

// Receipt says what was erased. It does not name the person.
type Receipt struct {
	ID string

	// Subject is the first 16 hexadecimal digits of the SHA-256 of the receipt's id, the tenant and the user, separated
	// by line feeds. With the receipt, a person can show that it is about them.
	Subject string

	At     time.Time
	Erased map[string]int // by kind
	Kept   []Kept
}

// Kept is what still names the person, at most until a time.
type Kept struct {
	What  string
	Until time.Time
}

// subjectOf returns Receipt.Subject.
func subjectOf(id, tenant, user string) string {
	sum := sha256.Sum256([]byte(id + "\n" + tenant + "\n" + user))
	return hex.EncodeToString(sum[:8])
}

// Erase erases what is stored about a user of a tenant. First it revokes all credentials and tokens of the user, so
// that nothing new begins. If it fails, or ctx ends, some is erased; the next attempt erases the rest. Pods that are
// away remove the workspaces of erased conversations when they come back.
func (s *Service) Erase(ctx context.Context, tenant, user string, end End) (Receipt, error) {
	random := make([]byte, 12)
	_, _ = rand.Read(random) // never fails
	r := Receipt{ID: hex.EncodeToString(random), Erased: make(map[string]int), At: s.cfg.Now().UTC()}
	r.Subject = subjectOf(r.ID, tenant, user)
	for _, step := range []func(context.Context, string, string, Receipt) error{
		s.credentials,
		func(ctx context.Context, tenant, user string, r Receipt) error {
			return s.sessions(ctx, tenant, user, r, end)
		},
		func(ctx context.Context, tenant, user string, r Receipt) error {
			return s.conversations(ctx, tenant, user, r, end)
		},
		s.grants, s.found,
	} {
		if err := step(ctx, tenant, user, r); err != nil {
			return r, err
		}
	}
	r.Kept = s.kept(r.At)
	return r, nil
}

// kept lists what is not erased. The audit log shows who did what to whom, also to others, so it is kept.
func (s *Service) kept(at time.Time) []Kept {
	return []Kept{
		{"closing sessions: their last state", at.Add(3 * s.cfg.SessionTTL)},
		{"what was spent of the budgets of today and yesterday", at.Add(48 * time.Hour)},
		{"used quotas", at.Add(max(s.cfg.HistoryTTL, registry.ApprovalRetained))},
		{"revocations, which reject tokens that are still valid", at.Add(s.cfg.ChangeTTL)},
		{"activity feed: earlier lines", at.Add(s.cfg.ActivityTTL)},
		{"workspaces outside of conversations", at.Add(s.cfg.PlaceTTL)},
		{"audit log, also of the default tenant: earlier lines", at.Add(s.cfg.AuditTTL)},
	}
}

// credentials revokes everything of the user, and removes the tools of the user's paired devices.
func (s *Service) credentials(ctx context.Context, tenant, user string, r Receipt) error {
	q := registry.CredentialQuery{Tenant: tenant, User: user}
	for {
		page, next, err := s.cfg.Store.Credentials(ctx, q)
		if err != nil {
			return err
		}
		for _, c := range page {
			kind := "keys"
			if c.Kind == registry.CredentialDevice {
				kind = "devices"
				if err := s.cfg.Store.SetDeviceTools(ctx, tenant, c.ID, registry.DeviceTools{}); err != nil {
					return err
				}
			}
			r.Erased[kind]++
		}
		if next == "" {
			break
		}
		q.After = next
	}
	_, err := auth.Issuer{Store: s.cfg.Store}.Revoke(ctx, tenant, registry.ChangeUser, user)
	return err
}

// sessions ends the user's connected sessions.
func (s *Service) sessions(ctx context.Context, tenant, user string, r Receipt, end End) error {
	q := registry.Query{Tenant: tenant, Target: registry.Target{UserID: user}}
	for {
		page, next, err := s.cfg.Store.List(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page {
			if e.Session.UserID != user {
				continue
			}
			infos, err := s.cfg.Store.DescribeConversations(ctx, e.Session.Key)
			if err != nil {
				return err
			}
			session := e.Session
			err = end(ctx, Session{Key: e.Session.Key, Connected: &session, Conversation: infos[0]})
			if err != nil && !isGone(err) {
				return err
			}
			r.Erased["sessions"]++
			if infos[0].Messages > 0 {
				r.Erased["conversations"]++
			}
		}
		if next == nil {
			return nil
		}
		q.After = *next
	}
}

// isGone reports whether there was nothing to end: the revocation was faster.
func isGone(err error) bool {
	return errors.Is(err, registry.CodeNotConnected) || errors.Is(err, registry.CodeSessionNotFound)
}

// conversations erases the user's conversations, also of devices that are gone.
func (s *Service) conversations(ctx context.Context, tenant, user string, r Receipt, end End) error {
	q := registry.ConversationQuery{Tenant: tenant}
	for {
		page, next, err := s.cfg.Store.ListConversations(ctx, q)
		if err != nil {
			return err
		}
		for _, info := range page {
			if info.Owner.UserID != user {
				continue
			}
			if err := end(ctx, Session{Key: info.Key, Conversation: info}); err != nil && !isGone(err) {
				return err
			}
			r.Erased["conversations"]++
		}
		if next == nil {
			return nil
		}
		q.After = *next
	}
}

// grants revokes the grants that the user got, gave, or whose device they are about.
func (s *Service) grants(ctx context.Context, tenant, user string, r Receipt) error {
	all, err := s.cfg.Store.Grants(ctx, tenant)
	if err != nil {
		return err
	}
	for _, g := range all {
		if g.Requester.User != user && g.Owner != user && g.GrantedBy != user && g.GrantedBy != "user:"+user {
			continue
		}
		if err := s.cfg.Store.RevokeGrant(ctx, g); err != nil && !errors.Is(err, registry.CodeNotFound) {
			return err
		}
		r.Erased["grants"]++
	}
	return nil
}

// found erases what the store finds by the user.
func (s *Service) found(ctx context.Context, tenant, user string, r Receipt) error {
	for _, kind := range registry.PersonalKinds() {
		n, err := s.cfg.Store.EraseOf(ctx, tenant, user, kind)
		if r.Erased[string(kind)] += n; err != nil {
			return err
		}
	}
	queued, err := s.cfg.Store.EraseQueued(ctx, tenant, user)
	if len(queued) > 0 {
		r.Erased["queued_calls"] += len(queued)
	}
	if err != nil {
		return err
	}
	if err = s.cfg.Store.ForgetDevices(ctx, tenant, user); err != nil {
		return err
	}
	uploads := registry.Uploader{Tenant: tenant, Key: registry.Requester{User: user}.Key()}.Session()
	return s.cfg.Store.DropBlobsOf(ctx, registry.Key{Tenant: tenant, Session: uploads}, s.cfg.BlobTTL)
}
