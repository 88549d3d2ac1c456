// Package toolmemory keeps the memories of local tools as documents of a store. Every store uses it to implement
// registry.ToolMemoryStore.
//
// A tenant's memories are in one space. Each is a document with all its values. It is in one index for the tenant, one
// for its user and one for its conversation, each of the memory's size class: a quota is checked by counting, however
// many memories there are. The last erasure of a conversation is a document. Memories that do not name its revision are
// older, and count as deleted.
//
// Imports: only registry and registry/documents, of the packages of this module.
package toolmemory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// store implements registry.ToolMemoryStore.
type store struct{ docs documents.Store }

// New returns a store of memories on documents.
func New(docs documents.Store) registry.ToolMemoryStore { return store{docs} }

// erasedID, followed by the name of a conversation, is the document of its last erasure.
const erasedID = "erased."

// classes are the sizes, in bytes, as which memories count.
var classes = [...]int64{1 << 10, 8 << 10, registry.MaxToolMemory}

func space(tenant string) documents.Space { return documents.Space{Tenant: tenant, Kind: "toolmemory"} }

// memory is a stored memory.
type memory struct {
	Session string                     `json:"session,omitempty"`
	User    string                     `json:"user,omitempty"`
	Erasure string                     `json:"erasure,omitempty"` // revision of the last erasure before it
	Values  map[string]json.RawMessage `json:"values"`

	class int // in which the indexes of User and Session count it; -1: in none
}

// isErased reports whether a memory is of before the last erasure.
func (m memory) isErased(erasure documents.Document) bool {
	return erasure.Exists() && m.Erasure != erasure.Revision
}

// idOf returns the id of a memory's document.
func idOf(key registry.ToolMemoryKey) string {
	text, _ := json.Marshal([]any{key.Session, key.Identity, key.Sandboxed}) // cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// idsOf returns the ids of the documents of a use: the memory's, then the erasure's if it is of a conversation.
func idsOf(key registry.ToolMemoryKey) []string {
	ids := []string{idOf(key)}
	if key.Session != "" {
		ids = append(ids, erasedID+key.Session)
	}
	return ids
}

// memoryOf returns the memory that a use finds. If there is none, it has no values.
func memoryOf(u registry.ToolMemoryUse, found []documents.Document) (m memory, err error) {
	var erasure documents.Document
	if len(found) > 1 {
		erasure = found[1]
	}
	// Fences are readings of the store's clock, in microseconds.
	if erasure.Exists() && u.Fence > 0 && u.Fence/1000 <= erasure.Created.UnixMilli() {
		return m, registry.ErrErased
	}
	if found[0].Exists() {
		if m, err = documents.Decode[memory](found[0], nil); err != nil {
			return m, err
		}
	}
	m.class = -1
	switch {
	case m.Values == nil || m.isErased(erasure):
		m.Values = make(map[string]json.RawMessage)
	case m.User == u.User:
		m.class = classOf(size(m.Values))
	}
	m.Session, m.User = u.Key.Session, u.User
	if erasure.Exists() {
		m.Erasure = erasure.Revision
	}
	return m, nil
}

// ReadToolMemory implements registry.ToolMemoryStore.
func (s store) ReadToolMemory(ctx context.Context, u registry.ToolMemoryUse) (map[string]json.RawMessage, error) {
	found, err := s.docs.Read(ctx, space(u.Key.Tenant).Refs(idsOf(u.Key)...)...)
	if err != nil {
		return nil, err
	}
	m, err := memoryOf(u, found)
	if d := found[0]; err == nil && len(m.Values) > 0 && d.Expires.Sub(d.Now) < u.Life-u.Life/10 {
		_ = s.extend(ctx, u, m, d.Revision) // the values are here, and the next read tries again
	}
	return m.Values, err
}

// extend extends the life of a memory, unless it has changed.
func (s store) extend(ctx context.Context, u registry.ToolMemoryUse, m memory, revision string) error {
	id, class := idOf(u.Key), classOf(size(m.Values))
	steps := []documents.Step{documents.Expect(id, revision), documents.Extend(id, u.Life)}
	for _, index := range m.indexes() {
		steps = append(steps, documents.Join(classIndex(index, class), id, u.Life, 0))
	}
	_, err := documents.Commit(ctx, s.docs, space(u.Key.Tenant), steps...)
	return err
}

// ChangeToolMemory implements registry.ToolMemoryStore.
func (s store) ChangeToolMemory(
	ctx context.Context, u registry.ToolMemoryUse, change func(values map[string]json.RawMessage) error,
) error {
	ids := idsOf(u.Key)
	for range documents.MaxTries {
		found, err := s.docs.Read(ctx, space(u.Key.Tenant).Refs(ids...)...)
		if err != nil {
			return err
		}
		m, err := memoryOf(u, found)
		if err != nil {
			return err
		}
		if err := change(m.Values); err != nil {
			return err
		}
		if err := compact(m.Values); err != nil {
			return err
		}
		steps, err := put(u, m)
		if err != nil {
			return err
		}
		quotas := len(steps)
		for i, id := range ids {
			steps = append(steps, documents.Expect(id, found[i].Revision))
		}
		switch done, err := documents.Commit(ctx, s.docs, space(u.Key.Tenant), steps...); {
		case err != nil || done.Refused == 0:
			return err
		case done.Refused <= quotas:
			return registry.ErrManyToolMemories
		}
	}
	return documents.ErrContended
}

// compact removes the space from values, so that their size is that of what is stored and read again.
func compact(values map[string]json.RawMessage) error {
	for key, value := range values {
		var b bytes.Buffer
		if err := json.Compact(&b, value); err != nil {
			return registry.Errorf(registry.CodeInvalidRequest, "The value of %.200q is not JSON: %v.", key, err)
		}
		values[key] = b.Bytes()
	}
	return nil
}

// put returns the steps that store a memory, if it fits into the quotas. A memory that does not grow always fits: a
// full quota, or one that was lowered, must not keep it from shrinking.
func put(u registry.ToolMemoryUse, m memory) ([]documents.Step, error) {
	id, stored := idOf(u.Key), size(m.Values)
	switch {
	case stored > registry.MaxToolMemory:
		return nil, registry.Errorf(registry.CodePayloadTooLarge,
			"The tool's memory would have %d bytes; at most %d are allowed.", stored, registry.MaxToolMemory)
	case len(m.Values) == 0:
		return m.drop(id), nil
	}
	data, err := strictjson.Encode(m)
	if err != nil {
		return nil, registry.AsError(err)
	}
	var steps []documents.Step
	class, limit := classOf(stored), u.Bytes
	for _, index := range m.indexes() { // the tenant's first
		if class > m.class {
			steps = append(steps, documents.AtMost(limit-classes[class], terms(index, id)...))
		}
		for other := range classes {
			if other == class {
				steps = append(steps, documents.Join(classIndex(index, other), id, u.Life, 0))
			} else {
				steps = append(steps, documents.Leave(classIndex(index, other), id))
			}
		}
		limit = u.Bytes / registry.ToolMemoryShare
	}
	return append(steps, documents.Put(id, data, u.Life)), nil
}

// drop returns the steps that delete a memory.
func (m memory) drop(id string) []documents.Step {
	steps := []documents.Step{documents.Delete(id)}
	for _, index := range m.indexes() {
		for class := range classes {
			steps = append(steps, documents.Leave(classIndex(index, class), id))
		}
	}
	return steps
}

// EraseToolMemories implements registry.ToolMemoryStore. After the first write the memories count as deleted. The rest
// frees what they take, best effort: what remains expires, before the document of the erasure does.
func (s store) EraseToolMemories(ctx context.Context, conversation registry.Key, life time.Duration) error {
	in, erasure := space(conversation.Tenant), erasedID+conversation.Session
	_, err := documents.Commit(ctx, s.docs, in, documents.Delete(erasure), documents.Put(erasure, nil, life))
	if err != nil {
		return err
	}
	time.Sleep(erasePause)
	s.free(ctx, in, conversation.Session)
	return nil
}

// erasePause is how long an erasure waits. Its document has the millisecond of its creation, and a turn that begins in
// the same one counts as earlier.
const erasePause = 2 * time.Millisecond

// free deletes erased memories of a conversation, as many of them as it can.
func (s store) free(ctx context.Context, in documents.Space, session string) {
	var queries []documents.Query
	for class := range classes {
		queries = append(queries, documents.Query{
			Space: in, Index: classIndex(sessionIndex(session), class), Limit: eraseLimit,
		})
	}
	lists, err := s.docs.Members(ctx, queries...)
	if err != nil {
		return
	}
	for ids := range slices.Chunk(slices.Concat(lists...), documents.ReadAtOnce-1) {
		if s.eraseSome(ctx, in, erasedID+session, ids) != nil && ctx.Err() != nil {
			return
		}
	}
}

// eraseLimit is how many memories of each class an erasure deletes.
const eraseLimit = 1000

// eraseSome deletes those memories that are of before the erasure.
func (s store) eraseSome(ctx context.Context, in documents.Space, erasure string, ids []string) error {
	return documents.Change(ctx, s.docs, in, append(slices.Clone(ids), erasure),
		func(found []documents.Document) ([]documents.Step, error) {
			steps := []documents.Step{}
			for i, id := range ids {
				if !found[i].Exists() {
					continue
				}
				m, err := documents.Decode[memory](found[i], nil)
				if err == nil && m.isErased(found[len(ids)]) { // one that is not readable expires
					steps = append(steps, m.drop(id)...)
				}
			}
			return steps, nil
		})
}

// size returns the bytes of keys and values. Keys count as they are stored, with the escapes of JSON.
func size(values map[string]json.RawMessage) (sum int) {
	for key, value := range values {
		text, _ := strictjson.Encode(key) // cannot fail
		sum += len(text) - len(`""`) + len(value)
	}
	return sum
}

// classOf returns the smallest class that so many bytes fit in.
func classOf(bytes int) int {
	for class, most := range classes {
		if int64(bytes) <= most {
			return class
		}
	}
	return len(classes) - 1
}

func userIndex(user string) string { return "user." + user }

func sessionIndex(session string) string { return "session." + session }

// indexes returns the indexes of the memory, without their classes.
func (m memory) indexes() []string {
	indexes := []string{"all"}
	if m.User != "" {
		indexes = append(indexes, userIndex(m.User))
	}
	if m.Session != "" {
		indexes = append(indexes, sessionIndex(m.Session))
	}
	return indexes
}

func classIndex(index string, class int) string { return strconv.Itoa(class) + "." + index }

// terms count the bytes of all memories of an index but one.
func terms(index, except string) []documents.Term {
	all := make([]documents.Term, len(classes))
	for class, weight := range classes {
		all[class] = documents.Term{Index: classIndex(index, class), Weight: weight, Except: except}
	}
	return all
}

// erasePage is how many memories are erased in one step.
const erasePage = 50

// Erase removes the memories that are charged to a user, and returns how many.
func Erase(ctx context.Context, docs documents.Store, tenant, user string) (removed int, err error) {
	in := space(tenant)
	for class := range classes {
		index := classIndex(userIndex(user), class)
		for {
			lists, err := docs.Members(ctx, documents.Query{Space: in, Index: index, Limit: erasePage})
			if err != nil {
				return removed, err
			}
			ids, n := lists[0], 0
			if len(ids) == 0 {
				break
			}
			err = documents.Change(ctx, docs, in, ids, func(found []documents.Document) ([]documents.Step, error) {
				steps := []documents.Step{}
				n = 0
				for i, id := range ids {
					steps = append(steps, documents.Leave(index, id), documents.Delete(id))
					if m, err := documents.Decode[memory](found[i], nil); err == nil && found[i].Exists() {
						n++
						steps = append(steps, m.drop(id)...)
					}
				}
				return steps, nil
			})
			if err != nil {
				return removed, err
			}
			removed += n
		}
	}
	return removed, nil
}
