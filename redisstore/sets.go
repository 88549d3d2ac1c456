package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// toolSet is everything a session offers. Most of a fleet offers the same: a set is stored once, under the hash of its
// content, and a session only names it. The zero value is the set without tools, which is not stored at all.
type toolSet struct {
	hash  string
	tools []setTool // ordered by name
}

type setTool struct{ name, hash string }

// newToolSet returns the set of these tools. Of several of one name the last counts.
func newToolSet(tools []registry.ToolSpec) toolSet {
	var set toolSet
	byName := make(map[string]int, len(tools))
	for _, t := range tools {
		tool := setTool{name: t.Name, hash: t.Hash()}
		if i, ok := byName[t.Name]; ok {
			set.tools[i] = tool
			continue
		}
		byName[t.Name] = len(set.tools)
		set.tools = append(set.tools, tool)
	}
	if len(set.tools) == 0 {
		return toolSet{}
	}
	slices.SortFunc(set.tools, func(a, b setTool) int { return strings.Compare(a.name, b.name) })
	sum := sha256.Sum256([]byte(set.text()))
	set.hash = base64.RawURLEncoding.EncodeToString(sum[:16])
	return set
}

// text is how a set is stored: a line "name hash" for each tool.
func (s toolSet) text() string {
	var b strings.Builder
	for _, t := range s.tools {
		b.WriteString(t.name + " " + t.hash + "\n")
	}
	return b.String()
}

func parseToolSet(hash, text string) toolSet {
	set := toolSet{hash: hash}
	for line := range strings.Lines(text) {
		if name, spec, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			set.tools = append(set.tools, setTool{name, spec})
		}
	}
	return set
}

// size is about what the set takes in memory.
func (s toolSet) size() int { return len(s.tools) * 140 }

// offers reports whether a tool of this name is in the set, and by this specification if one is named.
func (s toolSet) offers(name, spec string) bool {
	i, ok := slices.BinarySearchFunc(s.tools, name, func(t setTool, n string) int { return strings.Compare(t.name, n) })
	return ok && (spec == "" || s.tools[i].hash == spec)
}

// members returns the set's entries in the offers index.
func (s toolSet) members() []string {
	list := make([]string, len(s.tools))
	for i, t := range s.tools {
		list[i] = offerMember(t.name, t.hash, s.hash)
	}
	return list
}

// putSet adds the writes of a set and its specifications to the batch.
func (s *Store) putSet(pipe *redisconn.Pipeline, tenant string, set toolSet, tools []registry.ToolSpec) error {
	if set.hash == "" {
		return nil
	}
	pipe.Do("SET", setKey(tenant, set.hash), set.text(), "PX", s.indexTTL)
	return s.putSpecs(pipe, tenant, tools)
}

// fetchSets returns sets by their hash. One that is not there is left out: its pod writes it again when it refreshes
// its sessions.
func (s *Store) fetchSets(ctx context.Context, tenant string, hashes map[string]bool) (map[string]toolSet, error) {
	found := make(map[string]toolSet, len(hashes))
	missing := make(map[string]*redisconn.Command)
	pipe := s.conn.Pipeline()
	for hash := range hashes {
		if set, ok := s.sets.Get(hash); ok {
			found[hash] = set
			continue
		}
		missing[hash] = pipe.Do("GET", setKey(tenant, hash))
	}
	if len(missing) == 0 {
		return found, nil
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for hash, c := range missing {
		if text, ok := c.Text(); ok {
			set := parseToolSet(hash, text)
			s.sets.Put(hash, set, set.size()+cacheOverhead)
			found[hash] = set
		}
	}
	return found, nil
}
