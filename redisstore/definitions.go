package redisstore

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	// keptDefinitions is for how many definitions of one tool Redis keeps the age. It is more than are returned,
	// because sessions may no longer offer some of the oldest.
	keptDefinitions = 4 * registry.MaxDefinitions

	// definitionKeys bounds the number of keys per script, and so how long a script blocks the server.
	definitionKeys = 100
)

// Definitions implements registry.Directory. It removes definitions that no session offers. If a session offers a
// removed definition again at the same moment, its next refresh adds it again.
func (s *Store) Definitions(ctx context.Context, tenant, tool string) ([]string, error) {
	for read := 0; ; read += registry.MaxDefinitions {
		aged, err := s.conn.Do(ctx, "ZRANGE", definitionsIndex(tenant, tool), 0, registry.MaxDefinitions-1)
		if err != nil {
			return nil, err
		}
		hashes := aged.Strings()
		if len(hashes) == 1 {
			return hashes, nil // one definition needs no comparison
		}
		offered, err := s.offeredDefinitions(ctx, tenant, tool, hashes)
		if err != nil {
			return nil, err
		}
		if len(offered) > 0 || len(hashes) == 0 || read >= keptDefinitions {
			return offered, nil
		}
	}
}

// offeredDefinitions returns the hashes that sessions offer, and removes the others from the index.
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

// aged is a definition of a tool with the time since which it is offered.
type aged struct {
	tenant, tool, hash string
	since              int64 // ms
}

// putAges adds commands to the pipeline that write the ages of definitions. Consecutive definitions of one tenant share
// a script. keys holds the keys until the pipeline has been sent.
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

const (
	// groupCursorSeparator replaces offerSeparator in cursors, which travel in URLs. No tool name contains it.
	groupCursorSeparator = ":"

	offersChunk = 500    // entries of the offers index read with one command
	maxOffers   = 50_000 // entries read for one page, unless a single tool is in more sets
)

// distinctTool is one (name, specification) with its sets, and the number of sessions that have one of those sets.
type distinctTool struct {
	name, hash string
	sets       []string
	sessions   int
}

func (t distinctTool) cursor() string { return t.name + groupCursorSeparator + t.hash }

// OfferedTools implements registry.Directory. Each number is the sum of the index sizes of the tool's sets. The numbers
// are exact once the writes in progress are done.
func (s *Store) OfferedTools(ctx context.Context, q registry.OfferedToolQuery) ([]registry.OfferedTool, string, error) {
	tools, more, err := s.readTools(ctx, q, pageSize(q.Limit))
	if err != nil {
		return nil, "", err
	}
	next := ""
	if more {
		next = tools[len(tools)-1].cursor()
	}
	if s.staleCheck.due() {
		s.collectStale(ctx, q.Tenant, tools)
	}
	if err := s.countTools(ctx, q.Tenant, tools); err != nil {
		return nil, "", err
	}
	wanted := make(map[string]bool)
	for _, t := range tools {
		if t.sessions > 0 {
			wanted[t.hash] = true
		}
	}
	specs, err := s.fetchSpecs(ctx, q.Tenant, wanted)
	if err != nil {
		return nil, "", err
	}
	groups := make([]registry.OfferedTool, 0, len(wanted))
	for _, t := range tools {
		if spec, ok := specs[t.hash]; ok && t.sessions > 0 {
			groups = append(groups, registry.OfferedTool{Spec: spec, Sessions: t.sessions})
		}
	}
	return groups, next, nil
}

// readTools returns up to limit distinct tools after the query's cursor, each with all its sets, and whether there are
// more.
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
			return tools[:len(tools)-1], true, nil // the last tool may be in more sets
		}
	}
}

// countTools sets how many sessions offer each tool, and removes the offers of sets that no session has.
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

// putSpecs adds writes of the distinct specifications to the pipeline.
func (s *Store) putSpecs(pipe *redisconn.Pipeline, tenant string, tools []registry.ToolSpec) error {
	done := make(map[string]bool, len(tools))
	for _, t := range tools {
		hash := t.Hash()
		if done[hash] {
			continue
		}
		done[hash] = true
		text, err := strictjson.Encode(t)
		if err != nil {
			return registry.Errorf(registry.CodeInvalidRequest, "The parameters of %q are not valid JSON.", t.Name)
		}
		pipe.Do("SET", specKey(tenant, hash), text, "PX", s.indexTTL)
	}
	return nil
}

// fetchSpecs returns the specifications of the hashes. It leaves out those that it cannot find or read: they can only
// belong to a session that is about to expire or to be restored.
func (s *Store) fetchSpecs(
	ctx context.Context, tenant string, hashes map[string]bool,
) (map[string]registry.ToolSpec, error) {
	keyOf := func(hash string) string { return specKey(tenant, hash) }
	parse := func(_, text string) (t registry.ToolSpec, size int, err error) {
		err = json.Unmarshal([]byte(text), &t)
		t = t.Hashed()
		return t, t.Size(), err
	}
	return fetch(ctx, s, s.specs, hashes, redisconn.FormTool, keyOf, parse)
}

// text is a command argument in reused memory (texts). The client library writes its bytes unchanged. In a cluster it
// asks for the string of a key.
type text []byte

func (t *text) MarshalBinary() ([]byte, error) { return *t, nil }

func (t *text) String() string { return string(*t) }

// texts makes arguments that are valid until reset.
type texts struct {
	bytes []byte // of all texts
	begun int    // where the current text begins
	all   []text
}

// reset reuses the memory of all texts.
func (t *texts) reset() { t.bytes, t.begun, t.all = t.bytes[:0], 0, t.all[:0] }

// text returns the bytes appended since the previous text.
func (t *texts) text() *text {
	t.all = append(t.all, t.bytes[t.begun:len(t.bytes):len(t.bytes)])
	t.begun = len(t.bytes)
	return &t.all[len(t.all)-1]
}
