//go:build unix

package nodetools

import (
	"os/exec"
	"syscall"
)

// inGroup has a command run in a process group of its own, which ends with it.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
