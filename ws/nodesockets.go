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
