package redisstore

import (
	"context"
	"slices"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	// keptDefinitions is of how many definitions of one tool Redis keeps the age: of more than are returned, because
	// nobody may offer some of the oldest any more.
	keptDefinitions = 4 * registry.MaxDefinitions

	// definitionKeys bounds how many keys one script gets, and so how long it blocks the server.
	definitionKeys = 100
)

// Definitions implements registry.Directory. It removes definitions that nobody offers. If a session offers one again
// at the same moment, its next refresh adds the definition again.
func (s *Store) Definitions(ctx context.Context, tenant, tool string) ([]string, error) {
	for read := 0; ; read += registry.MaxDefinitions {
		aged, err := s.conn.Do(ctx, "ZRANGE", definitionsIndex(tenant, tool), 0, registry.MaxDefinitions-1)
		if err != nil {
			return nil, redisconn.Unavailable("definitions", err)
		}
		hashes := aged.Strings()
		if len(hashes) == 1 {
			return hashes, nil // one definition needs no comparison
		}
		offered, err := s.offeredDefinitions(ctx, tenant, tool, hashes)
		if err != nil {
			return nil, redisconn.Unavailable("definitions", err)
		}
		if len(offered) > 0 || len(hashes) == 0 || read >= keptDefinitions {
			return offered, nil
		}
	}
}

// offeredDefinitions returns those that sessions offer, and forgets the others.
func (s *Store) offeredDefinitions(ctx context.Context, tenant, tool string, hashes []string) ([]string, error) {
	pipe := s.conn.Pipeline()
	offers := make([]*redisconn.Command, len(hashes))
	for i, hash := range hashes {
		low, high := offersRange(tool, hash)
		offers[i] = pipe.Do("ZRANGEBYLEX", offersIndex(tenant), low, high, "LIMIT", 0, maxMerge)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	tools := make([]distinctTool, len(hashes))
	for i, hash := range hashes {
		tools[i] = distinctTool{name: tool, hash: hash}
		for _, o := range parseOffers(offers[i].Strings()) {
			tools[i].sets = append(tools[i].sets, o.set)
		}
	}
	if err := s.countTools(ctx, tenant, tools); err != nil {
		return nil, err
	}
	var offered []string
	forget := []any{"ZREM", definitionsIndex(tenant, tool)}
	for _, t := range tools {
		if t.sessions > 0 || len(t.sets) == maxMerge {
			offered = append(offered, t.hash)
		} else {
			forget = append(forget, t.hash)
		}
	}
	if len(forget) > 2 {
		if _, err := s.conn.Do(ctx, forget...); err != nil {
			return nil, err
		}
	}
	return offered, nil
}

// ages collects since when tools are offered by which definition.
type ages map[string]map[definition]int64 // by tenant; ms

type definition struct{ tool, hash string }

// add notes what a session offers, since its device is there.
func (a ages) add(sess registry.Session, set toolSet) {
	since := sess.Seniority().UnixMilli()
	for _, t := range set.tools {
		known := a[sess.Tenant]
		if known == nil {
			known = make(map[definition]int64)
			a[sess.Tenant] = known
		}
		d := definition{t.name, t.hash}
		if before, ok := known[d]; !ok || since < before {
			known[d] = since
		}
	}
}

// into adds to the pipeline what writes the ages.
func (a ages) into(pipe *redisconn.Pipeline, ttl int64) {
	for tenant, known := range a {
		var keys []string
		args := []any{ttl, keptDefinitions}
		send := func() {
			if len(keys) > 0 {
				pipe.Eval(scriptDefinitionsAdd, slices.Clone(keys), slices.Clone(args)...)
			}
			keys, args = keys[:0], args[:2]
		}
		for d, since := range known {
			keys = append(keys, definitionsIndex(tenant, d.tool))
			args = append(args, d.hash, since)
			if len(keys) == definitionKeys {
				send()
			}
		}
		send()
	}
}
