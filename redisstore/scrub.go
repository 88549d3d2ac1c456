package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// An index of sessions that offer a tool is only counted, so nobody would notice an entry that was left behind: by a
// pod that died between two writes, or by a removal that Redis never got. Readers therefore look at a few entries
// now and then; a tool that few sessions offer is checked completely.
const (
	scrubInterval = 5 * time.Second
	scrubSample   = 4 // entries looked at per tool
)

// sample is one entry of the index of a tool.
type sample struct {
	offer offer
	key   registry.Key
	gen   string
	owner *call // the session's generation
	tool  *call // the hash under which the session offers the tool
}

// scrubOffers looks at samples of the tools' indexes and removes entries whose session does not offer the tool.
func (s *Store) scrubOffers(ctx context.Context, tenant string, offers []offer) {
	stale, err := s.staleSamples(ctx, tenant, offers)
	if err == nil && len(stale) > 0 {
		err = s.removeSamples(ctx, tenant, stale)
	}
	if err != nil {
		s.log.Debug("tool indexes not checked", "tenant", tenant, "error", err)
	}
}

func (s *Store) staleSamples(ctx context.Context, tenant string, offers []offer) ([]*sample, error) {
	b := s.conn.batch()
	members := make([]*call, len(offers))
	for i, o := range offers {
		members[i] = b.do("ZRANDMEMBER", offerIndex(tenant, o.name, o.hash), scrubSample, "WITHSCORES")
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	var samples []*sample
	for i, c := range members {
		flat := toStrings(c.cmd.Val())
		for n := 0; n+1 < len(flat); n += 2 {
			samples = append(samples, &sample{
				offer: offers[i], gen: decimal(toInt(flat[n+1])),
				key: registry.Key{Tenant: tenant, Session: flat[n]},
			})
		}
	}
	if err := s.lookUp(ctx, samples); err != nil {
		return nil, err
	}
	stale := samples[:0]
	for _, x := range samples {
		if !x.holds() {
			stale = append(stale, x)
		}
	}
	return stale, nil
}

// lookUp reads what the sessions of the samples say now.
func (s *Store) lookUp(ctx context.Context, samples []*sample) error {
	b := s.conn.batch()
	for _, x := range samples {
		x.owner = b.do("HGET", sessionKey(x.key), fieldGeneration)
		x.tool = b.do("HGET", toolsKey(x.key), x.offer.name)
	}
	return b.run(ctx)
}

// holds reports whether the session, under the generation of the entry, offers the tool.
func (x *sample) holds() bool {
	gen, _ := x.owner.text()
	hash, _ := x.tool.text()
	return gen == x.gen && hash == x.offer.hash
}

// removeSamples removes entries. A session that begins to offer the tool again at this moment writes its hashes
// before the index; so they are looked at once more after the removal.
func (s *Store) removeSamples(ctx context.Context, tenant string, stale []*sample) error {
	left := make(removals)
	for _, x := range stale {
		left.add(offerIndex(tenant, x.offer.name, x.offer.hash), x.key.Session, toInt(x.gen))
	}
	if err := left.run(ctx, s.conn); err != nil {
		return err
	}
	if err := s.lookUp(ctx, stale); err != nil {
		return err
	}
	b := s.conn.batch()
	for _, x := range stale {
		if x.holds() {
			index := offerIndex(tenant, x.offer.name, x.offer.hash)
			b.eval(scriptIndexAdd, []string{index}, s.indexTTL, x.gen, x.key.Session)
		}
	}
	return b.run(ctx)
}

// throttle says yes at most once per interval. It is safe for concurrent use.
type throttle struct {
	every time.Duration
	last  atomic.Int64 // ns since the epoch
}

func (t *throttle) due() bool {
	now, last := time.Now().UnixNano(), t.last.Load()
	return now-last >= int64(t.every) && t.last.CompareAndSwap(last, now)
}
