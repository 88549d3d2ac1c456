package pairing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// Limits of wrong codes within guessWindow, for all pods together. With all guesses used up, the chance to hit one of a
// thousand waiting codes of 40 bits is about one in a million. A tenant gets at most 1/tenantShare of all remaining
// guesses, and an approver at most 1/approverShare of its tenant's, so a few cannot block the others' right codes.
const (
	guessWindow       = 5 * time.Minute
	guessesOfSource   = 10 // per tenant
	guessesOfApprover = 20
	guessesOfTenant   = 100
	guessesOfAll      = 1000

	approverShare = 4
	tenantShare   = 8
)

// Approver is the deciding identity and its source.
type Approver struct {
	auth.Identity
	Source string
}

// Decision is an approver's decision.
type Decision struct {
	Approve bool
	User    string   // owner of the device; empty: the approver's user, or none if it has none
	Name    string   // for people; empty: the device's own name
	Tools   []string // names or globs of tools it may offer; nil: those it asked for
	Replace bool     // revoke the credential of a paired device with this id
}

// View is a request as an approver sees it.
type View struct {
	registry.Pairing
	Known bool // a device with this id is already paired

	// LooksLike is another device id that a person may confuse with this one: that of a paired device or, if there is
	// none, that of another waiting request. Empty: none that the approver may see.
	LooksLike string
	Remarks   []string // what to check in the id
}

// Find returns the waiting request with a code. A wrong code counts against the limits of the approver, the source, the
// tenant and the gateway. A used code returns registry.ErrPairingDecided and does not count.
func (s *Service) Find(ctx context.Context, by Approver, code string) (View, error) {
	p, err := s.byCode(ctx, by, code)
	if err != nil {
		return View{}, err
	}
	return s.view(ctx, by, p)
}

func (s *Service) view(ctx context.Context, by Approver, p registry.Pairing) (View, error) {
	waiting, err := s.cfg.Store.Pairings(ctx, by.Tenant)
	if err != nil {
		return View{}, err
	}
	views, err := s.views(ctx, by, waiting, p)
	if err != nil {
		return View{}, err
	}
	return views[0], nil
}

func (s *Service) byCode(ctx context.Context, by Approver, typed string) (registry.Pairing, error) {
	code := readCode(typed)
	if code == "" {
		return registry.Pairing{}, registry.Errorf(registry.CodeInvalidRequest,
			"code: must be the %d letters and digits that the device shows, as in ABCD-2345.", codeLength)
	}
	guess := func(limit, share int, format string, args ...any) registry.Guess {
		return registry.Guess{Name: fmt.Sprintf(format, args...), Limit: limit, Window: guessWindow, Share: share}
	}
	p, err := s.cfg.Store.PairingByCode(ctx, codeDigest(code),
		guess(guessesOfSource, 0, "source/%s/%s", by.Tenant, by.Source),
		guess(guessesOfApprover, approverShare, "approver/%s/%s/%s", by.Tenant, by.Credential, by.User),
		guess(guessesOfTenant, tenantShare, "tenant/%s", by.Tenant), guess(guessesOfAll, 0, "all"))
	if errors.Is(err, registry.CodeNotFound) {
		s.cfg.Log.Warn("wrong pairing code", "by", nameOf(by.Identity), "tenant", by.Tenant, "source", by.Source)
		return p, registry.Errorf(registry.CodeNotFound,
			"No device waits with this code. A code is valid for one device and a few minutes: check it on the device.")
	}
	return p, err
}

// views adds what the approver should know, also about other waiting requests.
func (s *Service) views(
	ctx context.Context, by Approver, waiting []registry.Pairing, all ...registry.Pairing,
) ([]View, error) {
	ids := make([]string, len(all))
	for i, p := range all {
		ids[i] = p.DeviceID
	}
	paired, err := s.cfg.Store.PairedDevices(ctx, by.Tenant, ids...)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(paired))
	for _, c := range paired {
		known[c.DeviceID] = true
	}
	likePaired, err := s.LookAlikes(ctx, by, ids...)
	if err != nil {
		return nil, err
	}
	likeWaiting := newAlike(s.looksOf, ids...)
	for _, p := range waiting {
		likeWaiting.offer(p.DeviceID)
	}
	views := make([]View, len(all))
	for i, p := range all {
		views[i] = View{p, known[p.DeviceID], likePaired[p.DeviceID], remarksOf(p.DeviceID)}
		if like := likeWaiting.found[p.DeviceID]; views[i].LooksLike == "" && len(like) > 0 {
			views[i].LooksLike = like[0]
		}
	}
	return views, nil
}

// Waiting returns the requests that an approver may decide without a code.
func (s *Service) Waiting(ctx context.Context, by Approver) ([]View, error) {
	all, err := s.cfg.Store.Pairings(ctx, by.Tenant)
	if err != nil {
		return nil, err
	}
	return s.views(ctx, by, all, all...)
}

// Decide decides the request with an id. Without the code, it must be one that Waiting returns. The first decision
// counts, on any pod. Later ones fail with CodeInvalidRequest.
func (s *Service) Decide(ctx context.Context, by Approver, id, code string, d Decision) (View, error) {
	p, err := s.decidable(ctx, by, id, code)
	if err != nil {
		return View{}, err
	}
	decision := registry.PairingDecision{Tenant: by.Tenant, By: nameOf(by.Identity)}
	var replaced []registry.Credential
	if d.Approve {
		if decision, err = approval(by, p, d); err != nil {
			return View{}, err
		}
		if replaced, err = s.replaceable(ctx, by, p.DeviceID, d.Replace); err != nil {
			return View{}, err
		}
	}
	life := s.cfg.TTL
	if p.Code != "" {
		life = max(life, nodeDecided)
	}
	decided, err := s.cfg.Store.DecidePairing(ctx, p.ID, decision, life)
	if err != nil {
		return View{}, err
	}
	for _, c := range replaced {
		if _, err := s.cfg.Store.RevokeCredential(ctx, c.Tenant, c.ID); err != nil &&
			!errors.Is(err, registry.CodeNotFound) {
			return View{}, err
		}
	}
	s.cfg.Log.Info("a pairing request was decided", "pairing", p.ID, "device", p.DeviceID, "approved", d.Approve,
		"tenant", by.Tenant, "by", decision.By)
	view, err := s.view(ctx, by, decided)
	if err != nil { // it is decided; only the extra information is missing
		view = View{Pairing: decided}
	}
	view.Known = len(replaced) > 0
	return view, nil
}

func (s *Service) decidable(ctx context.Context, by Approver, id, code string) (registry.Pairing, error) {
	if code == "" {
		p, err := s.cfg.Store.Pairing(ctx, id)
		if err == nil && p.Tenant != by.Tenant {
			err = registry.ErrNoPairing
		}
		return p, err
	}
	p, err := s.byCode(ctx, by, code)
	if err == nil && id != "" && p.ID != id {
		err = registry.ErrNoPairing
	}
	return p, err
}

func approval(by Approver, p registry.Pairing, d Decision) (registry.PairingDecision, error) {
	made := registry.PairingDecision{
		Approved: true, Tenant: by.Tenant, User: d.User, Name: d.Name, Tools: d.Tools,
		By: nameOf(by.Identity), ByUser: by.User,
	}
	made.User = cmp.Or(made.User, by.Viewer())
	if viewer := by.Viewer(); viewer != "" && made.User != viewer {
		return made, registry.Errorf(registry.CodeForbidden,
			"user: only an admin may pair devices for other users.")
	}
	if by.Device != "" && by.Device != p.DeviceID {
		return made, registry.Errorf(registry.CodeForbidden,
			"Your credential is bound to the device %q and cannot approve other devices.", by.Device)
	}
	if policy.Join(policy.Context(by.Context), policy.Main) != policy.Main {
		return made, registry.Errorf(registry.CodeForbidden,
			"Your credential is restricted to %q conversations, but a paired device would have others. "+
				"Approve the device with another credential.", by.Context)
	}
	made.Name = cmp.Or(made.Name, p.DeviceName)
	if made.Tools == nil {
		made.Tools = p.Tools
	}
	attributes := registry.Session{UserID: made.User, Name: made.Name}
	if err := attributes.ValidateAttributes(); err != nil {
		return made, err
	}
	if len(made.Tools) > registry.MaxPairingTools {
		return made, registry.Errorf(registry.CodeInvalidRequest, "tools: at most %d are allowed.",
			registry.MaxPairingTools)
	}
	for _, glob := range made.Tools {
		if err := cmp.Or(checkGlob(glob), checkScope(by, glob)); err != nil {
			return made, err
		}
	}
	return made, nil
}

// replaceable returns the credentials of a device id that the new credential replaces.
func (s *Service) replaceable(
	ctx context.Context, by Approver, deviceID string, replace bool,
) ([]registry.Credential, error) {
	all, err := s.cfg.Store.PairedDevices(ctx, by.Tenant, deviceID)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	for _, c := range all {
		if !by.Sees(c.User) {
			return nil, registry.Errorf(registry.CodeForbidden,
				"A device of another user has this id. The device must use another device_id.")
		}
	}
	if !replace {
		return nil, registry.Errorf(registry.CodeInvalidRequest,
			"A device with the id %s is already paired. If it is the same device, approve it with replace; "+
				"this revokes its current credential.", deviceID)
	}
	return all, nil
}

const maxGlob = 192 // bytes of a tool name or glob

// checkGlob rejects text that is neither a name nor a glob. Only * and ? are special characters.
func checkGlob(glob string) error {
	if glob == "" || len(glob) > maxGlob || !utf8.ValidString(glob) || strings.ContainsAny(glob, "[]\\/ ,\t\r\n") {
		return registry.Errorf(registry.CodeInvalidRequest, "tools: %.80q is not a tool name or glob.", glob)
	}
	return registry.Session{Name: glob}.ValidateAttributes() // rejects invisible characters
}

func isGlob(text string) bool { return strings.ContainsAny(text, "*?") }

func matches(glob, name string) bool {
	ok, _ := path.Match(glob, name) // false with an error
	return ok
}

// covers reports whether a credential's globs, separated by spaces, match every name that glob matches. Empty scopes
// are no restriction. It may return false for a glob that is covered in a complicated way.
func covers(scopes, glob string) bool {
	if scopes == "" {
		return true
	}
	for scope := range strings.FieldsSeq(scopes) {
		if scope == glob {
			return true
		}
		clear := !strings.Contains(glob, "*") || !strings.Contains(scope, "?")
		if clear && !strings.Contains(scope, unlikely) &&
			matches(scope, strings.NewReplacer("*", unlikely, "?", unlikely).Replace(glob)) {
			return true
		}
	}
	return false
}

// unlikely is a character that no glob contains: only a wildcard matches it.
const unlikely = "\x01"

// checkScope rejects a tool that the approver's own credential does not cover.
func checkScope(by Approver, glob string) error {
	if covers(by.Tools, glob) {
		return nil
	}
	return registry.Errorf(registry.CodeForbidden, "tools: your credential is restricted to %q and cannot approve "+
		"%q. Name the tools that the device may offer, or have another approver decide.", by.Tools, glob)
}
