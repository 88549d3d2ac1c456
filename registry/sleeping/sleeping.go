// Package sleeping remembers devices as documents of a store. Every store uses it to implement registry.SleepingStore.
//
// A device is one small document of its tenant's space, in an index for each way to find it. Devices of a kind have the
// same tools, so a set of tools is a document of its own, under its hash. It is written rarely: each pod remembers
// which sets are stored.
//
// Imports: only registry, registry/documents and internal packages, of the packages of this module.
package sleeping

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

const pageSize = 100

// Prefixes of documents, and names of indexes.
const (
	deviceDoc = "d."
	setDoc    = "s."

	allIndex     = "all"
	setIndex     = "sets"     // weighed by bytes
	ownerIndex   = "owner."   // and ownerOf: the sets that were written for it, weighed by bytes
	idIndex      = "id."      // and the device id
	sessionIndex = "session." // and the id of the last session
	userIndex    = "user."    // and the user
	keyIndex     = "key."     // and keyOf: the identity without a user that connected it
	labelIndex   = "label."   // and key=value
)

// store implements registry.SleepingStore.
type store struct {
	docs documents.Store
	sets *cache.Cache[string, set] // by setName; by fullName: until when nothing is written
}

// New returns a memory of devices on documents.
func New(docs documents.Store) registry.SleepingStore {
	return &store{docs, cache.New[string, set](knownSets, 0)}
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
	Key          string            `json:"key,omitempty"`   // keyOf
}

// keyOf returns a name for the stored credential that counts a device: it has no user, and the device chose its id.
// Empty for others, such as devices with the shared token, which may serve a fleet.
func keyOf(d *registry.DeviceMemory) string {
	if d.Session.Bound || d.Session.UserID != "" || !registry.IsStoredCredential(d.Identity) {
		return ""
	}
	sum := sha256.Sum256([]byte(d.Identity))
	return hex.EncodeToString(sum[:16])
}

func (d *device) session(tenant string) registry.Session {
	return registry.Session{
		Key: registry.Key{Tenant: tenant, Session: d.Session}, Name: d.Name, DeviceID: d.DeviceID,
		DeviceName: d.DeviceName, UserID: d.UserID, Platform: d.Platform, Labels: d.Labels,
		Capabilities: d.Capabilities, Bound: d.Bound,
	}
}

// indexes returns the indexes that a device is in. by is its keyOf.
func indexes(s *registry.Session, by string) []string {
	names := []string{allIndex, idIndex + s.DeviceID, sessionIndex + s.Key.Session, userIndex + s.UserID}
	if by != "" {
		names = append(names, keyIndex+by)
	}
	for key, value := range s.Labels {
		names = append(names, labelIndex+key+"="+value)
	}
	return names
}

// rememberTries is how often devices are written that another pod remembers at the same time, or whose set of tools the
// store has lost. Then their next change, or refresh, writes them.
const rememberTries = 3

// RememberDevices implements registry.SleepingStore.
func (s *store) RememberDevices(ctx context.Context, devices []registry.DeviceMemory) (err error) {
	devices = slices.DeleteFunc(slices.Clone(devices), func(d registry.DeviceMemory) bool {
		return d.Session.DeviceKey() == "" || d.Life <= 0
	})
	for range rememberTries {
		if len(devices) == 0 || err != nil {
			break
		}
		devices, err = s.remember(ctx, devices)
	}
	return err
}

// remember stores devices. It returns those to write again: another pod has changed them meanwhile, or the store has
// lost their tools, whose set is then also written.
func (s *store) remember(
	ctx context.Context, devices []registry.DeviceMemory,
) (again []registry.DeviceMemory, err error) {
	former, err := s.former(ctx, devices)
	if err != nil {
		return nil, err
	}
	var writes []documents.Write
	writesSet, writesDevice := make(map[int]bool), make(map[int]int) // by their places in writes
	added := make(map[string]set)
	for i := range devices {
		d := &devices[i]
		name := setName(d)
		known, ok := s.sets.Get(name)
		ok = ok && known.until.After(time.Now().Add(d.Life))
		if _, adds := added[name]; !ok && !adds && len(d.Tools) > 0 && !s.isFull(d) {
			write, to := newSet(d)
			writesSet[len(writes)], added[name] = true, to
			writesDevice[len(writes)] = i
			writes = append(writes, write)
		}
		writesDevice[len(writes)] = i
		writes = append(writes, rememberOne(d, former[i], known.member, ok))
	}
	done, err := s.docs.Write(ctx, writes...)
	if err != nil {
		return nil, err
	}
	for i := range done {
		d, refused := devices[writesDevice[i]], done[i].Refused
		switch {
		case writesSet[i]:
			s.noteSet(&d, added[setName(&d)], refused)
			if refused > 0 && refused <= ownerSteps {
				again = append(again, sharers(devices, &d)...)
			}
		case refused == 0:
		case writes[i].Steps[refused-1].Op == documents.OpHas:
			s.sets.Delete(setName(&d))
			again = append(again, d)
		case writes[i].Steps[refused-1].Op == documents.OpExpect:
			again = append(again, d)
		}
	}
	return again, nil
}

// sharers returns the devices of other owners that have the tools of a device whose owner has used up its share.
func sharers(devices []registry.DeviceMemory, full *registry.DeviceMemory) (others []registry.DeviceMemory) {
	for i := range devices {
		if d := &devices[i]; setName(d) == setName(full) && fullName(d) != fullName(full) {
			others = append(others, *d)
		}
	}
	return others
}

// former reads what is stored of devices.
func (s *store) former(ctx context.Context, devices []registry.DeviceMemory) ([]documents.Document, error) {
	refs := make([]documents.Ref, len(devices))
	for i := range devices {
		of := &devices[i].Session
		refs[i] = space(of.Tenant).Ref(deviceDoc + of.DeviceKey())
	}
	return s.docs.Read(ctx, refs...)
}

// rememberOne returns the write of a device, of which former is stored. The device leaves the indexes that it is no
// longer in: with other labels and another session at each connection, a single device would otherwise fill the store.
// The write is refused if former is no longer stored, or if the known set of the device's tools is not.
func rememberOne(d *registry.DeviceMemory, former documents.Document, member string, known bool) documents.Write {
	of, key := &d.Session, d.Session.DeviceKey()
	steps := []documents.Step{documents.Expect(deviceDoc+key, former.Revision)}
	if known && member != "" {
		steps = append(steps, documents.Has(setIndex, member))
	}
	most := int64(registry.MaxKnownDevices)
	if !of.Bound { // one credential can invent any number of them
		most /= 2
	}
	steps = append(steps,
		documents.AtMost(most-1, documents.Term{Index: allIndex, Weight: 1, Except: key}))
	if of.UserID != "" {
		steps = append(steps, documents.AtMost(registry.MaxKnownOfUser-1,
			documents.Term{Index: userIndex + of.UserID, Weight: 1, Except: key}))
	}
	by := keyOf(d)
	if by != "" {
		steps = append(steps, documents.AtMost(registry.MaxKnownOfKey-1,
			documents.Term{Index: keyIndex + by, Weight: 1, Except: key}))
	}
	data, _ := json.Marshal(device{ // cannot fail: strings
		Session: of.Key.Session, Name: of.Name, DeviceID: of.DeviceID, DeviceName: of.DeviceName, UserID: of.UserID,
		Platform: of.Platform, Labels: of.Labels, Capabilities: of.Capabilities, Bound: of.Bound,
		Seen: d.LastSeen.UTC().Truncate(time.Millisecond), Tools: setHash(d.Tools), Key: by,
	})
	steps = append(steps, documents.Put(deviceDoc+key, data, d.Life))
	now := indexes(of, by)
	if was, err := documents.Decode[device](former, registry.ErrUnknownDevice); err == nil {
		before := was.session(of.Tenant)
		for _, index := range indexes(&before, was.Key) {
			if !slices.Contains(now, index) {
				steps = append(steps, documents.Leave(index, key))
			}
		}
	}
	for _, index := range now {
		steps = append(steps, documents.Join(index, key, d.Life, 0))
	}
	return documents.Write{Space: space(of.Tenant), Steps: steps}
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
	if len(t.Labels) > 0 { // of several, the same in each read: KnownQuery.Skip counts in it
		key := slices.Min(slices.Collect(maps.Keys(t.Labels)))
		return labelIndex + key + "=" + t.Labels[key]
	}
	return allIndex
}

// Limits of a search.
const (
	readAtOnce = 100 // devices that are read in one round trip, at least
	maxReads   = 10  // round trips of one page
)

// KnownDevices implements registry.SleepingStore. An index may still have a device that has changed, and has devices
// that do not match the whole target: the documents decide. A page goes on until it is full, so that others' devices do
// not use it up, but its work has a bound.
func (s *store) KnownDevices(
	ctx context.Context, q registry.KnownQuery,
) (known []registry.KnownDevice, next int, err error) {
	limit, in := cmp.Or(q.Limit, pageSize), space(q.Tenant)
	var sets []documents.Ref
	next = q.Skip
	for reads := 0; reads < maxReads && len(known) < limit; reads++ {
		want := max(limit-len(known), readAtOnce)
		keys, own, err := s.members(ctx, q, next, want)
		if err != nil {
			return nil, 0, err
		}
		refs := make([]documents.Ref, len(keys))
		for i, key := range keys {
			refs[i] = in.Ref(deviceDoc + key)
		}
		found, err := s.docs.Read(ctx, refs...)
		if err != nil {
			return nil, 0, err
		}
		read := 0
		for ; read < len(found) && len(known) < limit; read++ {
			d, err := documents.Decode[device](found[read], registry.ErrUnknownDevice)
			of := d.session(q.Tenant)
			if err != nil || !q.Matches(of) || read >= own && own >= 0 && of.UserID != "" { // the viewer's came before
				continue
			}
			known = append(known, registry.KnownDevice{Session: of, LastSeen: d.Seen, After: next + read + 1})
			sets = append(sets, in.Ref(setDoc+d.Tools))
		}
		if next += read; read == len(keys) && len(keys) < want {
			next = 0
			break
		}
	}
	return known, next, s.readTools(ctx, known, sets)
}

// members returns at most limit devices of the indexes that have every match, without the first skip. If they are the
// viewer's devices and then those of no user, own is how many of them are the viewer's; otherwise it is -1.
func (s *store) members(
	ctx context.Context, q registry.KnownQuery, skip, limit int,
) (keys []string, own int, err error) {
	in, index := space(q.Tenant), indexFor(q.Target)
	list := func(index string, skip, limit int) ([]string, error) {
		lists, err := s.docs.Members(ctx, documents.Query{Space: in, Index: index, Skip: skip, Limit: limit})
		if err != nil {
			return nil, err
		}
		return lists[0], nil
	}
	if q.Viewer == "" || q.SessionID != "" || q.DeviceID != "" || q.UserID != "" {
		keys, err = list(index, skip, limit)
		return keys, -1, err
	}
	if index == allIndex {
		index = userIndex
	}
	all, err := list(userIndex+q.Viewer, 0, registry.MaxKnownOfUser)
	if err != nil {
		return nil, 0, err
	}
	keys = all[min(skip, len(all)):min(skip+limit, len(all))]
	own = len(keys)
	if own == limit {
		return keys, own, nil
	}
	others, err := list(index, max(skip-len(all), 0), limit-own)
	return append(slices.Clip(keys), others...), own, err
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
	lists, err := s.docs.Members(ctx, documents.Query{Space: space(tenant), Index: index, Limit: forgetPage})
	if err != nil || len(lists[0]) == 0 {
		return 0, err
	}
	return len(lists[0]), s.forget(ctx, tenant, lists[0], index)
}

// ForgetDevice implements registry.SleepingStore.
func (s *store) ForgetDevice(ctx context.Context, tenant string, keys ...string) error {
	return s.forget(ctx, tenant, keys)
}

// forget forgets devices. They also leave the given indexes, which may still have devices that have gone.
func (s *store) forget(ctx context.Context, tenant string, keys []string, from ...string) error {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = deviceDoc + key
	}
	change := func(found []documents.Document) (steps []documents.Step, err error) {
		for i, key := range keys {
			leave := from
			if d, err := documents.Decode[device](found[i], registry.ErrUnknownDevice); err == nil {
				of := d.session(tenant)
				leave = append(slices.Clip(from), indexes(&of, d.Key)...)
			}
			steps = append(steps, documents.Delete(ids[i]))
			for _, index := range leave {
				steps = append(steps, documents.Leave(index, key))
			}
		}
		return steps, nil
	}
	return documents.Change(ctx, s.docs, space(tenant), ids, change)
}
