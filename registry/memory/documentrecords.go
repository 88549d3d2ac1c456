package memory

import (
	"strconv"
	"time"
)

// record returns the key of a document's record or, with a member, of one in an index.
func (k documentKey) record(member ...string) string {
	return key(append([]string{k.space.Tenant, k.space.Kind, k.space.Owner, k.name}, member...)...)
}

// keep records a document: when it expires and was created, its revision, and the data.
func (d *document) keep(c *change, k documentKey) {
	if c.kept() {
		revision, _ := strconv.ParseInt(d.revision, 10, 64)
		c.put(kindDocument, k.record(), packed(d.data, nanos(d.expires), nanos(d.created), revision))
	}
}

// keep records a member of an index: its time, and how long it stays.
func (x *index) keep(c *change, k documentKey, member string) {
	if c.kept() {
		c.put(kindMember, k.record(member), packed(nil, nanos(x.times[member]), int64(x.stay)))
	}
}

// loadDocument takes a document into memory, or out of it.
func (s *documentStore) loadDocument(r Record) error {
	var k documentKey
	if err := split(r.Key, &k.space.Tenant, &k.space.Kind, &k.space.Owner, &k.name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Value == nil {
		s.all.remove(k.space.Tenant, k)
		return nil
	}
	var expires, created, revision int64
	data, err := unpack(r.Value, &expires, &created, &revision)
	if err != nil {
		return err
	}
	s.writes = max(s.writes, revision)
	s.all.set(k.space.Tenant, k, &document{
		life: life{fromNanos(expires)}, created: fromNanos(created), revision: strconv.FormatInt(revision, 10),
		data: data, weight: weightOf(k.space, k.name, len(data)),
	})
	return nil
}

// loadMember takes a member of an index into memory, or out of it.
func (s *documentStore) loadMember(r Record) error {
	var k documentKey
	var member string
	if err := split(r.Key, &k.space.Tenant, &k.space.Kind, &k.space.Owner, &k.name, &member); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Value == nil {
		if x := s.indexes[k]; x != nil {
			x.remove(member)
		}
		return nil
	}
	var at, stay int64
	if _, err := unpack(r.Value, &at, &stay); err != nil {
		return err
	}
	x := s.index(k)
	x.set(member, fromNanos(at))
	x.stay = time.Duration(stay)
	return nil
}
