//go:build !linux

package browser

import (
	"os"
	"os/exec"
)

// There is no browser here: nothing of this is reached.
const supported = false

func confine(*exec.Cmd)     {}
func killUsers(string) bool { return false }
func memoryOf(string) int64 { return 0 }
func lock(*os.File) bool    { return false }
