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

// Bounds of wrong codes within guessWindow, in the whole fleet. A code has 40 bits and lives minutes: with all of them
// used up, the chance to hit one of a thousand codes that wait is about one in a million. Each tenant has at most a
// part of what is left of all, and each approver of what is left of the tenant, so few of them keep no other from a
// right code.
const (
	guessWindow       = 5 * time.Minute
	guessesOfSource   = 10 // of one tenant
	guessesOfApprover = 20
	guessesOfTenant   = 100
	guessesOfAll      = 1000

	approverShare = 4
	tenantShare   = 8
)

// Approver is who decides, and from where.
type Approver struct {
	auth.Identity
	Source string
}

// Decision is what an approver decides.
type Decision struct {
	Approve bool
	User    string   // whose device it becomes; empty: the approver's, or nobody's in particular if they have none
	Name    string   // for people; empty: as the device calls itself
	Tools   []string // names or globs of tools it may offer; nil: those it asked for
	Replace bool     // a device with this id that is paired already loses its credential
}

// View is what an approver sees of a request.
type View struct {
	registry.Pairing
	Known bool // a device with this id is paired already

	// LooksLike is another device id that a person may take this one for: that of a paired device or, if there is none,
	// of another request that waits. Empty: there is none that the approver may see.
	LooksLike string
	Remarks   []string // what to look at twice in the id
}

// Find returns the request with a code that waits. A wrong code is counted, for the approver, the source, the tenant
// and everybody. A code that was used already is registry.ErrPairingDecided, and is not counted.
func (s *Service) Find(ctx context.Context, by Approver, code string) (View, error) {
	p, err := s.byCode(ctx, by, code)
	if err != nil {
		return View{}, err
	}
	return s.view(ctx, by, p)
}

// view adds what the approver should know of one request.
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
		s.cfg.Log.Warn("a wrong pairing code", "by", nameOf(by.Identity), "tenant", by.Tenant, "source", by.Source)
		return p, registry.Errorf(registry.CodeNotFound,
			"No device waits with this code. Codes are good for one device and a few minutes: look at it again.")
	}
	return p, err
}

// views adds what the approver should know, also of others that wait.
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

// Decide decides the request with an id. Without the code it must be one of those that Waiting returns. The first
// decision counts, on whatever pod; a later one is CodeInvalidRequest.
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
	decided, err := s.cfg.Store.DecidePairing(ctx, p.ID, decision, s.cfg.TTL)
	if err != nil {
		return View{}, err
	}
	for _, c := range replaced {
		if _, err := s.cfg.Store.RevokeCredential(ctx, c.Tenant, c.ID); err != nil &&
			!errors.Is(err, registry.CodeNotFound) {
			return View{}, err
		}
	}
	s.cfg.Log.Info("a request to pair was decided", "pairing", p.ID, "device", p.DeviceID, "approved", d.Approve,
		"tenant", by.Tenant, "by", decision.By)
	view, err := s.view(ctx, by, decided)
	if err != nil { // it is decided, and only what is said beside it is missing
		view = View{Pairing: decided}
	}
	view.Known = len(replaced) > 0
	return view, nil
}

// decidable returns a request that the approver may decide.
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

// approval returns the decision to approve a request.
func approval(by Approver, p registry.Pairing, d Decision) (registry.PairingDecision, error) {
	made := registry.PairingDecision{
		Approved: true, Tenant: by.Tenant, User: d.User, Name: d.Name, Tools: d.Tools,
		By: nameOf(by.Identity), ByUser: by.User,
	}
	if made.User == "" {
		made.User = by.Viewer()
	}
	if viewer := by.Viewer(); viewer != "" && made.User != viewer {
		return made, registry.Errorf(registry.CodeForbidden,
			"user: you may pair devices for yourself only; an admin may for others.")
	}
	if by.Device != "" && by.Device != p.DeviceID {
		return made, registry.Errorf(registry.CodeForbidden,
			"Your credential is bound to the device %q, so it speaks for no other one.", by.Device)
	}
	if policy.Join(policy.Context(by.Context), policy.Main) != policy.Main {
		return made, registry.Errorf(registry.CodeForbidden,
			"Your credential is for conversations of the kind %q only, and those of a paired device would be of "+
				"another. Approve it with another credential.", by.Context)
	}
	if made.Name == "" {
		made.Name = p.DeviceName
	}
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

// replaceable returns the credentials of a device id that the new one takes the place of.
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
				"A device of another user has this id. The device must ask with another device_id.")
		}
	}
	if !replace {
		return nil, registry.Errorf(registry.CodeInvalidRequest,
			"A device with the id %s is paired already. If this is the same device, approve it with replace; the "+
				"credential it has then ends.", deviceID)
	}
	return all, nil
}

// maxGlob is how long a name or glob of a tool may be, in bytes.
const maxGlob = 192

// checkGlob refuses what is neither a name nor a glob: * and ? are the only special characters.
func checkGlob(glob string) error {
	if glob == "" || len(glob) > maxGlob || !utf8.ValidString(glob) || strings.ContainsAny(glob, "[]\\/ ,\t\r\n") {
		return registry.Errorf(registry.CodeInvalidRequest, "tools: %.80q is no name or glob of a tool.", glob)
	}
	attributes := registry.Session{Name: glob} // no invisible characters
	return attributes.ValidateAttributes()
}

func isGlob(text string) bool { return strings.ContainsAny(text, "*?") }

func matches(glob, name string) bool {
	ok, err := path.Match(glob, name)
	return ok && err == nil
}

// covers reports whether every name that a glob matches is matched by one of the globs of a credential, separated by
// spaces; none is no restriction. It may say no to what is covered in a roundabout way.
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

// unlikely is a character that no glob has: only a wildcard matches it.
const unlikely = "\x01"

// checkScope refuses a tool that the approver's own credential is not good for.
func checkScope(by Approver, glob string) error {
	if covers(by.Tools, glob) {
		return nil
	}
	return registry.Errorf(registry.CodeForbidden, "tools: your credential is restricted to %q, so it cannot let a "+
		"device offer %q. Name the tools it may offer, or have another approver decide.", by.Tools, glob)
}
