//go:build !unix

package desktop

import "os/exec"

// launch starts a program that outlives this one.
func launch(cmd *exec.Cmd) error { return cmd.Start() }

// noWait is needed where folders have pipes.
const noWait = 0
