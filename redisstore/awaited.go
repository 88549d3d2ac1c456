package redisstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	// mirrorLife is how long a session stays in a mirror. It is longer than the session may be away and then take to
	// register. The expected string decides whether the session is still expected.
	mirrorLife = registry.ReturnWait + registry.RegisterWait

	// freshPlaces is how many of the newest entries of an index are checked for sessions that are about to leave it.
	freshPlaces = 200
)

// mirrorsOf returns the mirrors of a user's session. expected is what a script returned as expected: the sets and the
// device.
func mirrorsOf(tenant, user string, expected []string) []string {
	if len(expected) != 2 || expected[0] == "" {
		return nil
	}
	mirrors := []string{userMirror(tenant, user)}
	for _, set := range words(expected[0]) {
		mirrors = append(mirrors, membersMirror(tenant, set))
	}
	if expected[1] != "" {
		mirrors = append(mirrors, deviceMirror(tenant, expected[1]))
	}
	return mirrors
}

// mirror adds scripts to the pipeline that add a session to mirrors. On a single server it is one script.
func (s *Store) mirror(pipe *redisconn.Pipeline, session string, mirrors []string) {
	if len(mirrors) == 0 {
		return
	}
	together := [][]string{mirrors}
	if s.conn.IsCluster() {
		together = slices.Collect(slices.Chunk(mirrors, 1))
	}
	for _, keys := range together {
		pipe.Eval(scriptMirror, keys, mirrorLife.Milliseconds(), session)
	}
}

func (s *Store) Awaited(ctx context.Context, q registry.Query) ([]registry.Awaited, error) {
	sessions, err := s.candidates(ctx, q)
	if err != nil {
		return nil, err
	}
	var found []registry.Awaited
	for some := range slices.Chunk(sessions, listChunk) {
		page, err := s.awaitedAmong(ctx, q, some)
		if err != nil {
			return nil, err
		}
		if found = append(found, page...); len(found) >= pageSize(q.Limit) {
			return found[:pageSize(q.Limit)], nil
		}
	}
	return found, nil
}

// candidates returns the sessions that may be expected to match a query. They are in mirrors, or in the index that List
// would read: a session of a dead pod, or one that is being released or claimed again. That index is read first,
// because a session enters the mirrors before it leaves an index.
func (s *Store) candidates(ctx context.Context, q registry.Query) ([]string, error) {
	if q.SessionID != "" {
		return []string{q.SessionID}, nil
	}
	mirrors, err := s.mirrorsFor(ctx, q)
	if err != nil || len(mirrors) == 0 {
		return nil, err
	}
	from, err := s.smallestSource(ctx, q)
	if err != nil {
		return nil, err
	}
	places, err := s.readPlaces(ctx, &from, registry.Cursor{}, freshPlaces, true)
	if err != nil {
		return nil, err
	}
	pipe := s.conn.Pipeline()
	reads := make([]*redisconn.Command, len(mirrors))
	for i, mirror := range mirrors {
		reads[i] = pipe.Do("ZREVRANGE", mirror, 0, maxScan-1)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var sessions []string
	for _, read := range reads {
		sessions = append(sessions, read.Strings()...)
	}
	for _, place := range places {
		sessions = append(sessions, place.Session)
	}
	known := make(map[string]bool)
	sessions = slices.DeleteFunc(sessions, func(session string) bool {
		again := known[session]
		known[session] = true
		return again
	})
	return sessions[:min(len(sessions), maxScan)], nil
}

// mirrorsFor returns the mirrors of the sessions that are expected to match a query. It returns none if the query's
// tool is neither offered nor expected.
func (s *Store) mirrorsFor(ctx context.Context, q registry.Query) (mirrors []string, err error) {
	var offers []offer
	if q.Tool != "" {
		low, high := offersRange(q.Tool, "")
		if offers, _, err = s.readOffers(ctx, q.Tenant, low, high, maxMerge); err != nil || len(offers) == 0 {
			return nil, err
		}
	}
	switch {
	case q.DeviceID != "":
		return []string{deviceMirror(q.Tenant, q.DeviceID)}, nil
	case q.UserID != "":
		return []string{userMirror(q.Tenant, q.UserID)}, nil
	case q.Viewer != "":
		return []string{userMirror(q.Tenant, q.Viewer), userMirror(q.Tenant, "")}, nil
	}
	for _, o := range offers {
		mirrors = append(mirrors, membersMirror(q.Tenant, o.set))
	}
	return mirrors, nil
}

// expectation is what Redis has of a session that may be expected to offer tools.
type expectation struct {
	session registry.Session // away: without a pod
	before  registry.Session // with the device and the labels of the previous connection
	sets    []string
	left    time.Duration
}

func (s *Store) awaitedAmong(ctx context.Context, q registry.Query, sessions []string) ([]registry.Awaited, error) {
	all, err := s.expectations(ctx, q.Tenant, sessions)
	if err != nil {
		return nil, err
	}
	sets := make(map[string]bool)
	all = slices.DeleteFunc(all, func(e expectation) bool { return !q.Matches(e.session) && !q.Matches(e.before) })
	for _, e := range all {
		for _, set := range e.sets {
			sets[set] = true
		}
	}
	offered, err := s.fetchSets(ctx, q.Tenant, sets)
	if err != nil {
		return nil, err
	}
	hashes := make(map[string]bool)
	all = slices.DeleteFunc(all, func(e expectation) bool {
		ours := toolsOf(e.sets, offered)
		if _, offers := ours[q.Tool]; len(ours) == 0 || q.Tool != "" && !offers {
			return true
		}
		for _, hash := range ours {
			hashes[hash] = true
		}
		return false
	})
	specs, err := s.fetchSpecs(ctx, q.Tenant, hashes)
	if err != nil {
		return nil, err
	}
	found := make([]registry.Awaited, len(all))
	for i, e := range all {
		found[i] = registry.Awaited{Session: e.session, Left: e.left}
		for _, hash := range toolsOf(e.sets, offered) {
			if spec, ok := specs[hash]; ok {
				found[i].Tools = append(found[i].Tools, spec)
			}
		}
		slices.SortFunc(found[i].Tools, func(a, b registry.ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	}
	return found, nil
}

// toolsOf returns the hashes of the tools of sets, by name. If several sets have a tool of one name, the first set
// counts.
func toolsOf(sets []string, known map[string]toolSet) map[string]string {
	tools := make(map[string]string)
	for _, set := range slices.Backward(sets) {
		for _, t := range known[set].tools {
			tools[t.name] = t.hash
		}
	}
	return tools
}

// expectations reads the expected offers of sessions. It omits sessions without any.
func (s *Store) expectations(ctx context.Context, tenant string, sessions []string) ([]expectation, error) {
	keys := make([]registry.Key, len(sessions))
	for i, session := range sessions {
		keys[i] = registry.Key{Tenant: tenant, Session: session}
	}
	pipe := s.conn.Pipeline()
	texts, lives := make([]*redisconn.Command, len(keys)), make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		texts[i], lives[i] = pipe.Do("GET", expectedKey(key)), pipe.Do("PTTL", expectedKey(key))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	list, err := s.read(ctx, keys) // last, so that it finds a claim that has just registered tools
	if err != nil {
		return nil, err
	}
	live, err := s.livePods(ctx, list)
	if err != nil {
		return nil, err
	}
	var all []expectation
	for i, f := range list {
		text, _ := texts[i].Text()
		if e, ok := expectationOf(f, text, live); ok {
			if e.left == 0 {
				e.left = time.Duration(max(lives[i].Int(), 1)) * time.Millisecond
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// expectationOf returns the expected offer of a session. text is the expected string, empty if there is none. live has
// the live pods. The time left is zero if it is that of the expected string.
func expectationOf(f found, text string, live map[string]bool) (e expectation, ok bool) {
	sets, rest, _ := strings.Cut(text, "\n")
	device, labels, _ := strings.Cut(rest, "\n")
	e = expectation{session: f.session, before: f.session, sets: words(sets)}
	if text != "" {
		e.before.DeviceID, e.before.Labels = device, nil
		if decodeField(map[string]string{fieldLabels: labels}, fieldLabels, &e.before.Labels) != nil {
			return e, false
		}
	}
	switch {
	case f.exists && live[f.session.Pod]:
		return e, text != ""
	case f.exists: // its pod has died, and is not swept yet
		if f.set.hash != "" {
			e.sets = append([]string{f.set.hash}, e.sets...)
		}
		e.session, e.left = f.session.Away(), registry.ReturnWait
		e.session.Labels = f.session.Labels
		return e, len(e.sets) > 0
	default:
		e.session = e.before.Away()
		e.session.Labels = e.before.Labels
		return e, f.gone && text != ""
	}
}
