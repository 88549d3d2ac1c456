package ws

import (
	"crypto/sha256"
	"encoding/json"
	"runtime"
	"sync"
	"weak"

	"github.com/farhand/farhand/ws/node/commands"
)

// nodeCatalogs shares the catalogs of nodes that declare the same. A catalog has the definition of each tool, which is
// several times the rest of what an idle node costs, and most nodes of a fleet are alike. A catalog lives as long as a
// node has it. It is safe for concurrent use.
type nodeCatalogs struct {
	rules commands.Rules

	mu sync.Mutex
	by map[[sha256.Size]byte]weak.Pointer[commands.Catalog]
}

// of returns the catalog of a node with the plug-in tools that it published.
func (n *nodeCatalogs) of(node commands.Node, plugins []json.RawMessage) *commands.Catalog {
	key := catalogKey(node, plugins)
	n.mu.Lock()
	shared := n.by[key].Value()
	n.mu.Unlock()
	if shared != nil {
		return shared
	}
	made := commands.New(node, plugins, n.rules)
	n.mu.Lock()
	defer n.mu.Unlock()
	if shared = n.by[key].Value(); shared != nil { // made meanwhile
		return shared
	}
	if n.by == nil {
		n.by = make(map[[sha256.Size]byte]weak.Pointer[commands.Catalog])
	}
	n.by[key] = weak.Make(made)
	runtime.AddCleanup(made, n.forget, key)
	return made
}

// forget removes a catalog that no node has, unless it was made again.
func (n *nodeCatalogs) forget(key [sha256.Size]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.by[key].Value() == nil {
		delete(n.by, key)
	}
}

// catalogKey identifies what a catalog is made of. JSON has the names of a map in order.
func catalogKey(node commands.Node, plugins []json.RawMessage) [sha256.Size]byte {
	text, err := json.Marshal(struct {
		Node    commands.Node
		Plugins []json.RawMessage
	}{node, plugins})
	if err != nil { // the plug-ins' text was checked
		panic(err)
	}
	return sha256.Sum256(text)
}
