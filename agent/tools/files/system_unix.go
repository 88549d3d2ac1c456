//go:build unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/farhand/farhand/agent/sandbox"
)

// readFlags open a file for reading, without blocking on a pipe.
const readFlags = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY

// names returns the number of hard links of a file.
func names(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink)
	}
	return 0
}

// owned reports whether a file belongs to the workspace's user or to the user of this process.
func owned(info fs.FileInfo, w sandbox.Workspace) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(stat.Uid) == w.UID || int(stat.Uid) == os.Geteuid())
}

// giveTo changes the owner of a new file to the workspace's user. It has an effect only if this process is root.
func giveTo(f *os.File, w sandbox.Workspace) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return f.Chown(w.UID, w.GID)
}

// openFolder opens a new folder. It fails for other files.
func openFolder(in *os.Root, name string) (*os.File, error) {
	return in.OpenFile(name, readFlags|syscall.O_DIRECTORY, 0)
}

// noRoom reports whether a write failed for lack of space.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
