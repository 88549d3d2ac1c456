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
	keeper  *keeper
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

// index holds the time of each member. It keeps the count and the sum of the weights of the members whose time was
// ahead at counted. Both hold until the earliest of these times, so a quota is checked without reading all members.
type index struct {
	times map[string]time.Time
	stay  time.Duration // how long a member is kept after its time

	counted  time.Time
	n, sum   int64
	earliest time.Time // none of them is earlier
}

// set gives a member its time.
func (x *index) set(member string, at time.Time) {
	x.uncount(member)
	x.times[member] = at
	x.count(member, at)
}

// remove removes a member.
func (x *index) remove(member string) {
	x.uncount(member)
	delete(x.times, member)
}

func (x *index) count(member string, at time.Time) {
	if !at.After(x.counted) {
		return
	}
	if x.n == 0 || at.Before(x.earliest) {
		x.earliest = at
	}
	x.n, x.sum = x.n+1, x.sum+weightIn(member)
}

func (x *index) uncount(member string) {
	if at, ok := x.times[member]; ok && at.After(x.counted) {
		x.n, x.sum = x.n-1, x.sum-weightIn(member)
	}
}

// recount counts again if the count does not hold now.
func (x *index) recount(now time.Time) {
	if !now.Before(x.counted) && (x.n == 0 || now.Before(x.earliest)) {
		return
	}
	x.counted, x.n, x.sum = now, 0, 0
	for member, at := range x.times {
		x.count(member, at)
	}
}

// weightIn returns the weight in a member's name; see documents.Weighed.
func weightIn(member string) int64 {
	text, _, _ := strings.Cut(member, " ")
	weight, _ := strconv.ParseInt(text, 10, 64)
	return weight
}

func newDocuments(now func() time.Time, k *keeper) *documentStore {
	d := &documentStore{
		now: now, keeper: k,
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
	return s.now().UTC().Truncate(time.Millisecond)
}

// purge removes what has expired, once a minute.
func (s *documentStore) purge(c *change, now time.Time) {
	if !s.purges.due(now, time.Minute) {
		return
	}
	s.all.purge(now, func(key documentKey, _ *document) { c.drop(kindDocument, key.record()) })
	for key, x := range s.indexes {
		s.purgeIndex(c, key, x, now)
	}
}

// purgeIndex removes expired members. It also removes an empty index.
func (s *documentStore) purgeIndex(c *change, key documentKey, x *index, now time.Time) {
	for member, at := range x.times {
		if !now.Before(at.Add(x.stay)) {
			s.leave(c, key, x, member)
		}
	}
	if len(x.times) == 0 {
		delete(s.indexes, key)
	}
}

// leave removes a member.
func (s *documentStore) leave(c *change, key documentKey, x *index, member string) {
	if _, ok := x.times[member]; ok {
		x.remove(member)
		c.drop(kindMember, key.record(member))
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

func (s *documentStore) Write(ctx context.Context, writes ...documents.Write) (done []documents.Written, err error) {
	err = s.keeper.write(ctx, func(c *change) error {
		now := s.lock()
		defer c.unlock(&s.mu)
		s.purge(c, now)
		done = make([]documents.Written, len(writes))
		for i, w := range writes {
			var err error
			if done[i], err = s.write(c, w.Space, w.Steps, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

func (s *documentStore) write(
	c *change, space documents.Space, steps []documents.Step, now time.Time,
) (documents.Written, error) {
	more := 0
	for i, step := range steps {
		if !s.meets(space, step, now) {
			return documents.Written{Now: now, Refused: i + 1}, nil
		}
		if step.Op == documents.OpPut {
			more += weightOf(space, step.Name, len(step.Text))
			if former := s.all.get(space.Tenant, documentKey{space, step.Name}, now); former != nil {
				more -= former.weight
			}
		}
	}
	if err := s.all.room(space.Tenant, more); err != nil {
		return documents.Written{}, err
	}
	for _, step := range steps {
		s.apply(c, space, step, now)
	}
	return documents.Written{Now: now}, nil
}

func weightOf(space documents.Space, name string, bytes int) int {
	return documentWeight + len(space.Owner) + len(name) + bytes
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

func (s *documentStore) count(space documents.Space, term documents.Term, now time.Time) int64 {
	x := s.indexes[documentKey{space, term.Index}]
	if x == nil {
		return 0
	}
	x.recount(now)
	n, sum := x.n, x.sum
	if x.times[term.Except].After(now) {
		n, sum = n-1, sum-weightIn(term.Except)
	}
	if term.Weight == 0 {
		return sum
	}
	return n * term.Weight
}

// apply makes the change of a step.
func (s *documentStore) apply(c *change, space documents.Space, step documents.Step, now time.Time) {
	key := documentKey{space, step.Name}
	switch step.Op {
	case documents.OpPut:
		s.put(c, space, step, now)
	case documents.OpExtend:
		if d := s.all.get(space.Tenant, key, now); d != nil {
			d.expires = step.Ends(now)
			d.keep(c, key)
		}
	case documents.OpDelete:
		if s.all.remove(space.Tenant, key) {
			c.drop(kindDocument, key.record())
		}
	case documents.OpJoin:
		x := s.index(key)
		x.stay = step.Stay
		if at := step.Ends(now); at.After(x.times[step.Member]) {
			x.set(step.Member, at)
			x.keep(c, key, step.Member)
		}
	case documents.OpLeave:
		if x := s.indexes[key]; x != nil {
			s.leave(c, key, x, step.Member)
			s.purgeIndex(c, key, x, now)
		}
	case documents.OpKeep:
		if x := s.indexes[key]; x != nil {
			all := x.ordered()
			for _, member := range all[:max(0, len(all)-int(step.N))] {
				s.leave(c, key, x, member)
			}
		}
	}
}

// index returns an index, a new one if there is none.
func (s *documentStore) index(key documentKey) *index {
	x := s.indexes[key]
	if x == nil {
		x = &index{times: make(map[string]time.Time)}
		s.indexes[key] = x
	}
	return x
}

func (s *documentStore) put(c *change, space documents.Space, step documents.Step, now time.Time) {
	key := documentKey{space, step.Name}
	s.writes++
	d := &document{
		life: life{step.Ends(now)}, data: bytes.Clone(step.Text), revision: strconv.FormatInt(s.writes, 10),
		created: now, weight: weightOf(space, step.Name, len(step.Text)),
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
	d.keep(c, key)
}

// ordered returns the members, earliest time first.
func (x *index) ordered() []string {
	return slices.SortedFunc(maps.Keys(x.times), func(a, b string) int {
		return cmp.Or(x.times[a].Compare(x.times[b]), cmp.Compare(a, b))
	})
}
