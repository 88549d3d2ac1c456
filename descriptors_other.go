//go:build !unix

package farhand

import "math"

// openFiles returns how many files this process may open. This system has no limit.
func openFiles() int { return math.MaxInt32 }
