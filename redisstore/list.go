package redisstore

import (
	"context"
	"slices"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	defaultPage = 100
	maxPage     = 1000
	listChunk   = 200  // index entries visited with one pipeline
	maxScan     = 2000 // index entries visited by one call
)

func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, maxPage)
}

// List implements registry.Directory. One call visits a bounded part of an index, so a query with few matches may
// return short pages.
func (s *Store) List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	if q.SessionID != "" {
		entries, err := s.listOne(ctx, q)
		return entries, nil, err
	}
	from, err := s.smallestSource(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	return scan(q.After, pageSize(q.Limit),
		func(at registry.Cursor, limit int) ([]place, error) {
			return s.readPlaces(ctx, &from, at, limit, q.Newest)
		},
		func(places []place) ([]registry.Entry, error) { return s.resolve(ctx, places, q) })
}

// scan returns up to limit items after a cursor, and the cursor for the rest, nil if there is none. read returns places
// of an index; resolve returns the matching items at those places. One call visits a bounded number of places, so it
// may return fewer than limit items although there are more.
func scan[T any](
	at registry.Cursor, limit int,
	read func(at registry.Cursor, limit int) ([]place, error), resolve func([]place) ([]T, error),
) (all []T, next *registry.Cursor, err error) {
	for scanned := 0; ; {
		want := min(limit-len(all), listChunk)
		places, err := read(at, want+1)
		if err != nil {
			return nil, nil, err
		}
		more := len(places) > want
		places = places[:min(want, len(places))]
		matches, err := resolve(places)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, matches...)
		if !more {
			return all, nil, nil
		}
		at = places[len(places)-1].Cursor
		scanned += len(places)
		if len(all) >= limit || scanned >= maxScan {
			return all, &at, nil
		}
	}
}

func (s *Store) listOne(ctx context.Context, q registry.Query) ([]registry.Entry, error) {
	list, err := s.read(ctx, []registry.Key{{Tenant: q.Tenant, Session: q.SessionID}})
	if err == nil {
		err = list[0].err
	}
	if err != nil || !list[0].matches(q) {
		return nil, err
	}
	if !q.Reaches(registry.Cursor{Generation: list[0].session.Generation, Session: q.SessionID}) {
		return nil, nil
	}
	return s.entries(ctx, q.Tenant, list)
}

func (f found) matches(q registry.Query) bool {
	if !f.exists || !q.Matches(f.session) {
		return false
	}
	return q.Tool == "" || f.set.offers(q.Tool, q.Spec)
}

// resolve returns the matching entries at the given places, and removes stale places.
func (s *Store) resolve(ctx context.Context, places []place, q registry.Query) ([]registry.Entry, error) {
	if len(places) == 0 {
		return nil, nil
	}
	list, err := s.read(ctx, sessionsAt(q.Tenant, places))
	if err != nil {
		return nil, err
	}
	stale := make(removals)
	matches := list[:0]
	for i, f := range list {
		switch {
		case f.err != nil: // not listed, and not removed: another release can read it
		case !f.exists && f.gone, f.exists && f.session.Generation > places[i].Generation && f.set.hash == "":
			// It is being released, or has been claimed again. The releasing or claiming pod removes the place, and
			// Awaited needs it until then.
		case !f.exists || f.session.Generation != places[i].Generation:
			// A newer claim of the session has, or gets, its own place. Only the place seen here is removed.
			stale.add(places[i].index, places[i].Session, places[i].Generation)
		case f.matches(q):
			matches = append(matches, f)
		}
	}
	s.removeStale(ctx, stale, q.Tenant) // an expired session changed no version by itself
	return s.entries(ctx, q.Tenant, matches)
}

// placement is a change of the indexes that one session is in.
type placement struct {
	session registry.Session
	add     []string // indexes that the session enters
	offered toolSet  // what the tenant's offers index must contain; empty: no change
	known   bool     // the session is already in its pod's index
	keep    []string // other indexes that already contain the session
	remove  []string // indexes that the session leaves, unless they are also in add or keep
	upTo    int64    // highest generation whose entries are removed

	mirrors  []string // of indexes that the session is expected to be in again
	leavePod string   // pod whose index the session leaves; empty: none
}

func (p *placement) addSet(set toolSet) {
	if set.hash != "" {
		p.add, p.offered = append(p.add, membersIndex(p.session.Tenant, set.hash)), set
	}
}

func (p *placement) removeSet(hash string) {
	if hash != "" {
		p.remove = append(p.remove, membersIndex(p.session.Tenant, hash))
	}
}

// place applies p. If the claim has ended meanwhile, place removes what it added, so nothing is left behind. A script
// that ended the claim before the check at the end of place makes that check fail. A pod that ends the claim after the
// check finds in the hashes what place has added, and removes it.
func (s *Store) place(ctx context.Context, p placement) error {
	session, gen := p.session, decimal(p.session.Generation)
	pipe := s.conn.SessionPipeline()
	if !p.known {
		s.enter(pipe, podSessionsKey(session.Pod), gen, podMember(session.Key))
		pipe.Then() // from here on, a pod that sweeps this one finds the session
	}
	s.mirror(pipe, session.Key.Session, p.mirrors)
	labels, others := splitLabels(session.Tenant, p.add)
	for _, key := range others {
		s.enter(pipe, key, gen, session.Key.Session)
	}
	if len(labels) > 0 {
		pipe.Eval(scriptLabelsAdd, labels, s.indexTTL, gen, session.Key.Session)
	}
	pipe.Then() // the set's index comes first, because offers of a set without sessions are removed
	complete := s.offer(pipe, p)
	pipe.Then() // a reader that no longer finds the session under its old set can find the new one
	leave := slices.DeleteFunc(slices.Clone(p.remove), func(key string) bool {
		return slices.Contains(p.add, key) || slices.Contains(p.keep, key)
	})
	pod := p.leavePod
	if pod == session.Pod {
		pod = ""
	}
	s.leaveIndexes(pipe, session.Key, leave, nil, pod, p.upTo)
	s.changed(pipe, session.Tenant)
	if p.known && len(p.add) == 0 { // nothing to take back
		return pipe.Exec(ctx)
	}
	claim := pipe.Do("HMGET", sessionKey(session.Key), fieldPod, fieldGeneration)
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	if err := complete(ctx); err != nil {
		return err
	}
	s.collectOffers(ctx, session.Tenant)
	if slices.Equal(claim.Strings(), []string{session.Pod, gen}) {
		return nil
	}
	// The claim is no longer current. Entries of the offers index stay: they name no session, and readers remove those
	// without sessions.
	pipe = s.conn.SessionPipeline()
	s.leaveIndexes(pipe, session.Key, p.add, nil, session.Pod, session.Generation)
	s.changed(pipe, session.Tenant)
	return pipe.Exec(ctx)
}

// enter adds entries to an index, or raises their scores, and extends the TTL of the index. A score never falls, so a
// late add cannot hide a newer claim.
func (s *Store) enter(pipe *redisconn.Pipeline, index, score string, entries ...string) {
	command := []any{"ZADD", index, "GT"}
	for _, entry := range entries {
		command = append(command, score, entry)
	}
	pipe.Do(command...)
	pipe.Do("PEXPIRE", index, s.indexTTL)
}

// leaveIndexes adds scripts to the pipeline that remove a session from indexes, and add it to mirrors. Unless pod is
// empty, they also remove it from that pod's index. On a single server it is one script.
func (s *Store) leaveIndexes(
	pipe *redisconn.Pipeline, key registry.Key, indexes, mirrors []string, pod string, upTo int64,
) {
	leave := func(indexes []string, pod string, more ...string) {
		args := make([]any, 0, len(indexes)+4)
		args = append(args, decimal(upTo), mirrorLife.Milliseconds(), key.Session)
		for range indexes {
			args = append(args, key.Session)
		}
		if pod != "" {
			indexes, args = append(slices.Clip(indexes), podSessionsKey(pod)), append(args, podMember(key))
		}
		if len(indexes) > 0 {
			pipe.Eval(scriptIndexLeave, append(slices.Clip(indexes), more...), args...)
		}
	}
	if !s.conn.IsCluster() {
		leave(indexes, pod, append([]string{sessionKey(key)}, mirrors...)...)
		return
	}
	if len(mirrors) > 0 {
		s.mirror(pipe, key.Session, mirrors)
		pipe.Then() // a reader that no longer finds the session in an index finds it in the mirror
	}
	labels, others := splitLabels(key.Tenant, indexes)
	leave(nil, pod)
	for _, index := range others {
		leave([]string{index}, "")
	}
	leave(labels, "")
}

// splitLabels splits indexes into label indexes, which one script may change together, and others.
func splitLabels(tenant string, indexes []string) (labels, others []string) {
	prefix := labelsPrefix(tenant)
	for _, index := range indexes {
		if strings.HasPrefix(index, prefix) {
			labels = append(labels, index)
		} else {
			others = append(others, index)
		}
	}
	return labels, others
}

// removals collects the entries to remove from each index, so that one script removes many of them.
type removals map[string][]any

func (r removals) add(index, entry string, upTo int64) {
	r[index] = append(r[index], entry, decimal(upTo))
}

// removalArgs is the maximum number of arguments of a removal script. It bounds how long the script blocks the server.
const removalArgs = 400

func (r removals) into(pipe *redisconn.Pipeline) {
	for index, args := range r {
		for part := range slices.Chunk(args, removalArgs) {
			pipe.Eval(scriptZRemIf, []string{index}, part...)
		}
	}
}

// onlineSessions is how many of the newest sessions of a device are checked. It is more than one, because an index may
// name sessions that are gone.
const onlineSessions = 4

// OnlineDevices implements registry.Directory. One pipeline reads the indexes of many devices, a second one reads the
// sessions in them.
func (s *Store) OnlineDevices(
	ctx context.Context, tenant string, deviceIDs []string,
) (map[string]registry.Entry, error) {
	online := make(map[string]registry.Entry)
	for ids := range slices.Chunk(deviceIDs, listChunk) {
		if err := s.findOnline(ctx, tenant, ids, online); err != nil {
			return nil, err
		}
	}
	return online, nil
}

func (s *Store) findOnline(ctx context.Context, tenant string, ids []string, online map[string]registry.Entry) error {
	pipe := s.conn.Pipeline()
	newest := make([]*redisconn.Command, len(ids))
	for i, id := range ids {
		newest[i] = pipe.Do("ZREVRANGE", deviceIndex(tenant, id), 0, onlineSessions-1)
	}
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	var keys []registry.Key
	for _, c := range newest {
		for _, session := range c.Strings() {
			keys = append(keys, registry.Key{Tenant: tenant, Session: session})
		}
	}
	if len(keys) == 0 {
		return nil
	}
	hashes, _, err := s.readHashes(ctx, keys)
	if err != nil {
		return err
	}
	var bound []found // without their tools
	for i, hash := range hashes {
		if s.conn.Forms().Check(redisconn.FormSession, hash[fieldForm]) != nil {
			continue
		}
		session, err := parseSession(keys[i], hash)
		if err == nil && session.Bound {
			bound = append(bound, found{session: session, exists: true, pulse: parsePulse(hash[fieldPulse])})
		}
	}
	entries, err := s.entries(ctx, tenant, bound)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id := e.Session.DeviceID
		if known, ok := online[id]; slices.Contains(ids, id) &&
			(!ok || e.Session.Generation > known.Session.Generation) {
			online[id] = e
		}
	}
	return nil
}
