//go:build unix

package desktop

import (
	"os/exec"
	"syscall"
)

// launch starts a program that outlives this one, in a session of its own, so that signals of a terminal do not reach
// it.
func launch(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// noWait makes opening a pipe return immediately.
const noWait = syscall.O_NONBLOCK
