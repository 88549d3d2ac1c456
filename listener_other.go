//go:build !linux

package farhand

import "net"

// quiet returns nil: this system cannot stop a listener from taking more connections.
func quiet(net.Listener) (waiting func() int) { return nil }
