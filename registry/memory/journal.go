package memory

import (
	"encoding/binary"
	"errors"
	"strconv"
	"time"
)

// Journal keeps what a Store must not forget when its process ends. The store reads it once, when it is made, and
// writes each change to it. Package registry/memory/statefile implements it. The store calls one method at a time.
type Journal interface {
	// Load calls each for every record, by kind in the order of Kinds, and by key. It stops at the first error. The
	// slices are valid only during the call.
	Load(each func(Record) error) error

	// Commit makes changes, in order: all or none. They are on the disk when it returns nil. After an error the journal
	// has all of them or none, as Read then tells, and further commits may succeed.
	Commit(changes []Record) error

	// Read fills in the values of records, nil for those that do not exist.
	Read(records []Record) error

	// Close frees the journal. Only Close is called after it.
	Close() error
}

// Kind says what a record holds.
type Kind string

// The kinds. documents.go, conversations.go and so on have the formats.
const (
	kindDocument     Kind = "documents"
	kindMember       Kind = "indexes" // a member of an index of documents
	kindConversation Kind = "conversations"
	kindMessage      Kind = "messages" // one of a conversation
	kindDraft        Kind = "drafts"   // a conversation's
	kindPlace        Kind = "places"
	kindContinuation Kind = "continuations"
	kindAudit        Kind = "audit" // one line
	kindUsage        Kind = "usage" // one row
	kindRevocation   Kind = "revocations"
	kindChange       Kind = "changes" // of credentials: the log
	kindWindow       Kind = "windows" // the charges of a rate limit
	kindProbe        Kind = "probe"   // what Ping writes after a failure
)

// Kinds returns all kinds, in the order in which a Store loads them.
func Kinds() []Kind {
	return []Kind{
		kindDocument, kindMember, kindConversation, kindMessage, kindDraft, kindPlace, kindContinuation, kindAudit,
		kindUsage, kindRevocation, kindChange, kindWindow, kindProbe,
	}
}

// Record is one value that a Journal keeps, under a key that is unique among those of its kind. A nil Value in a change
// removes it.
type Record struct {
	Kind  Kind
	Key   string
	Value []byte
}

// loaders take a record into memory, or out of it if it has no value. They do not keep the slice.
func (m *Store) loaders() map[Kind]func(Record) error {
	return map[Kind]func(Record) error{
		kindDocument: m.documents.loadDocument, kindMember: m.documents.loadMember,
		kindConversation: m.loadConversation, kindMessage: m.loadMessage, kindDraft: m.loadDraft,
		kindPlace: m.loadPlace, kindContinuation: m.loadContinuation, kindAudit: m.loadAudit,
		kindUsage: m.loadUsage, kindRevocation: m.loadRevocation, kindChange: m.loadChange,
		kindWindow: m.loadWindow,
		kindProbe:  func(Record) error { return nil },
	}
}

// errRecord is the error for a record that cannot be read.
var errRecord = errors.New("malformed record")

// key returns a key of several parts. It is unique, and the keys with the same first parts follow each other.
func key(parts ...string) string {
	var b []byte
	for _, part := range parts {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return string(b)
}

// split reads the parts of a key.
func split(key string, parts ...*string) error {
	for _, part := range parts {
		n, size := binary.Uvarint([]byte(key[:min(len(key), binary.MaxVarintLen64)]))
		if size <= 0 || n > uint64(len(key)-size) {
			return errRecord
		}
		*part, key = key[size:size+int(n)], key[size+int(n):]
	}
	if key != "" {
		return errRecord
	}
	return nil
}

// ordered returns a part of a key that sorts as the numbers do, which are not negative.
func ordered(numbers ...int64) string {
	var b []byte
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return string(b)
}

// numbers reads a part that ordered wrote.
func numbers(part string, into ...*int64) error {
	if len(part) != 8*len(into) {
		return errRecord
	}
	for i, n := range into {
		*n = int64(binary.BigEndian.Uint64([]byte(part[8*i : 8*i+8])))
	}
	return nil
}

// packed returns a value that begins with numbers.
func packed(data []byte, numbers ...int64) []byte {
	b := make([]byte, 0, len(data)+len(numbers)*binary.MaxVarintLen64)
	for _, n := range numbers {
		b = binary.AppendVarint(b, n)
	}
	return append(b, data...)
}

// unpack reads the numbers at the beginning of a value, and returns a copy of the rest.
func unpack(value []byte, numbers ...*int64) ([]byte, error) {
	for _, n := range numbers {
		var size int
		if *n, size = binary.Varint(value); size <= 0 {
			return nil, errRecord
		}
		value = value[size:]
	}
	return append([]byte{}, value...), nil
}

// nanos returns a time in nanoseconds since 1970; zero for the zero time.
func nanos(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

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
