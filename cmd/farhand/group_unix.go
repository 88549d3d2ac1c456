//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// shellCommand returns a command line, to be run in a process group of its own.
func shellCommand(line string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// killGroup ends all processes of the group that a command of shellCommand leads.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
