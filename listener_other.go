//go:build !linux

package farhand

import "net"

// quiet does nothing where the system has no way to tell a listener to take no more connections.
func quiet(net.Listener) (waiting func() int) { return func() int { return 0 } }
