package memory

import (
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// shared is a map of one kind of data that tenants share. After a tenant has added a value, at least as much must be
// free as the tenant holds, so that no tenant takes all of the room. The lock of its owner guards it.
type shared[K comparable, V interface{ end() time.Time }] struct {
	what     string         // the kind, for messages
	most     int            // limit of all tenants
	quota    int            // limit of one tenant, in addition to its share; zero: only its share
	weigh    func(V) int    // the weight of a value, which never changes; nil: one
	count    int            // of all tenants, including expired values
	counts   map[string]int // of each tenant
	byTenant map[string]expiring[K, V]
}

func newShared[K comparable, V interface{ end() time.Time }](what string, most, quota int) shared[K, V] {
	return shared[K, V]{
		what: what, most: most, quota: quota,
		counts: make(map[string]int), byTenant: make(map[string]expiring[K, V]),
	}
}

// get returns a tenant's value of a key, nil if there is none or it has expired.
func (s *shared[K, V]) get(tenant string, key K, now time.Time) V {
	return s.byTenant[tenant].get(key, now)
}

// put stores a value and replaces the existing one. It fails if there is no room.
func (s *shared[K, V]) put(tenant string, key K, value V) error {
	if err := s.lacks(tenant, key, value); err != nil {
		return err
	}
	s.set(tenant, key, value)
	return nil
}

// set stores a value for which there is room, and replaces the existing one.
func (s *shared[K, V]) set(tenant string, key K, value V) {
	s.remove(tenant, key)
	of := s.byTenant[tenant]
	if of == nil {
		of = make(expiring[K, V])
		s.byTenant[tenant] = of
	}
	of[key] = value
	s.add(tenant, s.weight(value))
}

func (s *shared[K, V]) weight(value V) int {
	if s.weigh == nil {
		return 1
	}
	return s.weigh(value)
}

func (s *shared[K, V]) add(tenant string, weight int) {
	s.count += weight
	s.counts[tenant] += weight
}

// lacks returns an error if there is no room for a value under a key.
func (s *shared[K, V]) lacks(tenant string, key K, value V) error {
	more := s.weight(value)
	if old, ok := s.byTenant[tenant][key]; ok {
		more -= s.weight(old)
	}
	return s.room(tenant, more)
}

// room returns an error if a tenant may not hold so much more. A tenant that holds nothing may take all that is free.
func (s *shared[K, V]) room(tenant string, more int) error {
	switch own, free := s.counts[tenant], s.most-s.count; {
	case more <= 0:
		return nil
	case own > 0 && (own+more > free-more || s.quota > 0 && own+more > s.quota):
		return registry.StoreFull("This tenant", s.what)
	case free < more:
		return registry.StoreFull("The store", s.what)
	}
	return nil
}

// remove removes a tenant's value of a key, and reports whether there was one. It also removes an empty tenant.
func (s *shared[K, V]) remove(tenant string, key K) bool {
	of := s.byTenant[tenant]
	value, ok := of[key]
	if !ok {
		return false
	}
	delete(of, key)
	s.add(tenant, -s.weight(value))
	if len(of) == 0 {
		delete(s.byTenant, tenant)
		delete(s.counts, tenant)
	}
	return true
}

// purge removes expired values, and calls gone for each, unless it is nil. It returns how many there were.
func (s *shared[K, V]) purge(now time.Time, gone func(K, V)) (removed int) {
	for tenant, of := range s.byTenant {
		for key, value := range of {
			if now.Before(value.end()) {
				continue
			}
			s.remove(tenant, key)
			removed++
			if gone != nil {
				gone(key, value)
			}
		}
	}
	return removed
}

// expiring is a map whose values have a life: V is a pointer to a struct that embeds life. get does not return expired
// values, and purge removes them. The lock of its owner guards the map.
type expiring[K comparable, V interface{ end() time.Time }] map[K]V

// life is when a value expires.
type life struct{ expires time.Time }

func (l *life) end() time.Time { return l.expires }

// get returns the value of a key, nil if there is none or it has expired.
func (m expiring[K, V]) get(key K, now time.Time) (value V) {
	if v, ok := m[key]; ok && now.Before(v.end()) {
		value = v
	}
	return value
}

// table is an expiring map with a lock of its own.
type table[K comparable, V interface{ end() time.Time }] struct {
	mu     sync.Mutex
	all    expiring[K, V]
	purges throttle
	erase  func(tx *change, key K, value V) // removes a value from the journal; nil: it has none
}

// lock takes the lock, and returns the time. It removes expired values once a minute: from a table that a journal
// keeps, only as part of a change.
func (t *table[K, V]) lock(clock func() time.Time, tx *change) time.Time {
	t.mu.Lock()
	now := clock()
	if t.all == nil {
		t.all = make(expiring[K, V])
	}
	if (t.erase == nil || tx.kept()) && t.purges.due(now, time.Minute) {
		t.purge(tx, now)
	}
	return now
}

// purge removes expired values.
func (t *table[K, V]) purge(tx *change, now time.Time) {
	for key, value := range t.all {
		if !now.Before(value.end()) {
			t.forget(tx, key)
		}
	}
}

// forget removes a value, expired or not, if there is one.
func (t *table[K, V]) forget(tx *change, key K) {
	if value, ok := t.all[key]; ok {
		delete(t.all, key)
		if tx.kept() && t.erase != nil {
			t.erase(tx, key, value)
		}
	}
}

// capped is a log that grows at its end and loses its oldest entries. The lock of its owner guards it.
type capped[T any] struct {
	lines []line[T]       // in the order of their ids
	bytes int             // of all entries, approximate
	last  registry.FeedID // of the newest entry, also after it has gone
}

type line[T any] struct {
	id    registry.FeedID
	entry T
	bytes int
}

// add adds an entry under the id that follows the last one.
func (l *capped[T]) add(id registry.FeedID, entry T, bytes int) {
	l.lines, l.bytes, l.last = append(l.lines, line[T]{id, entry, bytes}), l.bytes+bytes, id
}

// insert adds an entry under an id of its own, or replaces the entry of this id.
func (l *capped[T]) insert(id registry.FeedID, entry T, bytes int) {
	if id.Compare(l.last) > 0 { // as when a whole log is read
		l.add(id, entry, bytes)
		return
	}
	l.remove(id)
	l.lines, l.bytes = slices.Insert(l.lines, l.from(id), line[T]{id, entry, bytes}), l.bytes+bytes
}

// remove removes the entry of an id, if there is one.
func (l *capped[T]) remove(id registry.FeedID) {
	if at := l.from(id); at < len(l.lines) && l.lines[at].id == id {
		l.bytes -= l.lines[at].bytes
		l.lines = slices.Delete(l.lines, at, at+1)
	}
}

// isOver reports whether the log has more lines or bytes than it may. One line may have any number of bytes.
func (l *capped[T]) isOver(lines, bytes int) bool {
	return len(l.lines) > lines || l.bytes > bytes && len(l.lines) > 1
}

// dropFirst removes the oldest entry.
func (l *capped[T]) dropFirst() line[T] {
	first := l.lines[0]
	l.bytes -= first.bytes
	l.lines[0] = line[T]{} // the array stays in memory for a while; the entry's data need not
	l.lines = l.lines[1:]
	return first
}

// from returns the index of the first entry with this id or a later one.
func (l *capped[T]) from(id registry.FeedID) int {
	i, _ := slices.BinarySearchFunc(l.lines, id, func(l line[T], id registry.FeedID) int { return l.id.Compare(id) })
	return i
}

// after returns up to limit entries after this id.
func (l *capped[T]) after(id registry.FeedID, limit int) []T {
	id.Seq++
	first := l.from(id)
	return l.entries(first, first+pageSize(limit))
}

// entries returns those from one index to another, as far as there are entries.
func (l *capped[T]) entries(first, end int) []T {
	var all []T
	for _, line := range l.lines[max(0, first):min(end, len(l.lines))] {
		all = append(all, line.entry)
	}
	return all
}

// purgesPerLife is how often during the life of values a writer purges expired ones.
const purgesPerLife = 16

// throttle limits how often something is done.
type throttle struct{ last time.Time }

// due reports whether it is time to do it again. The caller must then do it.
func (t *throttle) due(now time.Time, every time.Duration) bool {
	if now.Sub(t.last) < every {
		return false
	}
	t.last = now
	return true
}

// tenantKey identifies an object of a tenant: a call, an idempotency key or a budget.
type tenantKey struct{ tenant, id string }
