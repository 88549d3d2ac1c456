package redisstore

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// refreshChunk is how many sessions are refreshed together.
const refreshChunk = 256

// Refresh implements registry.SessionStore. It extends TTLs, and compares each claim in Redis with its entry:
// attributes, tools, and every index member. A session with any difference counts as missing.
func (s *Store) Refresh(ctx context.Context, entries []registry.Entry) (missing, lost []registry.Key, err error) {
	r, ok := s.refreshers.Get().(*refresher)
	if !ok {
		r = newRefresher(s)
	}
	for chunk := range slices.Chunk(entries, refreshChunk) {
		if err := r.refresh(ctx, chunk); err != nil {
			// The state of r may be incomplete, so r is not reused.
			return nil, nil, err
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

// refresher refreshes sessions, a chunk at a time. A pod refreshes all its sessions continuously, so all commands are
// built in reused memory. Without reuse, a session with five tools took 2.8 KB of garbage, and one with its own list of
// a hundred tools took 93 KB. Now they take 0.7 and 1.4 KB (BenchmarkRefresh).
type refresher struct {
	store    *Store
	entries  []registry.Entry // of the chunk; so are the next two
	verdicts []int64          // by entry: the answer of the script
	absent   []bool           // by entry: whether an index lacks it

	pipe     *redisconn.Pipeline // the commands to send next
	texts    texts               // of pipe
	sessions []*redisconn.Command
	indexes  indexChecks
	sets     offeredSets
	keys     []string            // for one session
	again    *redisconn.Pipeline // writes what Redis lost; nil: nothing yet

	sessionTTL, indexTTL any // converted once, not for each command
}

func newRefresher(s *Store) *refresher {
	return &refresher{
		store: s, pipe: s.conn.Pipeline(), sessionTTL: s.sessionTTL, indexTTL: s.indexTTL,
		indexes: indexChecks{byIndex: make(map[string]*indexCheck)},
		sets:    offeredSets{byList: make(map[sharedList]*offeredSet), bySpec: make(map[sharedSpec]int)},
	}
}

// forget drops the references to the caller's data.
func (r *refresher) forget() {
	r.entries = nil
	r.pipe.Reset()
	r.indexes.reset()
	r.sets.reset()
}

// refresh refreshes a chunk, and stores the results in verdicts and absent.
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

// extend adds the script that extends the TTL of a session, stores its pulse, and compares its state.
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
	t.bytes = appendDigest(t.bytes, attributesOf(*sess))
	c.Add(t.text())
	c.Add(&set.hash)
	t.bytes = appendPulse(t.bytes, e.Pulse)
	c.Add(t.text())
	return c
}

// expectIndexes adds a check for every index that must contain the session, except the offers of its tools.
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
	list    []*indexCheck // its spare capacity has earlier ones for reuse
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

// again adds an element to a list. It reuses an element from the spare capacity of the list if there is one.
func again[T any](list *[]*T) *T {
	n := len(*list)
	if n < cap(*list) && (*list)[:n+1][n] != nil {
		*list = (*list)[:n+1]
	} else {
		*list = append(*list, new(T))
	}
	return (*list)[n]
}

// flush sends the pipeline, and evaluates the answers.
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
			// An entry that is there with an older claim is also absent.
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

// write adds a write of a text that Redis has lost.
func (r *refresher) write(key string, text []byte) {
	if r.again == nil {
		r.again = r.store.conn.Pipeline()
	}
	r.again.Do("SET", key, text, "PX", r.store.indexTTL)
}

const (
	// writtenLimit is the minimum number of tool sets that are remembered.
	writtenLimit = 1 << 12

	// writtenAge is how long a set counts as written. If Redis loses it meanwhile, the next refresh of the sessions
	// writes it again.
	writtenAge = 5 * time.Second
)

// writtenSets remembers which tool sets this pod has just written, with their specifications, offers and definitions. A
// fleet of phones runs one app: without writtenSets, each phone that connects would repeat the same writes. It is safe
// for concurrent use.
type writtenSets struct {
	sets  *cache.Cache[writtenSet, written]
	age   time.Duration
	epoch atomic.Int64 // counts possible losses of Redis' content
}

type writtenSet struct {
	tenant, hash string
	epoch        int64
}

type written struct {
	at    time.Time
	since int64 // since when a device offers the set, according to Redis; ms
}

func newWrittenSets(indexTTL time.Duration) *writtenSets {
	return &writtenSets{
		sets: cache.New[writtenSet, written](writtenLimit, 0), age: min(writtenAge, indexTTL/8),
	}
}

// has reports whether the set is written, for a device that has offered it since the given time.
func (w *writtenSets) has(tenant, hash string, since int64) bool {
	known, ok := w.sets.Get(writtenSet{tenant, hash, w.epoch.Load()})
	return ok && known.since <= since && time.Since(known.at) < w.age
}

// add notes that the set has been written. epoch is the epoch before the write.
func (w *writtenSets) add(tenant, hash string, since, epoch int64) {
	w.sets.Put(writtenSet{tenant, hash, epoch}, written{time.Now(), since}, 1)
}

// forget notes that Redis may have lost what was written.
func (w *writtenSets) forget() { w.epoch.Add(1) }

// offer adds commands to the pipeline that put what p offers into the offers index and the ages of definitions. If the
// set was written recently, the commands only check whether it is there, because the offers of a set are removed when
// no session has it. The caller then calls complete, which writes what is missing.
func (s *Store) offer(pipe *redisconn.Pipeline, p placement) (complete func(context.Context) error) {
	set, tenant, since := p.offered, p.session.Tenant, p.session.Seniority().UnixMilli()
	done := func(context.Context) error { return nil }
	write := func(pipe *redisconn.Pipeline) {
		ages := make([]aged, len(set.tools))
		for i, t := range set.tools {
			ages[i] = aged{tenant, t.name, t.hash, since}
		}
		s.noteOffers(tenant, len(set.tools))
		s.enter(pipe, offersIndex(tenant), "0", set.offerMembers()...)
		s.putAges(pipe, new(texts), ages)
	}
	if set.hash == "" {
		return done
	}
	if !s.written.has(tenant, set.hash, since) {
		write(pipe)
		return done
	}
	command := []any{"ZMSCORE", offersIndex(tenant)}
	for _, member := range set.offerMembers() {
		command = append(command, member)
	}
	scores, ages := pipe.Do(command...), make([]*redisconn.Command, len(set.tools))
	for i, t := range set.tools {
		ages[i] = pipe.Do("ZSCORE", definitionsIndex(tenant, t.name), t.hash)
	}
	return func(ctx context.Context) error {
		ageless := func(c *redisconn.Command) bool { _, ok := c.Text(); return !ok }
		if !slices.Contains(scores.List(), nil) && !slices.ContainsFunc(ages, ageless) {
			return nil
		}
		pipe := s.conn.SessionPipeline()
		write(pipe)
		s.changed(pipe, tenant)
		return pipe.Exec(ctx)
	}
}
