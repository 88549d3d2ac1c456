//go:build !unix

package farhand

import "math"

// openFiles returns how many files this process may have open, where the system has no limit for it.
func openFiles() int { return math.MaxInt32 }
