//go:build !linux

package redisconn

import "syscall"

// controlUserTimeout does nothing where the option does not exist; the probe of the bus is the guard there.
func controlUserTimeout(_, _ string, _ syscall.RawConn) error { return nil }
