package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"unsafe"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	// refreshTools is about how many tools are checked in one round trip. It bounds the memory of the commands.
	refreshTools = 2048

	// offersAsked is how many members of the offers index one script checks. It bounds how long the script blocks the
	// server.
	offersAsked = 1000
)

// offeredSet is a tool set with the entries of a chunk that offer it.
type offeredSet struct {
	tenant  string
	hash    string              // empty: no tools
	tools   []registry.ToolSpec // ordered
	members string              // the index of the sessions that offer it
	since   int64               // seniority of the eldest of them; ms
	places  []int

	kept    *redisconn.Command
	missing []*redisconn.Command // counts of offers that the index lacks
}

// offeredSpec is a definition that an entry of a chunk offers.
type offeredSpec struct {
	tenant string
	spec   *registry.ToolSpec
	kept   *redisconn.Command
}

// sharedList identifies a list of tools by its place in memory.
type sharedList struct {
	tenant string
	first  *registry.ToolSpec
	length int
}

// sharedSpec identifies a definition.
type sharedSpec struct{ tenant, hash string }

// offeredSets are the sets of a chunk, and their definitions. Sessions that offer the same share a list of tools, so
// values that depend only on the list are computed once per list of a chunk.
type offeredSets struct {
	byList map[sharedList]*offeredSet
	list   []*offeredSet // its spare capacity has earlier ones for reuse
	asked  []*offeredSet // whose answers are pending

	bySpec map[sharedSpec]int // its index in specs and ages
	specs  []offeredSpec
	ages   []aged
	from   int // the first spec whose answer is pending
	to     int // behind the last
}

func (o *offeredSets) reset() {
	clear(o.byList)
	clear(o.bySpec)
	for _, set := range o.list {
		set.tools, set.places, set.missing = nil, set.places[:0], set.missing[:0]
	}
	clear(o.specs)
	clear(o.ages)
	o.list, o.asked, o.specs, o.ages, o.from, o.to = o.list[:0], o.asked[:0], o.specs[:0], o.ages[:0], 0, 0
}

// add notes what the entry at this place of the chunk offers. It uses scratch temporarily.
func (o *offeredSets) add(place int, e *registry.Entry, scratch *texts) *offeredSet {
	key := sharedList{e.Session.Tenant, unsafe.SliceData(e.Tools), len(e.Tools)}
	set, since := o.byList[key], e.Session.Seniority().UnixMilli()
	if set == nil {
		set = again(&o.list)
		set.tenant, set.tools, set.hash, set.since = e.Session.Tenant, registry.OrderTools(e.Tools), "", since
		if len(set.tools) > 0 {
			scratch.bytes = appendSetText(scratch.bytes, set.tools)
			set.hash = setHash(scratch.bytes[scratch.begun:])
			scratch.bytes = scratch.bytes[:scratch.begun]
			set.members = membersIndex(set.tenant, set.hash)
		}
		o.byList[key] = set
	}
	set.since = min(set.since, since)
	set.places = append(set.places, place)
	return set
}

// collect notes the definitions of all sets, each once, with the seniority of the eldest session that offers it.
func (o *offeredSets) collect() {
	for _, set := range o.list {
		for i := range set.tools {
			spec := &set.tools[i]
			key := sharedSpec{set.tenant, spec.Hash()}
			place, known := o.bySpec[key]
			if !known {
				o.bySpec[key] = len(o.specs)
				o.specs = append(o.specs, offeredSpec{tenant: set.tenant, spec: spec})
				o.ages = append(o.ages, aged{set.tenant, spec.Name, key.hash, set.since})
				continue
			}
			o.ages[place].since = min(o.ages[place].since, set.since)
		}
	}
}

// askSpecs adds commands that extend the TTLs of the definitions, and write their ages.
func (r *refresher) askSpecs(ctx context.Context) error {
	o, t := &r.sets, &r.texts
	o.collect()
	for o.to < len(o.specs) {
		o.from, o.to = o.to, min(len(o.specs), o.to+refreshTools)
		for i := range o.specs[o.from:o.to] {
			spec := &o.specs[o.from+i]
			t.bytes = appendSpecKey(t.bytes, spec.tenant, spec.spec.Hash())
			spec.kept = r.pipe.Do("PEXPIRE", t.text(), r.indexTTL)
		}
		r.store.putAges(r.pipe, t, o.ages[o.from:o.to])
		if o.to < len(o.specs) {
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteSpecs writes the definitions that Redis has lost.
func (r *refresher) noteSpecs() {
	o := &r.sets
	for _, spec := range o.specs[o.from:o.to] {
		if spec.kept.Int() == 1 {
			continue
		}
		if text, err := strictjson.Encode(*spec.spec); err == nil { // invalid ones were rejected when they were put
			r.write(specKey(spec.tenant, spec.spec.Hash()), text)
		}
	}
	o.from = o.to
}

// askSets adds commands that extend the TTLs of the sets, and check that the offers index has their offers.
func (r *refresher) askSets(ctx context.Context) error {
	o, tools, tenant := &r.sets, 0, ""
	for _, set := range o.list {
		if set.hash == "" {
			continue
		}
		if tools += len(set.tools); tools > refreshTools {
			if err := r.flush(ctx); err != nil {
				return err
			}
			tools = len(set.tools)
		}
		set.kept = r.pipe.Do("PEXPIRE", setKey(set.tenant, set.hash), r.indexTTL)
		if tenant != set.tenant {
			tenant = set.tenant
			r.pipe.Do("PEXPIRE", offersIndex(tenant), r.indexTTL)
		}
		r.askOffers(set)
		o.asked = append(o.asked, set)
	}
	return nil
}

func (r *refresher) askOffers(set *offeredSet) {
	var index any = offersIndex(set.tenant)
	for tools := range slices.Chunk(set.tools, offersAsked) {
		c := r.pipe.EvalKeys(scriptOffersMissing, 1)
		c.Add(index)
		for i := range tools {
			r.texts.bytes = appendOfferMember(r.texts.bytes, tools[i].Name, tools[i].Hash(), set.hash)
			c.Add(r.texts.text())
		}
		set.missing = append(set.missing, c)
	}
}

// noteSets writes the sets that Redis has lost. Entries are absent if the offers index lacks what they offer.
func (r *refresher) noteSets() {
	for _, set := range r.sets.asked {
		if set.kept.Int() != 1 {
			r.write(setKey(set.tenant, set.hash), appendSetText(nil, set.tools))
		}
		if slices.ContainsFunc(set.missing, func(c *redisconn.Command) bool { return c.Int() > 0 }) {
			for _, place := range set.places {
				r.absent[place] = true
			}
		}
		set.missing = set.missing[:0]
	}
	r.sets.asked = r.sets.asked[:0]
}

// toolSet is everything a session offers. Most of a fleet offers the same, so a set is stored once, under the hash of
// its content, and a session names it. The zero value is the set without tools, which is not stored.
type toolSet struct {
	hash  string
	tools []setTool // ordered by name
}

type setTool struct{ name, hash string }

// newToolSet returns the set of these tools. If several have the same name, the last counts.
func newToolSet(tools []registry.ToolSpec) toolSet {
	tools = registry.OrderTools(tools)
	if len(tools) == 0 {
		return toolSet{}
	}
	set := toolSet{hash: setHash(appendSetText(nil, tools)), tools: make([]setTool, len(tools))}
	for i, t := range tools {
		set.tools[i] = setTool{name: t.Name, hash: t.Hash()}
	}
	return set
}

// appendSetText appends the stored form of a set of ordered tools: a line "name hash" for each.
func appendSetText(b []byte, tools []registry.ToolSpec) []byte {
	for i := range tools {
		b = append(append(append(append(b, tools[i].Name...), ' '), tools[i].Hash()...), '\n')
	}
	return b
}

// setHash returns the hash of a set's stored form.
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

// size is the approximate memory of the set, in bytes.
func (s toolSet) size() int { return len(s.tools) * 140 }

// offers reports whether the set has a tool of this name and, unless spec is empty, of this specification.
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
	pipe.Do("SET", setKey(tenant, set.hash), appendSetText(nil, registry.OrderTools(tools)), "PX", s.indexTTL)
	return s.putSpecs(pipe, tenant, tools)
}

// fetchSets returns sets by their hash. Missing sets are left out: their pod writes them again when it refreshes its
// sessions.
func (s *Store) fetchSets(ctx context.Context, tenant string, hashes map[string]bool) (map[string]toolSet, error) {
	keyOf := func(hash string) string { return setKey(tenant, hash) }
	return fetch(ctx, s, s.sets, hashes, redisconn.FormToolSet, keyOf, func(hash, text string) (toolSet, int, error) {
		set := parseToolSet(hash, text)
		return set, set.size(), nil
	})
}
