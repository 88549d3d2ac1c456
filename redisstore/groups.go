package redisstore

import (
	"context"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	// groupCursorSeparator stands for offerSeparator in cursors, which travel in URLs. No tool name holds it.
	groupCursorSeparator = ":"

	offersChunk = 500    // entries of the offers index read with one command
	maxOffers   = 50_000 // entries read for one page, unless a single tool is in more sets
)

// distinctTool is one (name, specification) with the sets it is in, and how many sessions have one of those.
type distinctTool struct {
	name, hash string
	sets       []string
	sessions   int
}

func (t distinctTool) cursor() string { return t.name + groupCursorSeparator + t.hash }

// OfferedTools implements registry.Directory. The numbers are sums of sizes of indexes, one for each set the tool is
// in. They are exact once the writes under way are done.
func (s *Store) OfferedTools(ctx context.Context, q registry.OfferedToolQuery) ([]registry.OfferedTool, string, error) {
	tools, more, err := s.readTools(ctx, q, pageSize(q.Limit))
	if err != nil {
		return nil, "", redisconn.Unavailable("groups", err)
	}
	next := ""
	if more {
		next = tools[len(tools)-1].cursor()
	}
	if s.staleCheck.due() {
		s.collectStale(ctx, q.Tenant, tools)
	}
	if err := s.countTools(ctx, q.Tenant, tools); err != nil {
		return nil, "", redisconn.Unavailable("groups", err)
	}
	wanted := make(map[string]bool)
	for _, t := range tools {
		if t.sessions > 0 {
			wanted[t.hash] = true
		}
	}
	specs, err := s.fetchSpecs(ctx, q.Tenant, wanted)
	if err != nil {
		return nil, "", redisconn.Unavailable("groups", err)
	}
	groups := make([]registry.OfferedTool, 0, len(wanted))
	for _, t := range tools {
		if spec, ok := specs[t.hash]; ok && t.sessions > 0 {
			groups = append(groups, registry.OfferedTool{Spec: spec, Sessions: t.sessions})
		}
	}
	return groups, next, nil
}

// readTools returns up to limit distinct tools behind the query's cursor, each with all of its sets, and whether there
// are more.
func (s *Store) readTools(
	ctx context.Context, q registry.OfferedToolQuery, limit int,
) (tools []distinctTool, more bool, err error) {
	low, high := offersRange(q.Name, "")
	if q.After != "" {
		after := strings.Replace(q.After, groupCursorSeparator, offerSeparator, 1) + behindSeparator
		if q.Name == "" || after > q.Name+offerSeparator {
			low = "(" + after
		}
	}
	for read := 0; ; {
		offers, last, err := s.readOffers(ctx, q.Tenant, low, high, offersChunk)
		if err != nil {
			return nil, false, err
		}
		for _, o := range offers {
			n := len(tools)
			if n == 0 || tools[n-1].name != o.name || tools[n-1].hash != o.hash {
				if n == limit {
					return tools, true, nil
				}
				tools = append(tools, distinctTool{name: o.name, hash: o.hash})
				n++
			}
			tools[n-1].sets = append(tools[n-1].sets, o.set)
		}
		if last == "" {
			return tools, false, nil
		}
		low = "(" + last
		if read += offersChunk; read >= maxOffers && len(tools) > 1 {
			return tools[:len(tools)-1], true, nil // the last may be in more sets
		}
	}
}

// countTools fills in how many sessions offer each tool, and removes entries of sets that nobody has.
func (s *Store) countTools(ctx context.Context, tenant string, tools []distinctTool) error {
	pipe := s.conn.Pipeline()
	sizes := make(map[string]*redisconn.Command)
	for _, t := range tools {
		for _, set := range t.sets {
			if sizes[set] == nil {
				sizes[set] = pipe.Do("ZCARD", membersIndex(tenant, set))
			}
		}
	}
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	var unused []offer
	for i, t := range tools {
		for _, set := range t.sets {
			n := int(sizes[set].Int())
			tools[i].sessions += n
			if n == 0 {
				unused = append(unused, offer{name: t.name, hash: t.hash, set: set})
			}
		}
	}
	if err := s.removeOffers(ctx, tenant, unused); err != nil {
		s.log.Debug("unused tool sets not removed", "tenant", tenant, "error", err)
	}
	return nil
}
