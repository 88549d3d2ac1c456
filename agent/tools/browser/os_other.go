//go:build !linux

package browser

import (
	"os"
	"os/exec"
)

// Browsers are not supported here: the functions below are never called.
const supported = false

func confine(*exec.Cmd)     {}
func killUsers(string) bool { return false }

func memoryBelow(string) map[string]int64 { return nil }

func lock(*os.File) bool { return false }
