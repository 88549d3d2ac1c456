//go:build !linux

package listener

import "net"

// Quiet returns nil: this system cannot stop a listener from taking more connections.
func Quiet(net.Listener) (waiting func() int) { return nil }
