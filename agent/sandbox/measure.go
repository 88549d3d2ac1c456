//go:build linux || darwin

package sandbox

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// blockSize is the unit of Stat_t.Blocks, whatever the disk's own blocks are.
const blockSize = 512

var errStopped = errors.New("sandbox: stopped")

// Measure returns what a workspace takes. It looks at twice MaxFiles files at most, and stops when done is closed. It
// follows no link, so that a program that changes the folder meanwhile only changes what is counted. A file with
// several names counts several times.
func Measure(w Workspace, done <-chan struct{}) (u Usage, err error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(w.Dir, &disk); err != nil {
		return u, err
	}
	u.Free = int64(disk.Bavail) * int64(disk.Bsize)
	err = filepath.WalkDir(w.Dir, func(_ string, e fs.DirEntry, err error) error {
		select {
		case <-done:
			return errStopped
		default:
		}
		if err != nil {
			u.Locked = u.Locked || errors.Is(err, fs.ErrPermission)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return nil
			}
			return err
		}
		if u.Files++; w.MaxFiles > 0 && u.Files > 2*w.MaxFiles {
			return fs.SkipAll
		}
		info, err := e.Info()
		if err != nil {
			return nil // it was removed meanwhile
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			u.Bytes += stat.Blocks * blockSize
		}
		return nil
	})
	return u, err
}
