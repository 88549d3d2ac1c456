// Package listener has what a pod does with its TCP listener and connections beyond net/http: it survives failed
// accepts, stops taking connections while the pod drains, and bounds the connections that are idle.
package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen opens a TCP listener that Quiet can quiet.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	config := net.ListenConfig{
		// WebSocket pings already probe sockets. TCP keep-alive would probe thousands of sockets that were accepted
		// together in one burst.
		KeepAlive: -1,
	}
	// A Multipath TCP listener, Go's default, cannot stop accepting connections (see Quiet). Its benefit for phones
	// ends at the load balancer.
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

// Lasting is a listener that survives connections it cannot accept. accept(2) says to retry after errors of the
// connection, or when the system lacks memory for it. net/http stops serving after such an error unless it is
// temporary; after temporary errors it waits briefly and retries.
type Lasting struct{ net.Listener }

// Accept implements net.Listener.
func (l Lasting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if code, ok := errors.AsType[syscall.Errno](err); ok {
		switch code {
		case syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM, syscall.EPROTO, syscall.ENOPROTOOPT, syscall.EOPNOTSUPP,
			syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH:
			return nil, passing{err}
		}
	}
	return conn, err
}

// passing is a temporary error. It implements net.Error.
type passing struct{ error }

func (e passing) Unwrap() error { return e.error }
func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }
