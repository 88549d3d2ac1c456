package main

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// faultProxy is a TCP proxy that can be stopped, started again at the same address, and slowed down.
type faultProxy struct {
	Listen string // its address

	upstream string
	latency  atomic.Int64 // before each piece that the server sends, and as much again at random; 0: none

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	running  sync.WaitGroup
}

// startFaultProxy starts a proxy that ends with the test.
func startFaultProxy(t testing.TB, upstream string) *faultProxy {
	t.Helper()
	p := &faultProxy{Listen: "127.0.0.1:0", upstream: upstream}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// Start accepts connections.
func (p *faultProxy) Start() error {
	l, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Listen, p.listener, p.conns = l.Addr().String(), l, make(map[net.Conn]bool)
	p.running.Go(func() { p.accept(l) })
	return nil
}

// Stop refuses new connections, cuts the open ones and waits for all goroutines. It may be called twice.
func (p *faultProxy) Stop() {
	p.mu.Lock()
	_ = p.listener.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.running.Wait()
}

// Slow delays each piece that the server sends by d at least and twice d at most; 0 ends it.
func (p *faultProxy) Slow(d time.Duration) { p.latency.Store(int64(d)) }

func (p *faultProxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.keep(client, server) {
			return
		}
		p.running.Go(func() { p.relay(server, client, false) })
		p.running.Go(func() { p.relay(client, server, true) })
	}
}

// keep keeps connections for Stop. It closes them and returns false when the proxy is stopped.
func (p *faultProxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.conns == nil {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return p.conns != nil
}

func (p *faultProxy) relay(to, from net.Conn, slowed bool) {
	defer p.forget(to, from)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if d := p.latency.Load(); slowed && d > 0 && err == nil {
			time.Sleep(time.Duration(d + rand.Int64N(d))) // what the proxy is for
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

func (p *faultProxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
