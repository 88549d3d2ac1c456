//go:build !linux

package redisconn

import "syscall"

// controlUserTimeout does nothing, because the option does not exist here. The probe of the bus finds dead connections.
func controlUserTimeout(_, _ string, _ syscall.RawConn) error { return nil }
