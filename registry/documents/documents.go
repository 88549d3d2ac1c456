// Package documents is the contract of a store of small documents that are written seldom. Package registry/memory and
// package redisstore implement it. The packages registry/approvals, registry/blobs, registry/credentials,
// registry/pairings and registry/toolmemory stand on it, so their logic is the same with every store.
//
// Start with Store and Change. Step has the conditions and changes of a write.
//
// Imports: only registry, of the packages of this module.
package documents

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/farhand/farhand/registry"
)

// Space is a set of documents and indexes that one write can change together.
type Space struct {
	Tenant string // empty: the space belongs to the whole fleet
	Kind   string // lower-case name of what it holds
	Owner  string // tells spaces of one tenant and kind apart; may be empty
}

// Document is a stored value. The zero Document stands for one that does not exist.
type Document struct {
	Data     []byte
	Revision string    // differs after each Put; empty: there is no document
	Created  time.Time // time of the first Put, in ms
	Expires  time.Time
	Now      time.Time // time of the read, in ms
	Err      error     // registry.Newer: a newer release wrote it, and there is no data
}

// Exists reports whether there is a document.
func (d Document) Exists() bool { return d.Revision != "" }

// Decode reads a document of JSON. It fails with missing if there is none, and with CodeStoreUnavailable if the data is
// not readable.
func Decode[T any](d Document, missing error) (v T, err error) {
	switch {
	case !d.Exists():
		return v, missing
	case d.Err != nil:
		return v, d.Err
	}
	if err = json.Unmarshal(d.Data, &v); err != nil {
		return v, registry.StoreUnavailable("read a document", err)
	}
	return v, nil
}

// Ref names a document.
type Ref struct {
	Space
	ID string
}

// Ref names a document of the space.
func (s Space) Ref(id string) Ref { return Ref{s, id} }

// Refs names documents of the space.
func (s Space) Refs(ids ...string) []Ref {
	refs := make([]Ref, len(ids))
	for i, id := range ids {
		refs[i] = s.Ref(id)
	}
	return refs
}

// Existing returns the documents that exist. It changes found.
func Existing(found []Document) []Document {
	return slices.DeleteFunc(found, func(d Document) bool { return !d.Exists() })
}

// Query selects members of an index, earliest time first. The time of a member is when its life ends.
type Query struct {
	Space
	Index string
	Due   bool // members whose time has come, instead of those whose time is still ahead
	Skip  int  // leave out so many of the first
	Limit int
}

// Op is what a Step does.
type Op string

// The conditions, then the changes.
const (
	OpExpect Op = "expect"
	OpHas    Op = "has"
	OpAtMost Op = "most"

	OpPut    Op = "put"
	OpExtend Op = "extend"
	OpDelete Op = "delete"
	OpJoin   Op = "join"
	OpLeave  Op = "leave"
	OpKeep   Op = "keep"
)

// IsCondition reports whether a step only checks something.
func (o Op) IsCondition() bool { return o == OpExpect || o == OpHas || o == OpAtMost }

// Step is a condition or a change of one write. Make it with the functions below.
type Step struct {
	Op     Op
	Name   string        // of the document or the index
	Member string        // of the index
	Text   []byte        // OpPut: data; OpExpect: revision
	Life   time.Duration // from now
	End    time.Time     // the life ends then at the latest; zero: no such end
	Stay   time.Duration // OpJoin
	N      int64         // OpAtMost, OpKeep
	Terms  []Term        // OpAtMost

	err error // of PutJSON
}

// Term counts members of an index whose time is ahead.
type Term struct {
	Index  string
	Weight int64  // of each member; zero: the weight in its name (see Weighed)
	Except string // a member that does not count
}

// Weighed names a member that has a weight of its own.
func Weighed(weight int64, name string) string { return strconv.FormatInt(weight, 10) + " " + name }

// Expect is met if a document has this revision. Empty: if it does not exist.
func Expect(id, revision string) Step { return Step{Op: OpExpect, Name: id, Text: []byte(revision)} }

// Has is met if an index has a member whose time is ahead.
func Has(index, member string) Step { return Step{Op: OpHas, Name: index, Member: member} }

// AtMost is met if the terms add up to at most n.
func AtMost(n int64, terms ...Term) Step { return Step{Op: OpAtMost, N: n, Terms: terms} }

// Put creates or replaces a document, for life. A replaced document keeps its creation time. A life of zero keeps the
// document's expiry, and does nothing if there is no document.
func Put(id string, data []byte, life time.Duration) Step {
	return Step{Op: OpPut, Name: id, Text: data, Life: life}
}

// PutJSON is Put for a value that is stored as JSON. If it cannot be, Commit and Change fail.
func PutJSON(id string, v any, life time.Duration) Step {
	data, err := json.Marshal(v)
	return Step{Op: OpPut, Name: id, Text: data, Life: life, err: err}
}

// Until returns the step with an end of the life that it gives. A zero end is none.
func (s Step) Until(end time.Time) Step {
	s.End = end
	return s
}

// Ends returns when the life ends that a step gives now, for stores.
func (s Step) Ends(now time.Time) time.Time {
	end := now.Add(s.Life)
	if !s.End.IsZero() && s.End.Before(end) {
		return s.End
	}
	return end
}

// Extend sets the remaining life of a document that exists.
func Extend(id string, life time.Duration) Step { return Step{Op: OpExtend, Name: id, Life: life} }

// Delete removes a document.
func Delete(id string) Step { return Step{Op: OpDelete, Name: id} }

// Join adds a member to an index for life. A member that has a later time keeps it. stay, the same for all members of
// an index, is how long a member can be found after its time (Query.Due).
func Join(index, member string, life, stay time.Duration) Step {
	return Step{Op: OpJoin, Name: index, Member: member, Life: life, Stay: stay}
}

// Leave removes a member from an index.
func Leave(index, member string) Step { return Step{Op: OpLeave, Name: index, Member: member} }

// Keep removes all but the n members of an index with the latest times.
func Keep(index string, n int64) Step { return Step{Op: OpKeep, Name: index, N: n} }

// Write changes one space.
type Write struct {
	Space
	Steps []Step
}

// Written is the outcome of a write.
type Written struct {
	Now     time.Time // by the store's clock, in ms
	Refused int       // number of the first step, from 1, whose condition was not met; zero: everything was written
}

// ReadAtOnce is how many documents of a space are read at one moment: in Redis, by a script that nothing interrupts.
const ReadAtOnce = 100

// Store keeps documents and indexes. Both expire by the store's clock. All methods are safe for concurrent use and
// honour their context. A failure of the store is a *registry.Error with CodeStoreUnavailable.
type Store interface {
	// Read returns documents in the order of refs, in one round trip. Up to ReadAtOnce consecutive refs of one space
	// are read at one moment.
	Read(ctx context.Context, refs ...Ref) ([]Document, error)

	// Members returns the members that each query selects, in one round trip.
	Members(ctx context.Context, queries ...Query) ([][]string, error)

	// Write makes each write as one atomic step, all in one round trip. It checks all conditions among the steps
	// and then makes the changes in order. If a condition is not met, the write changes nothing. After an error some of
	// the writes may have been made.
	Write(ctx context.Context, writes ...Write) ([]Written, error)
}

// Commit makes one write.
func Commit(ctx context.Context, s Store, space Space, steps ...Step) (Written, error) {
	for _, step := range steps {
		if step.err != nil {
			return Written{}, registry.AsError(step.err)
		}
	}
	done, err := s.Write(ctx, Write{space, steps})
	if err != nil {
		return Written{}, err
	}
	return done[0], nil
}

// Listed reads documents of the members that a query selects: for each member one for each ending, in order, whose id
// is prefix, member and ending. It takes two round trips.
func Listed(ctx context.Context, s Store, q Query, prefix string, endings ...string) ([]Document, error) {
	lists, err := s.Members(ctx, q)
	if err != nil {
		return nil, err
	}
	var refs []Ref
	for _, member := range lists[0] {
		for _, ending := range endings {
			refs = append(refs, q.Ref(prefix+member+ending))
		}
	}
	return s.Read(ctx, refs...)
}

// MaxTries is how often Change tries while others change the same documents.
const MaxTries = 50

// ErrContended is the error of Change if others keep changing the documents.
var ErrContended = registry.Errorf(registry.CodeBusy, "The data is being changed concurrently. Retry.")

// Change reads documents of a space, at most ReadAtOnce, and writes the changes that change returns if none of the
// documents was changed in between. Otherwise it calls change again with what it reads then. Without changes, an empty
// list still checks the documents; nil ends without a write.
func Change(
	ctx context.Context, s Store, space Space, ids []string, change func(found []Document) ([]Step, error),
) error {
	for range MaxTries {
		found, err := s.Read(ctx, space.Refs(ids...)...)
		if err != nil {
			return err
		}
		steps, err := change(found)
		if err != nil || steps == nil {
			return err
		}
		for i, id := range ids {
			steps = append(steps, Expect(id, found[i].Revision))
		}
		if done, err := Commit(ctx, s, space, steps...); err != nil || done.Refused == 0 {
			return err
		}
	}
	return ErrContended
}

// ChangeOne is Change for one document of JSON. It fails with missing if there is none.
func ChangeOne[T any](
	ctx context.Context, s Store, space Space, id string, missing error, change func(v T, d Document) ([]Step, error),
) error {
	return Change(ctx, s, space, []string{id}, func(found []Document) ([]Step, error) {
		v, err := Decode[T](found[0], missing)
		if err != nil {
			return nil, err
		}
		return change(v, found[0])
	})
}
