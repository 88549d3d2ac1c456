//go:build !unix

package listener

import "math"

// OpenFiles returns how many files this process may open. This system has no limit.
func OpenFiles() int { return math.MaxInt32 }
