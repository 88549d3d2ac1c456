// Package sleeping remembers devices as documents of a store. Every store uses it to implement registry.SleepingStore.
//
// A device is one small document of its tenant's space, in an index for each way to find it. Devices of a kind have the
// same tools, so a set of tools is a document of its own, under its hash. It is written rarely: each pod remembers which
// sets are stored.
//
// Imports: only registry, registry/documents and internal packages, of the packages of this module.
package sleeping

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

const (
	setSlack  = time.Hour // how much longer a set is stored than its device; it is written again at most so often
	knownSets = 10_000    // sets that a pod knows to be stored
	pageSize  = 100
)

// Prefixes of documents, and names of indexes.
const (
	deviceDoc = "d."
	setDoc    = "s."

	allIndex     = "all"
	setIndex     = "sets"     // weighed by bytes
	idIndex      = "id."      // and the device id
	sessionIndex = "session." // and the id of the last session
	userIndex    = "user."    // and the user
	labelIndex   = "label."   // and key=value
)

// store implements registry.SleepingStore.
type store struct {
	docs documents.Store
	sets *cache.Cache[string, time.Time] // until when a set is stored, by tenant and hash
}

// New returns a memory of devices on documents.
func New(docs documents.Store) registry.SleepingStore {
	return &store{docs, cache.New[string, time.Time](knownSets, 0)}
}

func space(tenant string) documents.Space { return documents.Space{Tenant: tenant, Kind: "sleeping"} }

// device is the stored form of a device.
type device struct {
	Session      string            `json:"session"`
	Name         string            `json:"name,omitempty"`
	DeviceID     string            `json:"device_id"`
	DeviceName   string            `json:"device_name,omitempty"`
	UserID       string            `json:"user_id,omitempty"`
	Platform     string            `json:"platform,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	Bound        bool              `json:"bound,omitempty"`
	Seen         time.Time         `json:"seen"`
	Tools        string            `json:"tools,omitempty"` // hash of the set
}

func (d *device) session(tenant string) registry.Session {
	return registry.Session{
		Key: registry.Key{Tenant: tenant, Session: d.Session}, Name: d.Name, DeviceID: d.DeviceID,
		DeviceName: d.DeviceName, UserID: d.UserID, Platform: d.Platform, Labels: d.Labels,
		Capabilities: d.Capabilities, Bound: d.Bound,
	}
}

// indexes returns the indexes that a device is in.
func indexes(s *registry.Session) []string {
	names := []string{allIndex, idIndex + s.DeviceID, sessionIndex + s.Key.Session, userIndex + s.UserID}
	for key, value := range s.Labels {
		names = append(names, labelIndex+key+"="+value)
	}
	return names
}

// RememberDevices implements registry.SleepingStore.
func (s *store) RememberDevices(ctx context.Context, devices []registry.DeviceMemory) error {
	var writes []documents.Write
	stored := make(map[string]time.Time)
	for i := range devices {
		d := &devices[i]
		key := d.Session.DeviceKey()
		if key == "" || d.Life <= 0 {
			continue
		}
		set, write, until := s.setOf(d)
		if _, writes := stored[d.Session.Tenant+" "+set]; writes {
			write = nil
		}
		if write != nil {
			stored[d.Session.Tenant+" "+set] = until
			writes = append(writes, *write)
		}
		writes = append(writes, rememberOne(d, key, set))
	}
	if len(writes) == 0 {
		return nil
	}
	if _, err := s.docs.Write(ctx, writes...); err != nil {
		return err
	}
	for name, until := range stored {
		s.sets.Put(name, until, 1)
	}
	return nil
}

func rememberOne(d *registry.DeviceMemory, key, set string) documents.Write {
	of := &d.Session
	steps := []documents.Step{
		documents.AtMost(registry.MaxKnownDevices-1, documents.Term{Index: allIndex, Weight: 1, Except: key}),
	}
	if of.UserID != "" {
		steps = append(steps, documents.AtMost(registry.MaxKnownOfUser-1,
			documents.Term{Index: userIndex + of.UserID, Weight: 1, Except: key}))
	}
	data, _ := json.Marshal(device{ // cannot fail: strings
		Session: of.Key.Session, Name: of.Name, DeviceID: of.DeviceID, DeviceName: of.DeviceName, UserID: of.UserID,
		Platform: of.Platform, Labels: of.Labels, Capabilities: of.Capabilities, Bound: of.Bound,
		Seen: d.LastSeen.UTC().Truncate(time.Millisecond), Tools: set,
	})
	steps = append(steps, documents.Put(deviceDoc+key, data, d.Life))
	for _, index := range indexes(of) {
		steps = append(steps, documents.Join(index, key, d.Life, 0))
	}
	return documents.Write{Space: space(of.Tenant), Steps: steps}
}

// setOf returns the hash of a device's tools, empty without tools, and the write that stores them until a time; nil: they
// are stored for long enough.
func (s *store) setOf(d *registry.DeviceMemory) (hash string, write *documents.Write, until time.Time) {
	if len(d.Tools) == 0 {
		return "", nil, until
	}
	sum := sha256.New()
	for _, t := range d.Tools {
		sum.Write([]byte(t.Hash()))
	}
	hash = hex.EncodeToString(sum.Sum(nil)[:16])
	if stored, ok := s.sets.Get(d.Session.Tenant + " " + hash); ok && stored.After(time.Now().Add(d.Life)) {
		return hash, nil, until
	}
	data, _ := json.Marshal(d.Tools) // cannot fail: their parts were JSON before
	life, member := d.Life+setSlack, documents.Weighed(int64(len(data)), hash)
	return hash, &documents.Write{Space: space(d.Session.Tenant), Steps: []documents.Step{
		documents.AtMost(registry.MaxKnownTools-int64(len(data)), documents.Term{Index: setIndex}),
		documents.AtMost(registry.MaxKnownSets-1, documents.Term{Index: setIndex, Weight: 1, Except: member}),
		documents.Put(setDoc+hash, data, life), documents.Join(setIndex, member, life, 0),
	}}, time.Now().Add(life)
}

// indexFor returns the index with the fewest devices that match a target.
func indexFor(t registry.Target) string {
	switch {
	case t.SessionID != "":
		return sessionIndex + t.SessionID
	case t.DeviceID != "":
		return idIndex + t.DeviceID
	case t.UserID != "":
		return userIndex + t.UserID
	}
	for key, value := range t.Labels {
		return labelIndex + key + "=" + value
	}
	return allIndex
}

// KnownDevices implements registry.SleepingStore. An index may still have a device that has changed: the document
// decides.
func (s *store) KnownDevices(ctx context.Context, q registry.KnownQuery) ([]registry.KnownDevice, int, error) {
	limit, in := cmp.Or(q.Limit, pageSize), space(q.Tenant)
	lists, err := s.docs.Members(ctx, documents.Query{Space: in, Index: indexFor(q.Target), Skip: q.Skip, Limit: limit})
	if err != nil {
		return nil, 0, err
	}
	keys := lists[0]
	refs := make([]documents.Ref, len(keys))
	for i, key := range keys {
		refs[i] = in.Ref(deviceDoc + key)
	}
	found, err := s.docs.Read(ctx, refs...)
	if err != nil {
		return nil, 0, err
	}
	var known []registry.KnownDevice
	var sets []documents.Ref
	for i, doc := range found {
		d, err := documents.Decode[device](doc, registry.ErrUnknownDevice)
		if of := d.session(q.Tenant); err == nil && q.Matches(of) {
			known = append(known, registry.KnownDevice{Session: of, LastSeen: d.Seen, After: q.Skip + i + 1})
			sets = append(sets, in.Ref(setDoc+d.Tools))
		}
	}
	next := 0
	if len(keys) == limit {
		next = q.Skip + limit
	}
	return known, next, s.readTools(ctx, known, sets)
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

// forgetPage is how many devices one step forgets.
const forgetPage = 50

// ForgetDevices implements registry.SleepingStore.
func (s *store) ForgetDevices(ctx context.Context, tenant, user string, deviceIDs ...string) error {
	var from []string
	if user != "" {
		from = append(from, userIndex+user)
	}
	for _, id := range deviceIDs {
		if id != "" {
			from = append(from, idIndex+id)
		}
	}
	for _, index := range from {
		for {
			n, err := s.forgetSome(ctx, tenant, index)
			if err != nil {
				return err
			}
			if n < forgetPage {
				break
			}
		}
	}
	return nil
}

func (s *store) forgetSome(ctx context.Context, tenant, index string) (int, error) {
	in := space(tenant)
	lists, err := s.docs.Members(ctx, documents.Query{Space: in, Index: index, Limit: forgetPage})
	if err != nil || len(lists[0]) == 0 {
		return 0, err
	}
	keys := lists[0]
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = deviceDoc + key
	}
	return len(keys), documents.Change(ctx, s.docs, in, ids, func(found []documents.Document) ([]documents.Step, error) {
		steps := []documents.Step{}
		for i, key := range keys {
			steps = append(steps, documents.Leave(index, key), documents.Delete(ids[i]))
			if d, err := documents.Decode[device](found[i], registry.ErrUnknownDevice); err == nil {
				of := d.session(tenant)
				for _, name := range indexes(&of) {
					steps = append(steps, documents.Leave(name, key))
				}
			}
		}
		return steps, nil
	})
}
