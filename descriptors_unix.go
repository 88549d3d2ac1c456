//go:build unix

package farhand

import (
	"math"
	"syscall"
)

// openFiles returns how many files this process may have open. Go raises the limit to the most that may be, when a
// program starts.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt32 {
		return math.MaxInt32 // none that matters
	}
	return int(limit.Cur)
}
