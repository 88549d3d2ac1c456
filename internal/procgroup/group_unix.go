//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package procgroup

import (
	"os/exec"
	"syscall"
)

// lead makes a command the leader of a group when it starts.
func lead(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
}

func killGroup(leader int) error { return syscall.Kill(-leader, syscall.SIGKILL) }
