package ws

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws/node/commands"
)

// handshakes are the sockets on which the server waits for the first frame of a node. It is safe for concurrent use.
type handshakes struct {
	upgrader *websocket.Upgrader
	places   *share.Pool                 // by source
	rates    *auth.Buckets[netip.Prefix] // handshakes, by source

	mu      sync.Mutex
	sockets map[*handshakeSocket]struct{} // nil: the server drains
}

func newHandshakes(s *Server) *handshakes {
	return &handshakes{
		upgrader: &websocket.Upgrader{
			ReadBufferSize: handshakeRead, WriteBufferSize: writeBuffer, WriteBufferPool: &sync.Pool{},
			HandshakeTimeout: handshakeTimeout,
			CheckOrigin:      func(*http.Request) bool { return true }, // meetNode has checked it
			Error:            s.refuseHandshake,
		},
		places:  share.New(share.Bounds{Pod: maxHandshakes}),
		rates:   auth.NewBuckets[netip.Prefix](auth.Limit{Rate: s.cfg.MaxOpensPerSecond, Burst: s.cfg.OpensBurst}),
		sockets: make(map[*handshakeSocket]struct{}),
	}
}

// track adds a socket to those that drain wakes. It returns false if the server drains.
func (n *handshakes) track(socket *handshakeSocket) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sockets == nil {
		return false
	}
	n.sockets[socket] = struct{}{}
	return true
}

func (n *handshakes) untrack(socket *handshakeSocket) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sockets, socket)
}

// drain ends the waits for first frames.
func (n *handshakes) drain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for socket := range n.sockets {
		_ = socket.SetReadDeadline(time.Now())
	}
	n.sockets = nil
}

// Hijack implements http.Hijacker.
func (h *handshakeHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	socket, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.socket.Conn = socket
	return h.socket, rw, nil
}

// nodeCatalogs shares the catalogs of nodes that declare the same. A catalog has the definition of each tool, which is
// several times the rest of what an idle node costs, and most nodes of a fleet are alike. A catalog lives as long as a
// node has it. It is safe for concurrent use.
type nodeCatalogs struct {
	rules commands.Rules

	mu   sync.Mutex
	by   map[[sha256.Size]byte]weak.Pointer[commands.Catalog]
	held map[heldCatalog]*catalogHolders
}

// pluginTimes is how many times the bytes that a session may offer the plug-in tools of a node may have: they have
// members that definitions have not, and some are rejected.
const pluginTimes = 4

// heldCatalog is a catalog that connections of a tenant have.
type heldCatalog struct {
	tenant  string
	catalog *commands.Catalog
}

// catalogHolders are the connections that have a catalog. The owner that had it first is charged for its bytes.
type catalogHolders struct {
	connections int
	bytes       *share.Grant
}

// hold counts one more connection of an owner that has a catalog. The caller releases it once. It fails with
// CodeRateLimited if the pod's pool of offered tools has no room for the owner.
func (n *nodeCatalogs) hold(hub *routing.Hub, by share.Owner, c *commands.Catalog) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := heldCatalog{by.Tenant, c}
	if n.held[name] == nil {
		bytes, err := hub.HoldTools(by, c.Size())
		if err != nil {
			return err
		}
		if n.held == nil {
			n.held = make(map[heldCatalog]*catalogHolders)
		}
		n.held[name] = &catalogHolders{bytes: bytes}
	}
	n.held[name].connections++
	return nil
}

func (n *nodeCatalogs) release(tenant string, c *commands.Catalog) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := heldCatalog{tenant, c}
	of := n.held[name]
	if of.connections--; of.connections == 0 {
		delete(n.held, name)
		of.bytes.Release()
	}
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
