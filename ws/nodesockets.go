package ws

import (
	"bufio"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
)

// strangers are the sockets on which the server waits for the first frame of a node. It is safe for concurrent use.
type strangers struct {
	upgrader *websocket.Upgrader
	places   *share.Pool                 // by source
	rates    *auth.Buckets[netip.Prefix] // handshakes, by source

	mu      sync.Mutex
	sockets map[*strangerSocket]struct{} // nil: the server drains
}

func newStrangers(s *Server) *strangers {
	return &strangers{
		upgrader: &websocket.Upgrader{
			ReadBufferSize: strangerRead, WriteBufferSize: writeBuffer, WriteBufferPool: &sync.Pool{},
			HandshakeTimeout: handshakeTimeout,
			CheckOrigin:      func(*http.Request) bool { return true }, // meetNode has checked it
			Error:            s.refuseHandshake,
		},
		places:  share.New(share.Bounds{Pod: maxStrangers}),
		rates:   auth.NewBuckets[netip.Prefix](auth.Limit{Rate: s.cfg.MaxOpensPerSecond, Burst: s.cfg.OpensBurst}),
		sockets: make(map[*strangerSocket]struct{}),
	}
}

// track adds a socket to those that drain wakes. It returns false if the server drains.
func (n *strangers) track(socket *strangerSocket) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sockets == nil {
		return false
	}
	n.sockets[socket] = struct{}{}
	return true
}

func (n *strangers) untrack(socket *strangerSocket) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sockets, socket)
}

// drain ends the waits for first frames.
func (n *strangers) drain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for socket := range n.sockets {
		_ = socket.SetReadDeadline(time.Now())
	}
	n.sockets = nil
}

// Hijack implements http.Hijacker.
func (h *strangerHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	socket, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.socket.Conn = socket
	return h.socket, rw, nil
}
