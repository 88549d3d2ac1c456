package host

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// confine takes rights from this thread, and so from the commands that it starts. It reports whether signals of this
// thread reach nobody but these: only with Landlock of version 6 or later.
func confine(r request, workspace *os.File) (scoped bool, err error) {
	// No program of theirs has more rights than its user: what has could not be killed.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, fmt.Errorf("no_new_privs: %w", err)
	}
	abi, err := landlockABI()
	switch {
	case err != nil && r.Landlock:
		return false, err
	case r.Landlock:
		err = restrictFiles(abi, workspace)
	case err == nil && abi >= abiScopes:
		err = restrictSignals()
	default:
		err = nil // there is no need for it
	}
	if err != nil {
		return false, err
	}
	// The gateway has the same user, or this process is root's, so nothing else forbids it.
	scoped = abi >= abiScopes && unix.Kill(r.Gateway, 0) == unix.EPERM
	if architecture() == 0 && !r.Landlock {
		return scoped, nil
	}
	return scoped, installFilter(filterFor(r, abi, protected(r.Gateway, scoped)))
}

// protected returns what programs may not send signals to, as kill takes it: the gateway, this process with its
// threads, their process groups, and everybody, unless signals are scoped.
func protected(gateway int, scoped bool) []uint32 {
	self := os.Getpid()
	list := []int{self, -self, gateway}
	if !scoped {
		list = append(list, -1)
	}
	if group, err := unix.Getpgid(gateway); err == nil {
		list = append(list, -group)
	}
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil && tid != self {
			list = append(list, tid)
		}
	}
	values := make([]uint32, len(list))
	for i, pid := range list {
		values[i] = uint32(int32(pid))
	}
	return values
}
