//go:build unix

package docker

import (
	"errors"
	"syscall"
)

// isGone reports whether there is certainly no process with this id.
func isGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
