//go:build unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/farhand/farhand/agent/sandbox"
)

// readFlags open a file for reading, without waiting for the other end of a pipe.
const readFlags = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY

// names returns how many names a file has.
func names(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink)
	}
	return 0
}

// owned reports whether something belongs to the workspace, or to this process.
func owned(info fs.FileInfo, w sandbox.Workspace) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(stat.Uid) == w.UID || int(stat.Uid) == os.Geteuid())
}

// giveTo gives what this process has made to the user of the workspace. Only root can, and has to.
func giveTo(f *os.File, w sandbox.Workspace) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return f.Chown(w.UID, w.GID)
}

// openFolder opens a folder that was just made, nothing else.
func openFolder(in *os.Root, name string) (*os.File, error) {
	return in.OpenFile(name, readFlags|syscall.O_DIRECTORY, 0)
}

// noRoom reports whether a write failed because there is no room.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
