//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package procgroup

import (
	"os/exec"
	"syscall"
)

// members are the processes of the group with this id, which is the process id of its leader.
type members int

// lead makes a command the leader of a group when it starts.
func lead(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
}

// adopt returns the group of a leader that has started.
func adopt(leader int) (members, error) { return members(leader), nil }

func (m members) kill() error { return syscall.Kill(-int(m), syscall.SIGKILL) }

func (members) close() {}
