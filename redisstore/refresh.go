package redisstore

import (
	"context"
	"slices"
	"unsafe"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// refreshChunk is how many sessions are refreshed with one pipeline.
const refreshChunk = 256

// Refresh implements registry.SessionStore. It extends lives, and compares what Redis has of each claim with the entry:
// attributes, tools, every place in an index. A session of which anything differs counts as missing.
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
	command []any   // ZMSCORE, the index, the members
	needed  [][]int // by place of the member: the entries that need it
	call    *redisconn.Command
}

// indexChecks are the checks of a chunk, by index.
type indexChecks map[string]*indexCheck

func (c indexChecks) expect(index string, member any, entries []int) {
	check := c[index]
	if check == nil {
		check = &indexCheck{command: []any{"ZMSCORE", index}}
		c[index] = check
	}
	if len(check.needed) == 1 { // most indexes have one member in a chunk; those that have more have all
		check.command = slices.Grow(check.command, refreshChunk)
		check.needed = slices.Grow(check.needed, refreshChunk)
	}
	check.command = append(check.command, member)
	check.needed = append(check.needed, entries)
}

// offeredSet is a tool set, and the entries of a chunk that offer it.
type offeredSet struct {
	tenant  string
	set     toolSet
	members string // the index of the sessions that offer it
	places  []int
}

// offeredSets are the sets of a chunk. A pod refreshes all its sessions all the time, and those that offer the same
// share a list of tools, so what depends on the list alone is made once for each list of a chunk.
type offeredSets map[sharedList]*offeredSet

// sharedList identifies a list of tools by where it is in memory.
type sharedList struct {
	tenant string
	first  *registry.ToolSpec
	length int
}

// add notes what the entry at this place of the chunk offers.
func (o offeredSets) add(place int, e registry.Entry) *offeredSet {
	list := sharedList{e.Session.Tenant, unsafe.SliceData(e.Tools), len(e.Tools)}
	offered := o[list]
	if offered == nil {
		offered = &offeredSet{tenant: e.Session.Tenant, set: newToolSet(e.Tools)}
		offered.members = membersIndex(offered.tenant, offered.set.hash)
		o[list] = offered
	}
	offered.places = append(offered.places, place)
	return offered
}

func (s *Store) refreshChunk(ctx context.Context, entries []registry.Entry) (missing, lost []registry.Key, err error) {
	pipe := s.conn.Pipeline()
	sessions := make([]*redisconn.Command, len(entries))
	indexes, sets := make(indexChecks), make(offeredSets)
	kept := contents{store: s, pipe: pipe, calls: make(map[string]*redisconn.Command), texts: make(map[string]any)}
	aged := make(ages)
	places := make([]int, len(entries))
	for i, e := range entries {
		places[i] = i
		offered := sets.add(i, e)
		sessions[i] = s.refreshOne(pipe, e, offered.set)
		expectIndexes(indexes, places[i:i+1], e, offered)
		kept.keep(e, offered.set)
		aged.add(e.Session, offered.set)
	}
	for _, o := range sets {
		for _, member := range o.set.offerMembers() {
			indexes.expect(offersIndex(o.tenant), member, o.places)
		}
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

// expectIndexes notes every index that an entry must be in, but for its tools. place is a list of the entry alone.
func expectIndexes(indexes indexChecks, place []int, e registry.Entry, offered *offeredSet) {
	sess := e.Session
	var member any = sess.Key.Session
	indexes.expect(podSessionsKey(sess.Pod), podMember(sess.Key), place)
	for _, index := range attributeIndexes(sess) {
		indexes.expect(index, member, place)
	}
	if offered.set.hash != "" {
		indexes.expect(offered.members, member, place)
	}
}

// absentFromIndexes returns which entries are not in an index they must be in, or only with an older claim.
func absentFromIndexes(indexes indexChecks, entries []registry.Entry) map[int]bool {
	absent := make(map[int]bool)
	for index, check := range indexes {
		scores := check.call.List()
		for n, needed := range check.needed {
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
	pipe  *redisconn.Pipeline
	calls map[string]*redisconn.Command // by key
	texts map[string]any                // by key: the text of a set, or a specification
}

// keep adds to the pipeline what extends the life of an entry's set and its specifications.
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
	c.calls[key] = c.pipe.Do("PEXPIRE", key, c.store.indexTTL)
	c.texts[key] = text
}

// putLost writes again what Redis no longer had when the pipeline ran.
func (c *contents) putLost(ctx context.Context) error {
	pipe := c.store.conn.Pipeline()
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
		pipe.Do("SET", key, text, "PX", c.store.indexTTL)
	}
	return pipe.Exec(ctx)
}
