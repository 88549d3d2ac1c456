package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry/documents"
)

// maxDocumentBytes is the limit of the documents of all tenants, in bytes. What they hold has narrower limits: this one
// keeps many tenants from filling the memory.
const maxDocumentBytes = 1 << 30

// documentWeight is the approximate size of a document without its names and data, in bytes.
const documentWeight = 256

// documentStore implements documents.Store.
type documentStore struct {
	now     func() time.Time // the store's clock
	mu      sync.Mutex
	all     shared[documentKey, *document]
	indexes map[documentKey]*index
	writes  int64 // count of Puts; makes the revisions
	purges  throttle
}

// documentKey names a document or an index.
type documentKey struct {
	space documents.Space
	name  string
}

type document struct {
	life
	data     []byte
	revision string
	created  time.Time
	weight   int // in bytes
}

// index holds the time of each member.
type index struct {
	times map[string]time.Time
	stay  time.Duration // how long a member is kept after its time
}

func newDocuments(now func() time.Time) *documentStore {
	d := &documentStore{
		now:     now,
		all:     newShared[documentKey, *document]("documents", maxDocumentBytes, 0),
		indexes: make(map[documentKey]*index),
	}
	d.all.weigh = func(d *document) int { return d.weight }
	return d
}

// Documents returns the documents that approvals and others are made of.
func (m *Store) Documents() documents.Store { return m.documents }

// lock takes the lock, and returns the time in ms.
func (s *documentStore) lock() time.Time {
	s.mu.Lock()
	now := s.now()
	if s.purges.due(now, time.Minute) {
		s.all.purge(now)
		for key, x := range s.indexes {
			s.purge(key, x, now)
		}
	}
	return now.UTC().Truncate(time.Millisecond)
}

// purge removes expired members. It also removes an empty index.
func (s *documentStore) purge(key documentKey, x *index, now time.Time) {
	for member, at := range x.times {
		if !now.Before(at.Add(x.stay)) {
			delete(x.times, member)
		}
	}
	if len(x.times) == 0 {
		delete(s.indexes, key)
	}
}

func (s *documentStore) Read(_ context.Context, refs ...documents.Ref) ([]documents.Document, error) {
	now := s.lock()
	defer s.mu.Unlock()
	found := make([]documents.Document, len(refs))
	for i, ref := range refs {
		found[i].Now = now
		if d := s.all.get(ref.Tenant, documentKey{ref.Space, ref.ID}, now); d != nil {
			found[i] = documents.Document{
				Data: bytes.Clone(d.data), Revision: d.revision, Created: d.created, Expires: d.expires, Now: now,
			}
		}
	}
	return found, nil
}

func (s *documentStore) Members(_ context.Context, queries ...documents.Query) ([][]string, error) {
	now := s.lock()
	defer s.mu.Unlock()
	lists := make([][]string, len(queries))
	for i, q := range queries {
		x := s.indexes[documentKey{q.Space, q.Index}]
		if x == nil {
			continue
		}
		all := slices.DeleteFunc(x.ordered(), func(member string) bool { return x.times[member].After(now) == q.Due })
		all = all[min(q.Skip, len(all)):]
		lists[i] = all[:min(q.Limit, len(all))]
	}
	return lists, nil
}

func (s *documentStore) Write(_ context.Context, writes ...documents.Write) ([]documents.Written, error) {
	now := s.lock()
	defer s.mu.Unlock()
	done := make([]documents.Written, len(writes))
	for i, w := range writes {
		var err error
		if done[i], err = s.write(w.Space, w.Steps, now); err != nil {
			return nil, err
		}
	}
	return done, nil
}

func (s *documentStore) write(space documents.Space, steps []documents.Step, now time.Time) (documents.Written, error) {
	more := 0
	for i, step := range steps {
		if !s.meets(space, step, now) {
			return documents.Written{Now: now, Refused: i + 1}, nil
		}
		if step.Op == documents.OpPut {
			more += weightOf(space, step)
			if former := s.all.get(space.Tenant, documentKey{space, step.Name}, now); former != nil {
				more -= former.weight
			}
		}
	}
	if err := s.all.room(space.Tenant, more); err != nil {
		return documents.Written{}, err
	}
	for _, step := range steps {
		s.apply(space, step, now)
	}
	return documents.Written{Now: now}, nil
}

func weightOf(space documents.Space, put documents.Step) int {
	return documentWeight + len(space.Owner) + len(put.Name) + len(put.Text)
}

// meets reports whether the condition of a step is met.
func (s *documentStore) meets(space documents.Space, step documents.Step, now time.Time) bool {
	key := documentKey{space, step.Name}
	switch step.Op {
	case documents.OpExpect:
		revision := ""
		if d := s.all.get(space.Tenant, key, now); d != nil {
			revision = d.revision
		}
		return revision == string(step.Text)
	case documents.OpHas:
		x := s.indexes[key]
		return x != nil && x.times[step.Member].After(now)
	case documents.OpAtMost:
		sum := int64(0)
		for _, term := range step.Terms {
			sum += s.count(space, term, now)
		}
		return sum <= step.N
	}
	return true
}

func (s *documentStore) count(space documents.Space, term documents.Term, now time.Time) (sum int64) {
	x := s.indexes[documentKey{space, term.Index}]
	if x == nil {
		return 0
	}
	for member, at := range x.times {
		weight := term.Weight
		switch {
		case !at.After(now) || weight > 0 && member == term.Except:
			continue
		case weight == 0:
			text, _, _ := strings.Cut(member, " ")
			weight, _ = strconv.ParseInt(text, 10, 64)
		}
		sum += weight
	}
	return sum
}

// apply makes the change of a step.
func (s *documentStore) apply(space documents.Space, step documents.Step, now time.Time) {
	key := documentKey{space, step.Name}
	switch step.Op {
	case documents.OpPut:
		s.put(space, step, now)
	case documents.OpExtend:
		if d := s.all.get(space.Tenant, key, now); d != nil {
			d.expires = step.Ends(now)
		}
	case documents.OpDelete:
		s.all.remove(space.Tenant, key)
	case documents.OpJoin:
		x := s.indexes[key]
		if x == nil {
			x = &index{times: make(map[string]time.Time)}
			s.indexes[key] = x
		}
		x.stay = step.Stay
		if at := step.Ends(now); at.After(x.times[step.Member]) {
			x.times[step.Member] = at
		}
	case documents.OpLeave:
		if x := s.indexes[key]; x != nil {
			delete(x.times, step.Member)
			s.purge(key, x, now)
		}
	case documents.OpKeep:
		if x := s.indexes[key]; x != nil {
			all := x.ordered()
			for _, member := range all[:max(0, len(all)-int(step.N))] {
				delete(x.times, member)
			}
		}
	}
}

func (s *documentStore) put(space documents.Space, step documents.Step, now time.Time) {
	key := documentKey{space, step.Name}
	s.writes++
	d := &document{
		life: life{step.Ends(now)}, data: bytes.Clone(step.Text), revision: strconv.FormatInt(s.writes, 10),
		created: now, weight: weightOf(space, step),
	}
	former := s.all.get(space.Tenant, key, now)
	switch {
	case former != nil && step.Life == 0:
		d.created, d.expires = former.created, former.expires
	case former != nil:
		d.created = former.created
	case step.Life == 0:
		return
	}
	s.all.set(space.Tenant, key, d)
}

// ordered returns the members, earliest time first.
func (x *index) ordered() []string {
	return slices.SortedFunc(maps.Keys(x.times), func(a, b string) int {
		return cmp.Or(x.times[a].Compare(x.times[b]), cmp.Compare(a, b))
	})
}
