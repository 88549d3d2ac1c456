package redisstore

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	// writtenLimit is how many tool sets are remembered at least.
	writtenLimit = 1 << 12

	// writtenAge is how long a set counts as written. What Redis loses meanwhile is written again by the next refresh
	// of the sessions, as everything it loses is.
	writtenAge = 5 * time.Second
)

// writtenSets remembers which tool sets this pod has just written, with their specifications, offers and definitions. A
// fleet of phones runs one app: without it each phone that connects would write the same again. It is safe for
// concurrent use.
type writtenSets struct {
	sets  *cache.Cache[writtenSet, written]
	age   time.Duration
	epoch atomic.Int64 // of the content of Redis
}

type writtenSet struct {
	tenant, hash string
	epoch        int64
}

type written struct {
	at    time.Time
	since int64 // since when a device offers the set, as Redis knows by now; ms
}

func newWrittenSets(indexTTL time.Duration) *writtenSets {
	return &writtenSets{
		sets: cache.New[writtenSet, written](writtenLimit, 0), age: min(writtenAge, indexTTL/8),
	}
}

// has reports whether the set is written, for a device that offers it since the given time.
func (w *writtenSets) has(tenant, hash string, since int64) bool {
	known, ok := w.sets.Get(writtenSet{tenant, hash, w.epoch.Load()})
	return ok && known.since <= since && time.Since(known.at) < w.age
}

// add notes that the set has been written. epoch is of the time before that.
func (w *writtenSets) add(tenant, hash string, since, epoch int64) {
	w.sets.Put(writtenSet{tenant, hash, epoch}, written{time.Now(), since}, 1)
}

// forget notes that Redis may have lost what was written.
func (w *writtenSets) forget() { w.epoch.Add(1) }

// offerCheck is a question whether the offers index, and the ages of definitions, have all that a set needs.
type offerCheck struct {
	store  *Store
	tenant string
	set    toolSet
	scores *redisconn.Command
	ages   []*redisconn.Command
	sess   registry.Session
}

// offer adds to the pipeline what sees to it that the offers index, and the ages of definitions, have what p offers. If
// the set was written recently, that is a question, which complete follows up: the offers of a set are removed when
// nobody has it.
func (s *Store) offer(pipe *redisconn.Pipeline, p placement) *offerCheck {
	if p.offered.hash == "" {
		return nil
	}
	tenant := p.session.Tenant
	if s.written.has(tenant, p.offered.hash, p.session.Seniority().UnixMilli()) {
		command := []any{"ZMSCORE", offersIndex(tenant)}
		for _, member := range p.offered.offerMembers() {
			command = append(command, member)
		}
		o := &offerCheck{store: s, tenant: tenant, set: p.offered, sess: p.session, scores: pipe.Do(command...)}
		for _, t := range p.offered.tools {
			o.ages = append(o.ages, pipe.Do("ZSCORE", definitionsIndex(tenant, t.name), t.hash))
		}
		return o
	}
	s.enter(pipe, offersIndex(tenant), "0", p.offered.offerMembers()...)
	s.putAges(pipe, new(texts), agesOf(p.session, p.offered))
	return nil
}

// agesOf returns what a session offers, since its device is there.
func agesOf(sess registry.Session, set toolSet) []aged {
	list := make([]aged, len(set.tools))
	for i, t := range set.tools {
		list[i] = aged{sess.Tenant, t.name, t.hash, sess.Seniority().UnixMilli()}
	}
	return list
}

// complete writes the offers and ages that were removed since the set was written.
func (o *offerCheck) complete(ctx context.Context) error {
	if o == nil {
		return nil
	}
	ageless := func(c *redisconn.Command) bool { _, ok := c.Text(); return !ok }
	if !slices.Contains(o.scores.List(), nil) && !slices.ContainsFunc(o.ages, ageless) {
		return nil
	}
	pipe := o.store.conn.SessionPipeline()
	o.store.enter(pipe, offersIndex(o.tenant), "0", o.set.offerMembers()...)
	o.store.putAges(pipe, new(texts), agesOf(o.sess, o.set))
	o.store.changed(pipe, o.tenant)
	return pipe.Exec(ctx)
}
