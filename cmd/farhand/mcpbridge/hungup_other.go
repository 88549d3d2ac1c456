//go:build !linux

package mcpbridge

import "os"

// hungUp returns false: on this system only the next write shows that the reader is gone.
func hungUp(*os.File) bool { return false }
