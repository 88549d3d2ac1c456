//go:build !linux

package sandbox

// Nameless returns 0: open files of others are not looked at on this system.
func Nameless(Workspace) int64 { return 0 }
