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

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// newDialer returns the dialer of all clients. Its errors are *net.OpError with Op "dial", including those of the TLS
// handshake: nothing has been sent over a connection that was never handed out.
func newDialer(config *tls.Config, timeout time.Duration) dialFunc {
	d := &net.Dialer{Timeout: timeout, Control: controlUserTimeout}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil || config == nil {
			return conn, err
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		secure := tls.Client(conn, withServerName(config, addr))
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return secure, nil
	}
}

// withServerName fills in the name to verify: members of a cluster and masters behind Sentinel have their own.
func withServerName(config *tls.Config, addr string) *tls.Config {
	if config.ServerName != "" {
		return config
	}
	config = config.Clone()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		config.ServerName = host
	}
	return config
}
