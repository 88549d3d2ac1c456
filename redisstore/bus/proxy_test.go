package bus

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between the clients and a server. Muted, it keeps the connections it has open and swallows what
// passes through them, as a firewall that forgot about them would; new connections work.
type proxy struct {
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	server string // of connections that are still to come
	links  []*link
}

type link struct {
	client, server net.Conn
	muted          atomic.Bool
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: server}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, k := range p.links {
			_, _ = k.client.Close(), k.server.Close()
		}
		p.mu.Unlock()
		p.done.Wait()
	})
	return p
}

func (p *proxy) url() string { return "redis://" + p.listener.Addr().String() }

func (p *proxy) mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.links {
		k.muted.Store(true)
	}
}

// lead takes connections that are still to come to another server.
func (p *proxy) lead(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
}

func (p *proxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target())
		if err != nil {
			_ = client.Close()
			continue
		}
		k := &link{client: client, server: server}
		p.mu.Lock()
		p.links = append(p.links, k)
		p.mu.Unlock()
		p.done.Go(func() { k.copy(server, client) })
		p.done.Go(func() { k.copy(client, server) })
	}
}

func (k *link) copy(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !k.muted.Load() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
