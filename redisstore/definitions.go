package redisstore

import (
	"context"

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

// aged is a definition of a tool, and since when it is offered.
type aged struct {
	tenant, tool, hash string
	since              int64 // ms
}

// putAges adds to the pipeline what writes the ages of definitions, with one script for many that follow each other and
// are of one tenant. keys has the keys until the pipeline was sent.
func (s *Store) putAges(pipe *redisconn.Pipeline, keys *texts, list []aged) {
	for len(list) > 0 {
		n := 1
		for n < min(len(list), definitionKeys) && list[n].tenant == list[0].tenant {
			n++
		}
		c := pipe.EvalKeys(scriptDefinitionsAdd, n)
		for i := range list[:n] {
			keys.bytes = appendDefinitionsIndex(keys.bytes, list[i].tenant, list[i].tool)
			c.Add(keys.text())
		}
		c.Add(s.indexTTL)
		c.Add(keptDefinitions)
		for i := range list[:n] {
			c.Add(&list[i].hash)
			c.Add(&list[i].since)
		}
		list = list[n:]
	}
}
