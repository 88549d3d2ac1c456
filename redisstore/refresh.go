package redisstore

import (
	"context"
	"slices"
	"strconv"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// refreshChunk is how many sessions are refreshed together.
const refreshChunk = 256

// Refresh implements registry.SessionStore. It extends lives, and compares what Redis has of each claim with the entry:
// attributes, tools, every place in an index. A session of which anything differs counts as missing.
func (s *Store) Refresh(ctx context.Context, entries []registry.Entry) (missing, lost []registry.Key, err error) {
	r, ok := s.refreshers.Get().(*refresher)
	if !ok {
		r = newRefresher(s)
	}
	for chunk := range slices.Chunk(entries, refreshChunk) {
		if err := r.refresh(ctx, chunk); err != nil {
			// What it has may be incomplete: it is not used again.
			return nil, nil, redisconn.Unavailable("refresh", err)
		}
		for i, verdict := range r.verdicts {
			switch {
			case verdict == 0:
				lost = append(lost, chunk[i].Session.Key)
			case verdict < 0 || r.absent[i]:
				missing = append(missing, chunk[i].Session.Key)
			}
		}
	}
	r.forget()
	s.refreshers.Put(r)
	return missing, lost, nil
}

// refresher refreshes sessions, a chunk at a time. A pod refreshes all its sessions all the time, so everything that
// commands are built of is in memory that is used again: made anew, it was 2.8 KB of garbage for a session with five
// tools, and 93 KB for one with a list of a hundred of its own. It is 0.7 and 1.4 KB (BenchmarkRefresh).
type refresher struct {
	store    *Store
	entries  []registry.Entry // of the chunk; so are the next two
	verdicts []int64          // by entry: what the script says
	absent   []bool           // by entry: whether it is not in an index it must be in

	pipe     *redisconn.Pipeline // what is sent next
	texts    texts               // of pipe
	sessions []*redisconn.Command
	indexes  indexChecks
	sets     offeredSets
	keys     []string            // for one session
	again    *redisconn.Pipeline // what Redis had lost is written by it; nil: nothing yet

	sessionTTL, indexTTL any // so that they are not converted for each command
}

func newRefresher(s *Store) *refresher {
	return &refresher{
		store: s, pipe: s.conn.Pipeline(), sessionTTL: s.sessionTTL, indexTTL: s.indexTTL,
		indexes: indexChecks{byIndex: make(map[string]*indexCheck)},
		sets:    offeredSets{byList: make(map[sharedList]*offeredSet), bySpec: make(map[sharedSpec]int)},
	}
}

// forget lets go of what belongs to others.
func (r *refresher) forget() {
	r.entries = nil
	r.pipe.Reset()
	r.indexes.reset()
	r.sets.reset()
}

// refresh refreshes a chunk, and leaves what it found in verdicts and absent.
func (r *refresher) refresh(ctx context.Context, entries []registry.Entry) error {
	r.forget()
	r.entries, r.again = entries, nil
	r.verdicts, r.absent = r.verdicts[:0], append(r.absent[:0], make([]bool, len(entries))...)
	for i := range entries {
		set := r.sets.add(i, &entries[i], &r.texts)
		r.sessions = append(r.sessions, r.extend(&entries[i], set))
		r.expectIndexes(i, &entries[i].Session, set)
	}
	if err := r.askSpecs(ctx); err != nil {
		return err
	}
	if err := r.askSets(ctx); err != nil {
		return err
	}
	if err := r.flush(ctx); err != nil || r.again == nil {
		return err
	}
	return r.again.Exec(ctx)
}

// extend adds the script that extends the life of a session, keeps its pulse, and compares what Redis has of it.
func (r *refresher) extend(e *registry.Entry, set *offeredSet) *redisconn.Command {
	t, sess := &r.texts, &e.Session
	c := r.pipe.EvalKeys(scriptRefresh, 1)
	t.bytes = appendSessionKey(t.bytes, sess.Key)
	c.Add(t.text())
	c.Add(r.sessionTTL)
	c.Add(&sess.Pod)
	t.bytes = strconv.AppendInt(t.bytes, sess.Generation, 10)
	c.Add(t.text())
	t.bytes = strconv.AppendInt(t.bytes, sess.Generation+1, 10)
	c.Add(t.text())
	t.bytes = appendAttributeDigest(t.bytes, sess)
	c.Add(t.text())
	c.Add(&set.hash)
	t.bytes = appendPulse(t.bytes, e.Pulse)
	c.Add(t.text())
	return c
}

// expectIndexes asks for every index that an entry must be in, but for its tools.
func (r *refresher) expectIndexes(place int, sess *registry.Session, set *offeredSet) {
	r.expect(podSessionsKey(sess.Pod), podMember(sess.Key), place)
	r.keys = appendAttributeIndexes(r.keys[:0], *sess)
	for _, index := range r.keys {
		r.expect(index, &sess.Key.Session, place)
	}
	if set.hash != "" {
		r.expect(set.members, &sess.Key.Session, place)
	}
}

// indexCheck reads the scores of the members an index should have.
type indexCheck struct {
	places []int // by member: the entry that needs it
	call   *redisconn.Command
}

// indexChecks are the checks of a chunk.
type indexChecks struct {
	byIndex map[string]*indexCheck
	list    []*indexCheck // those that were used before are behind its end
}

func (c *indexChecks) reset() {
	clear(c.byIndex)
	c.list = c.list[:0]
}

func (r *refresher) expect(index string, member any, place int) {
	check := r.indexes.byIndex[index]
	if check == nil {
		var key any = index
		r.pipe.Do("PEXPIRE", key, r.indexTTL)
		check = again(&r.indexes.list)
		check.places, check.call = check.places[:0], r.pipe.Do("ZMSCORE", key)
		r.indexes.byIndex[index] = check
	}
	check.call.Add(member)
	check.places = append(check.places, place)
}

// again adds an element to a list: one that was there before the list was cut off, if there is one.
func again[T any](list *[]*T) *T {
	n := len(*list)
	if n < cap(*list) && (*list)[:n+1][n] != nil {
		*list = (*list)[:n+1]
	} else {
		*list = append(*list, new(T))
	}
	return (*list)[n]
}

// flush sends what was added, and notes what the answers say.
func (r *refresher) flush(ctx context.Context) error {
	if err := r.pipe.Exec(ctx); err != nil {
		return err
	}
	for _, c := range r.sessions {
		r.verdicts = append(r.verdicts, c.Int())
	}
	for _, check := range r.indexes.list {
		scores := check.call.List()
		for n, place := range check.places {
			// An entry that is there only with an older claim is absent, too.
			if n >= len(scores) || scores[n] == nil ||
				redisconn.Int(scores[n]) < r.entries[place].Session.Generation {
				r.absent[place] = true
			}
		}
	}
	r.noteSpecs()
	r.noteSets()
	r.sessions = r.sessions[:0]
	r.indexes.reset()
	r.pipe.Reset()
	r.texts.reset()
	return nil
}

// write has a text written that Redis no longer has.
func (r *refresher) write(key string, text []byte) {
	if r.again == nil {
		r.again = r.store.conn.Pipeline()
	}
	r.again.Do("SET", key, text, "PX", r.store.indexTTL)
}
