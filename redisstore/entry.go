package redisstore

import (
	"context"
	"slices"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// found is what Redis has under one key.
type found struct {
	session registry.Session
	exists  bool
	gone    bool // only meaningful when it does not exist; then session says whose it was
	set     toolSet
	pulse   registry.Pulse
}

// Entry implements registry.Directory.
func (s *Store) Entry(ctx context.Context, key registry.Key) (registry.Entry, error) {
	list, err := s.read(ctx, []registry.Key{key})
	if err != nil {
		return registry.Entry{}, redisconn.Unavailable("entry", err)
	}
	f := list[0]
	if !f.exists && !f.gone {
		if err := s.Whole(ctx); err != nil {
			return registry.Entry{}, err
		}
		return registry.Entry{}, registry.UnknownSession()
	}
	entries, err := s.entries(ctx, key.Tenant, list)
	if err != nil {
		return registry.Entry{}, redisconn.Unavailable("entry", err)
	}
	if len(entries) == 0 {
		if f.exists { // its pod has no lease, which may have gone with all the others since the session was read
			if err := s.Whole(ctx); err != nil {
				return registry.Entry{}, err
			}
		}
		away := registry.Session{
			Key: key, UserID: f.session.UserID, DeviceID: f.session.DeviceID, Bound: f.session.Bound,
		}
		return registry.Entry{Session: away}, registry.NotConnected()
	}
	return entries[0], nil
}

// read reads sessions with their tool sets, in the order of the keys, which are of one tenant.
func (s *Store) read(ctx context.Context, keys []registry.Key) ([]found, error) {
	hashes, gone, err := s.readHashes(ctx, keys)
	if err != nil {
		return nil, err
	}
	list, sets := make([]found, len(keys)), make(map[string]bool)
	for i, hash := range hashes {
		if len(hash) == 0 {
			if list[i].gone = gone[i] != ""; list[i].gone {
				if _, was := parseGone(keys[i], gone[i]); was != nil {
					list[i].session = *was
				}
			}
			continue
		}
		session, err := parseSession(keys[i], hash)
		if err != nil {
			s.log.Warn("session not readable; it is not listed", "session", keys[i].Session, "error", err)
			continue
		}
		list[i] = found{
			session: session, exists: true, set: toolSet{hash: hash[fieldSet]}, pulse: parsePulse(hash[fieldPulse]),
		}
		if set := hash[fieldSet]; set != "" {
			sets[set] = true
		}
	}
	return list, s.fillSets(ctx, keys, list, sets)
}

// readHashes reads the hashes of sessions, and of those without a hash what is remembered of them as disconnected. It
// uses plain commands, which take Redis a third of the time of a script. A session without either may have been claimed
// or released between the two commands, so it is read again by a script.
func (s *Store) readHashes(ctx context.Context, keys []registry.Key) ([]map[string]string, []string, error) {
	pipe := s.conn.Pipeline()
	reads, marks := make([]*redisconn.Command, len(keys)), make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		reads[i], marks[i] = pipe.Do("HGETALL", sessionKey(key)), pipe.Do("GET", goneKey(key))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, nil, err
	}
	hashes, gone := make([]map[string]string, len(keys)), make([]string, len(keys))
	again := s.conn.Pipeline()
	doubtful := make(map[int]*redisconn.Command)
	for i, key := range keys {
		hashes[i] = reads[i].Map()
		gone[i], _ = marks[i].Text()
		if len(hashes[i]) == 0 && gone[i] == "" {
			doubtful[i] = again.Eval(scriptEntry, sessionKeys(key))
		}
	}
	if len(doubtful) == 0 {
		return hashes, gone, nil
	}
	if err := again.Exec(ctx); err != nil {
		return nil, nil, err
	}
	for i, c := range doubtful {
		answer := c.List()
		if len(answer) != 2 {
			return nil, nil, c.ErrShape()
		}
		hashes[i] = redisconn.Map(answer[0])
		gone[i], _ = answer[1].(string)
	}
	return hashes, gone, nil
}

// fillSets reads what is in the sets that the sessions name.
func (s *Store) fillSets(ctx context.Context, keys []registry.Key, list []found, wanted map[string]bool) error {
	if len(wanted) == 0 {
		return nil
	}
	sets, err := s.fetchSets(ctx, keys[0].Tenant, wanted)
	if err != nil {
		return err
	}
	for i := range list {
		if set, ok := sets[list[i].set.hash]; ok {
			list[i].set = set
		}
	}
	return nil
}

// entries turns what was found of one tenant into entries. Sessions of pods that are not live are left out.
func (s *Store) entries(ctx context.Context, tenant string, list []found) ([]registry.Entry, error) {
	var pods []string
	for _, f := range list {
		if f.exists && !slices.Contains(pods, f.session.Pod) {
			pods = append(pods, f.session.Pod)
		}
	}
	if len(pods) == 0 {
		return nil, nil
	}
	live, err := s.live.has(ctx, pods)
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]bool)
	for _, f := range list {
		if f.exists && live[f.session.Pod] {
			for _, t := range f.set.tools {
				wanted[t.hash] = true
			}
		}
	}
	specs, err := s.fetchSpecs(ctx, tenant, wanted)
	if err != nil {
		return nil, err
	}
	entries := make([]registry.Entry, 0, len(list))
	for _, f := range list {
		if f.exists && live[f.session.Pod] {
			entries = append(entries, registry.Entry{Session: f.session, Tools: f.tools(specs), Pulse: f.pulse})
		}
	}
	return entries, nil
}

// tools returns the specifications of what the session offers, ordered by name.
func (f found) tools(specs map[string]registry.ToolSpec) []registry.ToolSpec {
	tools := make([]registry.ToolSpec, 0, len(f.set.tools))
	for _, t := range f.set.tools {
		if spec, ok := specs[t.hash]; ok {
			tools = append(tools, spec)
		}
	}
	return tools
}
