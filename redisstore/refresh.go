package redisstore

import (
	"context"
	"slices"

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
			return nil, nil, unavailable("refresh", err)
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
	call    *call
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
	b := s.conn.batch()
	sessions := make([]*call, len(entries))
	indexes := make(map[string]*indexCheck)
	specs := make(map[string]*call) // by key
	texts := make(map[string]registry.ToolSpec)
	for i, e := range entries {
		hashes := hashTools(e.Tools)
		sessions[i] = s.refreshOne(b, e, hashes)
		expectIndexes(indexes, i, e, hashes)
		for _, t := range e.Tools {
			key := specKey(e.Session.Tenant, hashes[t.Name])
			if specs[key] == nil {
				specs[key] = b.do("PEXPIRE", key, s.indexTTL)
				texts[key] = t
			}
		}
	}
	for index, check := range indexes {
		b.do("PEXPIRE", index, s.indexTTL)
		check.call = b.do(check.command...)
	}
	if err := b.run(ctx); err != nil {
		return nil, nil, err
	}
	absent := absentFromIndexes(indexes, entries)
	for i, c := range sessions {
		switch verdict := c.int(); {
		case verdict == 0:
			lost = append(lost, entries[i].Session.Key)
		case verdict < 0 || absent[i]:
			missing = append(missing, entries[i].Session.Key)
		}
	}
	return missing, lost, s.putLostSpecs(ctx, specs, texts)
}

func (s *Store) refreshOne(b *batch, e registry.Entry, hashes map[string]string) *call {
	sess := e.Session
	return b.eval(scriptRefresh, []string{sessionKey(sess.Key), toolsKey(sess.Key)},
		s.sessionTTL, sess.Pod, decimal(sess.Generation), decimal(sess.Generation+1),
		attributeDigest(sess), len(hashes), toolsNumber(hashes))
}

// expectIndexes notes every index the i-th entry must stand in.
func expectIndexes(indexes map[string]*indexCheck, i int, e registry.Entry, hashes map[string]string) {
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
	for name, hash := range hashes {
		for _, index := range toolIndexes(sess.Tenant, name, hash) {
			expect(index, sess.Key.Session)
		}
		expect(offersIndex(sess.Tenant), offerMember(name, hash))
	}
}

// absentFromIndexes returns which entries are not in an index they must stand in, or only with an older claim.
func absentFromIndexes(indexes map[string]*indexCheck, entries []registry.Entry) map[int]bool {
	absent := make(map[int]bool)
	for index, check := range indexes {
		scores := check.call.list()
		for n, needed := range check.entries {
			for _, i := range needed {
				sess := entries[i].Session
				switch {
				case n >= len(scores) || scores[n] == nil:
					absent[i] = true
				case index != offersIndex(sess.Tenant) && toInt(scores[n]) < sess.Generation:
					absent[i] = true
				}
			}
		}
	}
	return absent
}

// putLostSpecs writes the specifications again that Redis no longer has.
func (s *Store) putLostSpecs(ctx context.Context, specs map[string]*call, texts map[string]registry.ToolSpec) error {
	b := s.conn.batch()
	any := false
	for key, c := range specs {
		if c.int() == 1 {
			continue
		}
		text, err := encodeJSON(texts[key])
		if err != nil {
			continue // it was refused when it was put
		}
		any = true
		b.do("SET", key, text, "PX", s.indexTTL)
	}
	if !any {
		return nil
	}
	return b.run(ctx)
}
