package redisstore

import (
	"context"
	"slices"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// refreshChunk is how many sessions are refreshed with one pipeline.
const refreshChunk = 256

// Refresh implements registry.SessionStore. Beside extending lives it compares what Redis has of each claim with the
// entry: attributes, tools, every place in an index. Whatever differs makes the session count as missing.
func (s *Store) Refresh(ctx context.Context, entries []registry.Entry) (missing, lost []registry.Key, err error) {
	for chunk := range slices.Chunk(entries, refreshChunk) {
		m, l, err := s.refreshChunk(ctx, chunk)
		if err != nil {
			return nil, nil, redisconn.Unavailable("refresh", err)
		}
		missing, lost = append(missing, m...), append(lost, l...)
	}
	return missing, lost, nil
}

// indexCheck reads the scores of the members an index should have.
type indexCheck struct {
	command []any          // ZMSCORE, the index, the members
	place   map[string]int // of a member among the members
	entries [][]int        // who needs the member, by place
	call    *redisconn.Command
}

func (c *indexCheck) expect(member string, entry int) {
	n, ok := c.place[member]
	if !ok {
		n = len(c.entries)
		c.place[member] = n
		c.command = append(c.command, member)
		c.entries = append(c.entries, nil)
	}
	c.entries[n] = append(c.entries[n], entry)
}

func (s *Store) refreshChunk(ctx context.Context, entries []registry.Entry) (missing, lost []registry.Key, err error) {
	pipe := s.conn.Pipeline()
	sessions := make([]*redisconn.Command, len(entries))
	indexes := make(map[string]*indexCheck)
	kept := contents{store: s, batch: pipe, calls: make(map[string]*redisconn.Command), texts: make(map[string]any)}
	aged := make(ages)
	for i, e := range entries {
		set := newToolSet(e.Tools)
		sessions[i] = s.refreshOne(pipe, e, set)
		expectIndexes(indexes, i, e, set)
		kept.keep(e, set)
		aged.add(e.Session, set)
	}
	aged.into(pipe, s.indexTTL)
	for index, check := range indexes {
		pipe.Do("PEXPIRE", index, s.indexTTL)
		check.call = pipe.Do(check.command...)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, nil, err
	}
	absent := absentFromIndexes(indexes, entries)
	for i, c := range sessions {
		switch verdict := c.Int(); {
		case verdict == 0:
			lost = append(lost, entries[i].Session.Key)
		case verdict < 0 || absent[i]:
			missing = append(missing, entries[i].Session.Key)
		}
	}
	return missing, lost, kept.putLost(ctx)
}

func (s *Store) refreshOne(pipe *redisconn.Pipeline, e registry.Entry, set toolSet) *redisconn.Command {
	sess := e.Session
	return pipe.Eval(scriptRefresh, []string{sessionKey(sess.Key)}, s.sessionTTL, sess.Pod,
		decimal(sess.Generation), decimal(sess.Generation+1), attributeDigest(sess), set.hash)
}

// expectIndexes notes every index the i-th entry must stand in.
func expectIndexes(indexes map[string]*indexCheck, i int, e registry.Entry, set toolSet) {
	expect := func(index, member string) {
		if indexes[index] == nil {
			indexes[index] = &indexCheck{command: []any{"ZMSCORE", index}, place: make(map[string]int)}
		}
		indexes[index].expect(member, i)
	}
	sess := e.Session
	expect(podSessionsKey(sess.Pod), podMember(sess.Key))
	for _, index := range attributeIndexes(sess) {
		expect(index, sess.Key.Session)
	}
	if set.hash != "" {
		expect(membersIndex(sess.Tenant, set.hash), sess.Key.Session)
	}
	for _, member := range set.members() {
		expect(offersIndex(sess.Tenant), member)
	}
}

// absentFromIndexes returns which entries are not in an index they must stand in, or only with an older claim.
func absentFromIndexes(indexes map[string]*indexCheck, entries []registry.Entry) map[int]bool {
	absent := make(map[int]bool)
	for index, check := range indexes {
		scores := check.call.List()
		for n, needed := range check.entries {
			for _, i := range needed {
				sess := entries[i].Session
				switch {
				case n >= len(scores) || scores[n] == nil:
					absent[i] = true
				case index != offersIndex(sess.Tenant) && redisconn.Int(scores[n]) < sess.Generation:
					absent[i] = true
				}
			}
		}
	}
	return absent
}

// contents keeps sets and specifications alive, each once however many sessions of a chunk need it.
type contents struct {
	store *Store
	batch *redisconn.Pipeline
	calls map[string]*redisconn.Command // by key
	texts map[string]any                // by key: the text of a set, or a specification
}

// keep adds to the batch what extends the life of an entry's set and its specifications.
func (c *contents) keep(e registry.Entry, set toolSet) {
	key := setKey(e.Session.Tenant, set.hash)
	if set.hash == "" || c.calls[key] != nil {
		return
	}
	c.extend(key, set.text())
	for _, t := range e.Tools {
		if key := specKey(e.Session.Tenant, t.Hash()); c.calls[key] == nil {
			c.extend(key, t)
		}
	}
}

func (c *contents) extend(key string, text any) {
	c.calls[key] = c.batch.Do("PEXPIRE", key, c.store.indexTTL)
	c.texts[key] = text
}

// putLost writes again what Redis no longer had when the batch ran.
func (c *contents) putLost(ctx context.Context) error {
	pipe := c.store.conn.Pipeline()
	any := false
	for key, kept := range c.calls {
		if kept.Int() == 1 {
			continue
		}
		text := c.texts[key]
		if t, ok := text.(registry.ToolSpec); ok {
			encoded, err := encodeJSON(t)
			if err != nil {
				continue // it was refused when it was put
			}
			text = encoded
		}
		any = true
		pipe.Do("SET", key, text, "PX", c.store.indexTTL)
	}
	if !any {
		return nil
	}
	return pipe.Exec(ctx)
}
