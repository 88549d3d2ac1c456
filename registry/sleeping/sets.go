package sleeping

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

const (
	setSlack  = time.Hour   // how much longer a set is stored than its device; it is written again at most so often
	knownSets = 10_000      // sets that a pod knows to be stored
	fullPause = time.Minute // in which no further set is written for an owner that has used up its share
)

// set is a stored set of tools.
type set struct {
	until  time.Time // it is stored, or did not fit
	member string    // of setIndex; empty: it did not fit
}

// setHash returns the name of a set of tools; empty without tools.
func setHash(tools []registry.ToolSpec) string {
	if len(tools) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, t := range tools {
		sum.Write([]byte(t.Hash()))
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

func setName(d *registry.DeviceMemory) string { return d.Session.Tenant + " " + setHash(d.Tools) }

func fullName(d *registry.DeviceMemory) string { return d.Session.Tenant + " " + ownerOf(&d.Session) }

// ownerOf returns whose sets count together: those of a device that its credential names, else of its user. It does not
// name them.
func ownerOf(s *registry.Session) string {
	who := "u" + s.UserID
	if s.Bound {
		who = s.DeviceKey()
	}
	sum := sha256.Sum256([]byte(who))
	return ownerIndex + hex.EncodeToString(sum[:16])
}

// shareOf returns what part of the tenant's sets an owner may have. Devices without a user are as many as the tenant
// likes.
func shareOf(s *registry.Session) int64 {
	switch {
	case s.Bound:
		return 16
	case s.UserID != "":
		return 8
	default:
		return 2
	}
}

const ownerSteps = 2 // the first of newSet, which check the owner's share

// newSet returns the write that stores the tools of a device.
func newSet(d *registry.DeviceMemory) (documents.Write, set) {
	data, _ := json.Marshal(d.Tools) // cannot fail: their parts were JSON before
	hash, life, size := setHash(d.Tools), d.Life+setSlack, int64(len(data))
	owner, share, member := ownerOf(&d.Session), shareOf(&d.Session), documents.Weighed(size, hash)
	return documents.Write{Space: space(d.Session.Tenant), Steps: []documents.Step{
		documents.AtMost(registry.MaxKnownTools/share-size, documents.Term{Index: owner, Except: member}),
		documents.AtMost(registry.MaxKnownSets/share-1, documents.Term{Index: owner, Weight: 1, Except: member}),
		documents.AtMost(registry.MaxKnownTools-size, documents.Term{Index: setIndex, Except: member}),
		documents.AtMost(registry.MaxKnownSets-1, documents.Term{Index: setIndex, Weight: 1, Except: member}),
		documents.Put(setDoc+hash, data, life),
		documents.Join(setIndex, member, life, 0), documents.Join(owner, member, life, 0),
	}}, set{time.Now().Add(life), member}
}

// noteSet notes what became of the write of a device's set. It fits for other owners if only this one's share is full.
func (s *store) noteSet(d *registry.DeviceMemory, to set, refused int) {
	name := setName(d)
	switch {
	case refused > ownerSteps:
		to.member = ""
	case refused > 0:
		name, to = fullName(d), set{until: time.Now().Add(fullPause)}
	}
	s.sets.Put(name, to, 1)
}

// isFull reports whether the owner of a device has just used up its share of the sets.
func (s *store) isFull(d *registry.DeviceMemory) bool {
	full, ok := s.sets.Get(fullName(d))
	return ok && full.until.After(time.Now())
}

// readTools sets the tools of devices. Each set is read once.
func (s *store) readTools(ctx context.Context, known []registry.KnownDevice, sets []documents.Ref) error {
	tools := make(map[documents.Ref][]registry.ToolSpec)
	var refs []documents.Ref
	for _, ref := range sets {
		if _, listed := tools[ref]; !listed {
			tools[ref] = nil
			refs = append(refs, ref)
		}
	}
	found, err := s.docs.Read(ctx, refs...)
	if err != nil {
		return err
	}
	for i, doc := range found {
		specs, err := documents.Decode[[]registry.ToolSpec](doc, registry.ErrUnknownDevice)
		switch {
		case errors.Is(err, registry.ErrUnknownDevice): // it did not fit
		case err != nil:
			return err
		}
		for j := range specs {
			specs[j] = specs[j].Hashed()
		}
		tools[refs[i]] = specs
	}
	for i := range known {
		known[i].Tools = tools[sets[i]]
	}
	return nil
}
