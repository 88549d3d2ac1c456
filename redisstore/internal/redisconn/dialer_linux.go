package redisconn

import (
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h, which package syscall does not name.
const tcpUserTimeout = 18

// controlUserTimeout sets userTimeout on a socket. It ignores failures: the probe of the bus also finds dead
// connections.
func controlUserTimeout(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(userTimeout.Milliseconds()))
	})
}
