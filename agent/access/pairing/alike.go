package pairing

import (
	"context"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// Remarks about the id of a device that an approver should look at twice.
const (
	RemarkForeign = "foreign" // it has characters outside ASCII, which may look like others
	RemarkUnusual = "unusual" // it has spaces or signs that ids seldom have, such as brackets
)

// maxAlike is how many paired devices that an id looks like are considered.
const maxAlike = 64

// usualSigns are those that the ids of sessions may have beside letters and digits.
const usualSigns = "._:@~+=-"

// remarksOf returns what an approver should know of how a device id is written.
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

// checkSpaces refuses the id of a new device that a reader would take for the same id with fewer spaces. Other
// characters that are not seen are in no id.
func checkSpaces(id string) error {
	if strings.Join(strings.Fields(id), " ") == id {
		return nil
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"device_id: %q begins or ends with a space, or has several in a row. Leave them out.", id)
}

// looks returns what the id of a device looks like. Two ids that have one of their looks in common are taken for one
// another.
func looks(id string) []string { return legible.AnySkeletons(strings.ReplaceAll(id, " ", "")) }

// looksOf is looks, remembered: each list that is shown compares its ids with all paired devices of a tenant.
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
	looksBytes = 4 << 20 // of looks that are remembered in each of two generations
	lookCost   = 64      // bytes beside the text of each
)

// alike knows the ids that look like some ids that are asked about.
type alike struct {
	looks  func(id string) []string
	byLook map[string][]string // those that are asked about, by each of their looks
	found  map[string][]string // by the id that is asked about, in the order they were offered
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

// offer has another id compared with those that are asked about. No id looks like itself.
func (a *alike) offer(other string) {
	for _, look := range a.looks(other) {
		for _, id := range a.byLook[look] {
			if id != other && len(a.found[id]) < maxAlike && !slices.Contains(a.found[id], other) {
				a.found[id] = append(a.found[id], other)
			}
		}
	}
}

// LookAlikes returns which paired device a person may take devices for, by the ids of these. A device that the approver
// may not see is none of them.
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
		slices.Sort(found) // the same answer each time
		if i := slices.IndexFunc(found, func(other string) bool { return visible[other] }); i >= 0 {
			like[id] = found[i]
		}
	}
	return like, nil
}
