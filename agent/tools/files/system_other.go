//go:build !unix

package files

import (
	"io/fs"
	"os"

	"github.com/farhand/farhand/agent/sandbox"
)

const readFlags = os.O_RDONLY

// names returns zero, so every file is rejected: link counts and owners are not implemented for this system.
func names(fs.FileInfo) uint64 { return 0 }

func owned(fs.FileInfo, sandbox.Workspace) bool { return false }

func giveTo(*os.File, sandbox.Workspace) error { return nil }

func openFolder(in *os.Root, name string) (*os.File, error) { return in.Open(name) }

func noRoom(error) bool { return false }
