package memory

import (
	"time"

	"github.com/farhand/farhand/registry"
)

// shared is what tenants keep of one kind. Each gets its share: after it has taken a part, at least as much is free as
// it holds. So none takes what the others need. It is guarded by the lock of its owner.
type shared[K comparable, V interface{ end() time.Time }] struct {
	what     string // names the kind, for people
	most     int    // of all tenants
	mostOf   int    // of one tenant, beside its share; zero: its share alone
	count    int    // of all tenants, also what has expired
	byTenant map[string]expiring[K, V]
}

func newShared[K comparable, V interface{ end() time.Time }](what string, most, mostOf int) shared[K, V] {
	return shared[K, V]{what: what, most: most, mostOf: mostOf, byTenant: make(map[string]expiring[K, V])}
}

// get returns what a tenant keeps under a key, nil if there is nothing or it has expired.
func (s *shared[K, V]) get(tenant string, key K, now time.Time) V {
	return s.byTenant[tenant].get(key, now)
}

// put keeps a value, in place of the one that there may be. It fails if there is no room.
func (s *shared[K, V]) put(tenant string, key K, value V) error {
	if err := s.lacks(tenant, key); err != nil {
		return err
	}
	of := s.byTenant[tenant]
	if of == nil {
		of = make(expiring[K, V])
		s.byTenant[tenant] = of
	}
	s.count -= len(of)
	of[key] = value
	s.count += len(of)
	return nil
}

// lacks returns why there is no room under a key, nil if there is. A tenant that holds nothing may take any part that
// is free.
func (s *shared[K, V]) lacks(tenant string, key K) error {
	of, free := s.byTenant[tenant], s.most-s.count
	if _, ok := of[key]; ok {
		return nil
	}
	switch own := len(of); {
	case own > 0 && (own+1 > free-1 || s.mostOf > 0 && own >= s.mostOf):
		return registry.StoreFull("This tenant", s.what)
	case free < 1:
		return registry.StoreFull("The store", s.what)
	}
	return nil
}

// remove removes what a tenant keeps under a key.
func (s *shared[K, V]) remove(tenant string, key K) {
	of := s.byTenant[tenant]
	s.count -= len(of)
	delete(of, key)
	s.recount(tenant, of)
}

// purge removes what has expired, and returns how many values it removed.
func (s *shared[K, V]) purge(now time.Time) (removed int) {
	for tenant, of := range s.byTenant {
		s.count -= len(of)
		removed += of.purge(now)
		s.recount(tenant, of)
	}
	return removed
}

// recount counts what is left of a tenant, and forgets a tenant that keeps nothing.
func (s *shared[K, V]) recount(tenant string, of expiring[K, V]) {
	if s.count += len(of); len(of) == 0 {
		delete(s.byTenant, tenant)
	}
}
