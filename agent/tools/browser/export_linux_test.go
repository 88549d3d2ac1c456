//go:build linux

package browser

// UsersOf returns the processes whose profile is a folder or below it.
func UsersOf(dir string) (pids []int) {
	for pid, rest := range belowOf(dir) {
		if firstName(rest) == "" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// KillUser kills a process if its profile is a folder or below it, and reports whether it was so.
func KillUser(pid int, dir string) bool { return killUser(pid, dir) }
