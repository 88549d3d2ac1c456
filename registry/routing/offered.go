package routing

import (
	"errors"
	"hash/maphash"
	"sync"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// DefaultOfferedBytes is the default limit of the tool definitions that a pod's sessions offer, in bytes.
const DefaultOfferedBytes = 512 << 20

// offeredTools are the tools that the sessions of this pod offer. A fleet of phones runs one app, so sessions of a
// tenant with the same tools share one list in memory. Lists with the same tool share its definition. A pool shared by
// all tenants counts lists and definitions. It is safe for concurrent use.
type offeredTools struct {
	bytes *share.Pool
	seeds toolListSeeds

	mu          sync.Mutex
	lists       map[offeredList]*toolList
	definitions map[offeredTool]*definition
}

// offeredList identifies a tenant's list of tools.
type offeredList struct {
	tenant string
	key    toolListKey
}

// offeredTool identifies a tenant's definition by its hash.
type offeredTool struct{ tenant, hash string }

// toolList is the tools of local sessions, ordered by name. Its tools never change. Nil is the empty list.
type toolList struct {
	tools    []registry.ToolSpec
	name     offeredList
	bytes    *share.Grant // of the list without its definitions
	sessions int          // sessions that offer it; guarded by the lock of offeredTools
}

func (l *toolList) all() []registry.ToolSpec {
	if l == nil {
		return nil
	}
	return l.tools
}

// definition is a tool that is in lists. The owner that added it first is charged for its bytes.
type definition struct {
	tool  registry.ToolSpec
	bytes *share.Grant
	lists int
}

// newOfferedTools returns an empty set. A tenant may use half of the bytes.
func newOfferedTools(bytes int64) *offeredTools {
	return &offeredTools{
		bytes: share.New(share.Bounds{Pod: bytes, Identity: bytes / 2}), seeds: newToolListSeeds(),
		lists: make(map[offeredList]*toolList), definitions: make(map[offeredTool]*definition),
	}
}

// add returns the list of these tools, which must be ordered by name, for one more session. The caller must release it
// once. add fails with CodeRateLimited if the owner has no room for a new definition.
func (o *offeredTools) add(by share.Owner, tools []registry.ToolSpec) (*toolList, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	name := offeredList{by.Tenant, o.seeds.key(tools)}
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.lists[name]
	if list == nil {
		bytes, err := o.bytes.Try(by, int64(len(tools)*toolOverhead))
		if err != nil {
			return nil, errTooManyOffered(err)
		}
		list = &toolList{tools: make([]registry.ToolSpec, 0, len(tools)), name: name, bytes: bytes}
		for _, t := range tools {
			held, err := o.addToolLocked(by, t)
			if err != nil {
				o.removeToolsLocked(list)
				return nil, err
			}
			list.tools = append(list.tools, held)
		}
		o.lists[name] = list
	}
	list.sessions++
	return list, nil
}

// addToolLocked returns the shared copy of a definition.
func (o *offeredTools) addToolLocked(by share.Owner, t registry.ToolSpec) (registry.ToolSpec, error) {
	name := offeredTool{by.Tenant, t.Hash()}
	d := o.definitions[name]
	if d == nil {
		bytes, err := o.bytes.Try(by, int64(t.Size()+toolOverhead))
		if err != nil {
			return t, errTooManyOffered(err)
		}
		d = &definition{tool: t, bytes: bytes}
		o.definitions[name] = d
	}
	d.lists++
	return d.tool, nil
}

// HoldTools takes bytes of the pool of offered tools for what else a connection keeps because of them, such as their
// names at the device. The caller releases the grant. It fails with CodeRateLimited if the owner has no room.
func (p *Hub) HoldTools(by share.Owner, bytes int) (*share.Grant, error) {
	grant, err := p.offered.bytes.Try(by, int64(bytes))
	if err != nil {
		return nil, errTooManyOffered(err)
	}
	return grant, nil
}

func errTooManyOffered(err error) error {
	who := "the sessions of this tenant"
	if full := (*share.FullError)(nil); errors.As(err, &full) && full.Bound == share.Pod {
		who = "the sessions of this pod"
	}
	return registry.Errorf(registry.CodeRateLimited, "%s offer too many tool definitions; remove some, "+
		"connect to another pod, or raise FARHAND_MAX_OFFERED_BYTES", who)
}

// release removes one session from a list.
func (o *offeredTools) release(list *toolList) {
	if list == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if list.sessions--; list.sessions == 0 {
		delete(o.lists, list.name)
		o.removeToolsLocked(list)
	}
}

func (o *offeredTools) removeToolsLocked(list *toolList) {
	list.bytes.Release()
	for _, t := range list.tools {
		name := offeredTool{list.name.tenant, t.Hash()}
		d := o.definitions[name]
		if d.lists--; d.lists == 0 {
			delete(o.definitions, name)
			d.bytes.Release()
		}
	}
}

// toolOverhead is the approximate size of a definition without its texts, in bytes.
const toolOverhead = 200

// toolListKey is a 128-bit hash of a list, under secret seeds.
type toolListKey [2]uint64

type toolListSeeds [2]maphash.Seed

func newToolListSeeds() toolListSeeds { return toolListSeeds{maphash.MakeSeed(), maphash.MakeSeed()} }

// key returns the key of a list.
func (s toolListSeeds) key(tools []registry.ToolSpec) (key toolListKey) {
	for i, seed := range s {
		var h maphash.Hash
		h.SetSeed(seed)
		for _, t := range tools {
			_, _ = h.WriteString(t.Hash()) // never fails
		}
		key[i] = h.Sum64()
	}
	return key
}

// toolLists caches the lists of other pods' sessions, each once. It is safe for concurrent use.
type toolLists struct {
	seeds  toolListSeeds
	hashed *cache.Cache[toolListKey, []registry.ToolSpec]
}

// newToolLists returns a cache with two generations. Each takes up to bytes, including the definitions.
func newToolLists(bytes int) toolLists {
	return toolLists{seeds: newToolListSeeds(), hashed: cache.New[toolListKey, []registry.ToolSpec](bytes, 0)}
}

// keep caches a list, which must be ordered by name, unless it is too large, and returns its key.
func (l toolLists) keep(tools []registry.ToolSpec) toolListKey {
	key, size := l.seeds.key(tools), toolOverhead
	for _, t := range tools {
		size += t.Size() + toolOverhead
	}
	l.hashed.GetOrPut(key, tools, size)
	return key
}

// get returns the list of a key, if it is still cached.
func (l toolLists) get(key toolListKey) ([]registry.ToolSpec, bool) { return l.hashed.Get(key) }
