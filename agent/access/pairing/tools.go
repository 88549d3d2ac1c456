package pairing

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// An approved tool has one of two forms: a name with the hash of its definition, or a name or glob without a hash. In
// the second form, the first definition that the device registers is pinned.

// hashRejected replaces the hash of a tool that the device must not offer, with any definition and even if a glob
// matches its name. It is not a hash.
const hashRejected = "rejected"

const (
	maxWaiting      = registry.MaxDeviceDefinitions / 2 // bytes of waiting definitions per device
	maxWaitingTools = 512                               // waiting tools per device; each frame with tools scans all
)

const reasonRejected = "was rejected by an approver"

func pinOf(all []registry.ApprovedTool, name string) (hash string, ok bool) {
	for _, a := range all {
		if a.Name == name && a.Hash != "" {
			return a.Hash, true
		}
	}
	return "", false
}

// pin adds a pinned tool. It replaces an earlier definition of the same name.
func pin(all []registry.ApprovedTool, t registry.ApprovedTool) []registry.ApprovedTool {
	all = slices.DeleteFunc(all, func(a registry.ApprovedTool) bool { return a.Name == t.Name && a.Hash != "" })
	return append(all, t)
}

// mayPin reports whether the first definition of a tool is approved in advance.
func mayPin(all []registry.ApprovedTool, name string) bool {
	if _, known := pinOf(all, name); known {
		return false
	}
	return slices.ContainsFunc(all, func(a registry.ApprovedTool) bool { return a.Hash == "" && matches(a.Name, name) })
}

// Reviewed says which tools a device may offer.
type Reviewed struct {
	Offer   []registry.ToolSpec
	Waiting []Waiting
	Bytes   int // of the definitions that were read and written for it
}

// Waiting is a tool that the device may not offer: it waits for an approver, was rejected, or too many others wait.
type Waiting struct {
	registry.ToolSpec
	Reason string // for the device
}

// IsPaired reports whether the identity is a paired device, whose tools need review.
func IsPaired(id auth.Identity) bool { return strings.HasPrefix(id.Credential, credentialPrefix) }

// Review returns which of the tools that a paired device registers it may offer. It stores the others for approvers.
// For a name that was approved in advance, the first definition is pinned. A different definition waits, and the
// earlier one is no longer offered.
func (s *Service) Review(ctx context.Context, id auth.Identity, tools []registry.ToolSpec) (Reviewed, error) {
	credential := strings.TrimPrefix(id.Credential, credentialPrefix)
	c, err := s.cfg.Store.Credential(ctx, id.Tenant, credential)
	if err != nil {
		return Reviewed{}, err
	}
	if slices.ContainsFunc(tools, func(t registry.ToolSpec) bool { return mayPin(c.Approved, t.Name) }) {
		changed, err := s.cfg.Store.UpdateCredential(ctx, id.Tenant, credential, func(c *registry.Credential) error {
			for _, t := range tools {
				if mayPin(c.Approved, t.Name) {
					c.Approved = pin(c.Approved, registry.ApprovedTool{Name: t.Name, Hash: t.Hash()})
				}
			}
			return nil
		})
		if err == nil {
			c = changed
		} else if !errors.Is(err, registry.CodeInvalidRequest) { // CodeInvalidRequest: no room for more; these wait
			return Reviewed{}, err
		}
	}
	known, err := s.cfg.Store.DeviceTools(ctx, id.Tenant, credential)
	if err != nil {
		return Reviewed{}, err
	}
	kept, reviewed := review(c.Approved, known, tools)
	reviewed.Bytes = known.Size()
	same := func(a, b registry.ToolSpec) bool { return a.Name == b.Name && a.Hash() == b.Hash() }
	if !slices.EqualFunc(kept.Waiting, known.Waiting, same) || !slices.EqualFunc(kept.Pinned, known.Pinned, same) {
		reviewed.Bytes += kept.Size()
		err = s.cfg.Store.SetDeviceTools(ctx, id.Tenant, credential, kept)
		if errors.Is(err, registry.ErrManyWaiting) {
			kept.Waiting = reviewed.forget(kept.Waiting, known.Waiting)
			err = s.cfg.Store.SetDeviceTools(ctx, id.Tenant, credential, kept)
		}
	}
	return reviewed, err
}

// forget returns the waiting tools that waited before. The device learns that the others are not stored.
func (r *Reviewed) forget(waiting, before []registry.ToolSpec) []registry.ToolSpec {
	hash := make(map[string]string, len(before))
	for _, t := range before {
		hash[t.Name] = t.Hash()
	}
	stored := func(t registry.ToolSpec) bool { return hash[t.Name] == t.Hash() }
	for i, w := range r.Waiting {
		if w.Reason != reasonRejected && !stored(w.ToolSpec) {
			r.Waiting[i].Reason = "too many tools of this tenant wait for approval"
		}
	}
	return slices.DeleteFunc(waiting, func(t registry.ToolSpec) bool { return !stored(t) })
}

// Approvals has the approved and the waiting tools of a paired device.
type Approvals struct {
	approved []registry.ApprovedTool
	waiting  []registry.ToolSpec
}

// Approvals returns the approvals of a paired device.
func (s *Service) Approvals(ctx context.Context, id auth.Identity) (Approvals, error) {
	credential := strings.TrimPrefix(id.Credential, credentialPrefix)
	c, err := s.cfg.Store.Credential(ctx, id.Tenant, credential)
	if err != nil {
		return Approvals{}, err
	}
	known, err := s.cfg.Store.DeviceTools(ctx, id.Tenant, credential)
	return Approvals{approved: c.Approved, waiting: known.Waiting}, err
}

// After adds the tools that waited in before to the approvals. When a device has several connections, a tool's waiting
// ends with the first connection that offers it.
func (a Approvals) After(before Approvals) Approvals {
	for _, t := range before.waiting {
		if !slices.ContainsFunc(a.waiting, hasName(t.Name)) {
			a.waiting = append(slices.Clip(a.waiting), t)
		}
	}
	return a
}

// Changes returns the waiting tools that were approved meanwhile, and the names of tools that may no longer be offered.
func (a Approvals) Changes(offered []registry.ToolSpec) (approved []registry.ToolSpec, withdrawn []string) {
	for _, t := range a.waiting {
		if hash, _ := pinOf(a.approved, t.Name); hash == t.Hash() {
			approved = append(approved, t)
		}
	}
	for _, t := range offered {
		if hash, _ := pinOf(a.approved, t.Name); hash != t.Hash() && !slices.ContainsFunc(approved, hasName(t.Name)) {
			withdrawn = append(withdrawn, t.Name)
		}
	}
	return approved, withdrawn
}

// review splits tools into offered and waiting ones. It also returns the definitions to store.
func review(
	approved []registry.ApprovedTool, known registry.DeviceTools, tools []registry.ToolSpec,
) (registry.DeviceTools, Reviewed) {
	kept := registry.DeviceTools{Pinned: slices.Clone(known.Pinned), Waiting: slices.Clone(known.Waiting)}
	var r Reviewed
	for _, t := range tools {
		hash, isPinned := pinOf(approved, t.Name)
		kept.Waiting = slices.DeleteFunc(kept.Waiting, hasName(t.Name))
		switch {
		case isPinned && hash == t.Hash():
			r.Offer = append(r.Offer, t)
			kept.Pinned = append(slices.DeleteFunc(kept.Pinned, hasName(t.Name)), t)
		case hash == hashRejected:
			r.Waiting = append(r.Waiting, Waiting{t, reasonRejected})
		case len(kept.Waiting) >= maxWaitingTools,
			registry.DeviceTools{Waiting: kept.Waiting}.Size()+t.Size() > maxWaiting:
			r.Waiting = append(r.Waiting, Waiting{t, "too many tools of this device wait for approval"})
		case isPinned:
			kept.Waiting = append(kept.Waiting, t)
			r.Waiting = append(r.Waiting, Waiting{t, "waits for approval: it was approved with another definition"})
		default:
			kept.Waiting = append(kept.Waiting, t)
			r.Waiting = append(r.Waiting, Waiting{t, "waits for approval"})
		}
	}
	kept.Pinned = slices.DeleteFunc(kept.Pinned, func(t registry.ToolSpec) bool {
		hash, _ := pinOf(approved, t.Name)
		return hash != t.Hash()
	})
	for len(kept.Pinned) > 0 && kept.Size() > registry.MaxDeviceDefinitions {
		kept.Pinned = kept.Pinned[1:] // still approved; only its old definition can no longer be shown
	}
	return kept, r
}

func hasName(name string) func(registry.ToolSpec) bool {
	return func(t registry.ToolSpec) bool { return t.Name == name }
}

// Remarks about a device id that an approver should check with care.
const (
	remarkForeign = "foreign" // it has characters outside ASCII, which may look like others
	remarkUnusual = "unusual" // it has spaces or signs that are unusual in ids, such as brackets
)

const maxAlike = 64 // look-alikes that are considered per id

// usualSigns are the signs that ids of sessions may have besides letters and digits.
const usualSigns = "._:@~+=-"

func remarksOf(id string) []string {
	unusual := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(usualSigns, r)
	}
	switch {
	case !textsafe.IsASCII(id):
		return []string{remarkForeign}
	case strings.ContainsFunc(id, unusual):
		return []string{remarkUnusual}
	default:
		return nil
	}
}

// checkSpaces rejects a new device id that differs from another only by spaces that a reader overlooks.
func checkSpaces(id string) error {
	if strings.Join(strings.Fields(id), " ") == id {
		return nil
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"device_id: %q begins or ends with a space, or has several in a row. Remove them.", id)
}

// looks returns the skeletons of a device id. Two ids with a common skeleton look alike.
func looks(id string) []string { return textsafe.AnySkeletons(strings.ReplaceAll(id, " ", "")) }

// looksOf is looks with a cache: each list compares its ids with all paired devices of a tenant.
func (s *Service) looksOf(id string) []string {
	if known, ok := s.looks.Get(id); ok {
		return known
	}
	found := looks(id)
	size := len(id) + lookCost
	for _, look := range found {
		size += len(look) + lookCost
	}
	s.looks.Put(id, found, size)
	return found
}

const (
	looksBytes = 4 << 20 // of cached looks, per generation; there are two
	lookCost   = 64      // bytes besides the text of each
)

type alike struct {
	looks  func(id string) []string
	byLook map[string][]string // asked ids, by each of their looks
	found  map[string][]string // look-alikes by asked id, in the order they were offered
}

func newAlike(looks func(id string) []string, asked ...string) *alike {
	a := &alike{looks, make(map[string][]string), make(map[string][]string)}
	for _, id := range asked {
		for _, look := range looks(id) {
			if !slices.Contains(a.byLook[look], id) {
				a.byLook[look] = append(a.byLook[look], id)
			}
		}
	}
	return a
}

// offer compares another id with the asked ones. An id is not its own look-alike.
func (a *alike) offer(other string) {
	for _, look := range a.looks(other) {
		for _, id := range a.byLook[look] {
			if id != other && len(a.found[id]) < maxAlike && !slices.Contains(a.found[id], other) {
				a.found[id] = append(a.found[id], other)
			}
		}
	}
}

// LookAlikes returns, for each of these ids, a paired device id that the approver may see and confuse with it.
func (s *Service) LookAlikes(ctx context.Context, by Approver, ids ...string) (map[string]string, error) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return nil, nil
	}
	paired, err := s.cfg.Store.PairedIDs(ctx, by.Tenant)
	if err != nil {
		return nil, err
	}
	a := newAlike(s.looksOf, ids...)
	for _, id := range paired {
		a.offer(id)
	}
	candidates := slices.Concat(slices.Collect(maps.Values(a.found))...)
	if len(candidates) == 0 {
		return nil, nil
	}
	known, err := s.cfg.Store.PairedDevices(ctx, by.Tenant, candidates...)
	if err != nil {
		return nil, err
	}
	visible := make(map[string]bool)
	for _, c := range known {
		visible[c.DeviceID] = by.Sees(c.User)
	}
	like := make(map[string]string)
	for id, found := range a.found {
		slices.Sort(found) // for a stable answer
		if i := slices.IndexFunc(found, func(other string) bool { return visible[other] }); i >= 0 {
			like[id] = found[i]
		}
	}
	return like, nil
}

// Devices returns a page of the paired devices that an approver may see, and the cursor of the next page, empty on the
// last. A page may have fewer than limit devices, even none, before the last.
func (s *Service) Devices(
	ctx context.Context, by Approver, after string, limit int,
) ([]registry.Credential, string, error) {
	q := registry.CredentialQuery{
		Tenant: by.Tenant, Kind: registry.CredentialDevice, After: after, Limit: max(limit, hiddenAtOnce),
	}
	all, next, err := s.cfg.Store.Credentials(ctx, q)
	all = slices.DeleteFunc(all, func(c registry.Credential) bool { return !by.Sees(c.User) })
	if limit > 0 && len(all) > limit {
		return all[:limit], all[limit-1].ID, err
	}
	return all, hiding(next, after, all), err
}

// hiddenAtOnce is how many credentials a page of few devices reads, as most may be of others.
const hiddenAtOnce = 100

// idTime is the length of the beginning of a credential's id that says when it was made. The rest is random.
const idTime = 11

// hiding returns a cursor for next that names no credential which its reader may not see: it ends before next, but not
// before the last one shown.
func hiding(next, after string, shown []registry.Credential) string {
	last := ""
	if len(shown) > 0 {
		last = shown[len(shown)-1].ID
	}
	hidden := max(last, next[:min(len(next), idTime)])
	if next == "" || next == last || hidden <= after { // the list must go on, although many were made in a millisecond
		return next
	}
	return hidden
}
