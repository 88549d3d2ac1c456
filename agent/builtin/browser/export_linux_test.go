//go:build linux

package browser

// UsersOf returns the processes whose profile is a folder or below it.
func UsersOf(dir string) []int { return usersOf(dir) }
