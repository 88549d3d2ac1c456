//go:build unix

package listener

import (
	"math"
	"syscall"
)

// OpenFiles returns how many files this process may open. Go raises the soft limit to the hard one at the start.
func OpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt32 {
		return math.MaxInt32 // no relevant limit
	}
	return int(limit.Cur)
}
