package redisconn

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// userTimeout is how long written data may stay unacknowledged before the kernel ends a connection. Without it, a peer
// that vanished silently is noticed only after many minutes of retransmissions.
const userTimeout = 10 * time.Second

// newDialer returns the dialer of all clients. Its errors are *net.OpError with Op "dial", including those of the TLS
// handshake: nothing has been sent over a connection that was never handed out.
func newDialer(
	config *tls.Config, timeout time.Duration,
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: timeout, Control: controlUserTimeout}
	if config == nil {
		return plain.DialContext
	}
	secure := &tls.Dialer{NetDialer: plain, Config: config} // verifies the name in the address
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := secure.DialContext(ctx, network, addr)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return conn, nil
	}
}
