package pairing

import (
	"context"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// Remarks about a device id that an approver should check with care.
const (
	RemarkForeign = "foreign" // it has characters outside ASCII, which may look like others
	RemarkUnusual = "unusual" // it has spaces or signs that are unusual in ids, such as brackets
)

// maxAlike bounds the look-alikes that are considered per id.
const maxAlike = 64

// usualSigns are the signs that ids of sessions may have besides letters and digits.
const usualSigns = "._:@~+=-"

// remarksOf returns the remarks about a device id.
func remarksOf(id string) []string {
	if !legible.IsASCII(id) {
		return []string{RemarkForeign}
	}
	if strings.ContainsFunc(id, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			strings.ContainsRune(usualSigns, r))
	}) {
		return []string{RemarkUnusual}
	}
	return nil
}

// checkSpaces rejects a new device id that differs from another only by spaces that a reader overlooks. Other invisible
// characters are not allowed in ids.
func checkSpaces(id string) error {
	if strings.Join(strings.Fields(id), " ") == id {
		return nil
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"device_id: %q begins or ends with a space, or has several in a row. Leave them out.", id)
}

// looks returns the skeletons of a device id. Two ids with a common skeleton look alike.
func looks(id string) []string { return legible.AnySkeletons(strings.ReplaceAll(id, " ", "")) }

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

// alike finds ids that look like the asked ones.
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

// LookAlikes returns, for each of these ids, a paired device id that a person may confuse with it. Devices that the
// approver may not see are left out.
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
	var candidates []string
	for _, found := range a.found {
		candidates = append(candidates, found...)
	}
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
