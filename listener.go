package farhand

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen opens a listener as Run does: for WithListener, where a program must know that the address is free, or which
// port was chosen, before it makes a gateway.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	config := net.ListenConfig{
		// Sockets are probed by WebSocket pings. TCP keep-alive on top of them would probe thousands of sockets that
		// were accepted together in one burst.
		KeepAlive: -1,
	}
	// A listener of Multipath TCP, Go's default, cannot be told to take no more connections (quiet). What a phone would
	// gain by it ends at the load balancer.
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

// lasting is a listener that a connection which cannot be accepted does not end. Such errors of the connection, or of a
// system that has no memory for it, are those that accept(2) says to try again after; net/http takes them as the end of
// the listener unless they are temporary, and waits a little after those that are.
type lasting struct{ net.Listener }

// Accept implements net.Listener.
func (l lasting) Accept() (net.Conn, error) {
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

// passing is an error after which to try again. It implements net.Error.
type passing struct{ error }

func (e passing) Unwrap() error { return e.error }
func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }
