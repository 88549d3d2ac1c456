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

// toolSet is everything a session offers. Most of a fleet offers the same, so a set is stored once, under the hash of
// its content, and a session names it. The zero value is the set without tools, which is not stored.
type toolSet struct {
	hash  string
	tools []setTool // ordered by name
}

type setTool struct{ name, hash string }

// newToolSet returns the set of these tools. Of several with one name the last counts.
func newToolSet(tools []registry.ToolSpec) toolSet {
	tools = ordered(tools)
	if len(tools) == 0 {
		return toolSet{}
	}
	set := toolSet{hash: setHash(appendSetText(nil, tools)), tools: make([]setTool, len(tools))}
	for i, t := range tools {
		set.tools[i] = setTool{name: t.Name, hash: t.Hash()}
	}
	return set
}

// ordered returns tools ordered by name, of several with one name the last: the list itself if it is so already.
func ordered(tools []registry.ToolSpec) []registry.ToolSpec {
	isOrdered := true
	for i := 1; i < len(tools) && isOrdered; i++ {
		isOrdered = tools[i-1].Name < tools[i].Name
	}
	if isOrdered {
		return tools
	}
	all := slices.Clone(tools)
	slices.SortStableFunc(all, func(a, b registry.ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	kept := all[:0]
	for i, t := range all {
		if i+1 == len(all) || all[i+1].Name != t.Name {
			kept = append(kept, t)
		}
	}
	return kept
}

// appendSetText appends how a set of ordered tools is stored: a line "name hash" for each.
func appendSetText(b []byte, tools []registry.ToolSpec) []byte {
	for i := range tools {
		b = append(append(append(append(b, tools[i].Name...), ' '), tools[i].Hash()...), '\n')
	}
	return b
}

// setHash returns the hash of a set that is stored as a text.
func setHash(text []byte) string {
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
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

// offerMembers returns the set's entries in the offers index.
func (s toolSet) offerMembers() []string {
	list := make([]string, len(s.tools))
	for i, t := range s.tools {
		list[i] = offerMember(t.name, t.hash, s.hash)
	}
	return list
}

// putSet adds the writes of a set and its specifications to the pipeline.
func (s *Store) putSet(pipe *redisconn.Pipeline, tenant string, set toolSet, tools []registry.ToolSpec) error {
	if set.hash == "" {
		return nil
	}
	pipe.Do("SET", setKey(tenant, set.hash), appendSetText(nil, ordered(tools)), "PX", s.indexTTL)
	return s.putSpecs(pipe, tenant, tools)
}

// fetchSets returns sets by their hash. One that is not there is left out: its pod writes it again when it refreshes
// its sessions.
func (s *Store) fetchSets(ctx context.Context, tenant string, hashes map[string]bool) (map[string]toolSet, error) {
	keyOf := func(hash string) string { return setKey(tenant, hash) }
	return fetch(ctx, s, s.sets, hashes, keyOf, func(hash, text string) (toolSet, int, error) {
		set := parseToolSet(hash, text)
		return set, set.size(), nil
	})
}
