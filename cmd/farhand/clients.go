package main

import (
	"net"
	"net/http"
	"sync"
)

// clientCount counts the open HTTP connections. Sockets are not among them. It is safe for concurrent use.
type clientCount struct {
	mu   sync.Mutex
	open int
	zero chan struct{} // closed when no connection is open; nil while nobody waits for that
}

// note notes a change of a connection, as http.Server.ConnState reports it.
func (n *clientCount) note(_ net.Conn, state http.ConnState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch state {
	case http.StateNew:
		n.open++
	case http.StateClosed, http.StateHijacked:
		n.open--
	}
	if n.open == 0 && n.zero != nil {
		close(n.zero)
		n.zero = nil
	}
}

// none returns a channel that is closed as soon as no connection is open.
func (n *clientCount) none() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	zero := n.zero
	if zero == nil {
		zero = make(chan struct{})
		n.zero = zero
	}
	if n.open == 0 {
		close(zero)
		n.zero = nil
	}
	return zero
}
