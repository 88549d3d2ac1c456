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

func memoryBelow(string) map[string]int64 { return nil }

func lock(*os.File) bool { return false }
