//go:build !unix

package main

import "os/exec"

// shellCommand returns a command line of this system's shell.
func shellCommand(line string) *exec.Cmd { return exec.Command("cmd", "/c", line) }

// killGroup ends a command of shellCommand. What it started is left to itself here.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
