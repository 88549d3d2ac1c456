//go:build linux || darwin

package sandbox

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const blockSize = 512 // unit of Stat_t.Blocks, regardless of the disk's block size

// folderFlags open a folder, never through a link, and without blocking if another file has taken its place.
const folderFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

var errStopped = errors.New("sandbox: stopped")

// Free returns the free space of a workspace's disk.
func Free(w Workspace) (DiskSpace, error) {
	disk, err := diskOf(w.Dir)
	return DiskSpace{Bytes: int64(disk.Bavail) * int64(disk.Bsize), Files: int64(disk.Ffree)}, err
}

// Disk returns the free bytes and the size of a folder's disk.
func Disk(dir string) (free, size int64, err error) {
	disk, err := diskOf(dir)
	return int64(disk.Bavail) * int64(disk.Bsize), int64(disk.Blocks) * int64(disk.Bsize), err
}

func diskOf(dir string) (disk unix.Statfs_t, err error) {
	err = retry(func() error { return unix.Statfs(dir, &disk) })
	return disk, err
}

// Measure returns the usage of a workspace. It walks folders by descriptor and follows no link, so long paths and
// concurrent renames cannot mislead it. Files that are removed or moved meanwhile are counted by the next call.
// Anything else that it cannot count is reported in Unseen. It counts at most 2*MaxFiles files, and uses a few hundred
// kilobytes of memory. A file with several names counts several times. It only returns an error if done was closed or
// the workspace is gone.
func Measure(w Workspace, done <-chan struct{}) (Usage, error) {
	m := measurer{done: done, most: 2 * w.MaxFiles}
	m.usage.Files = 1 // the workspace itself
	fd, err := openFolder(unix.AT_FDCWD, w.Dir)
	switch {
	case err == nil:
		err = m.folder(fd, 0)
	case !errors.Is(err, unix.ENOENT):
		m.unseen(err)
		err = nil
	}
	if err == errTooMany {
		m.unseen(err)
		err = nil
	}
	return m.usage, err
}

type measurer struct {
	done  <-chan struct{}
	most  int // files; zero: no limit
	usage Usage
}

func (m *measurer) unseen(err error) {
	if m.usage.Unseen == nil {
		m.usage.Unseen = err
	}
}

// folder counts the content of a folder, and closes it. An error aborts the measurement.
func (m *measurer) folder(fd, depth int) error {
	f := os.NewFile(uintptr(fd), "a folder of the workspace")
	defer f.Close() //nolint:errcheck // it was only read
	for {
		names, err := f.Readdirnames(readStep)
		for _, name := range names {
			if err := m.entry(fd, name, depth); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF || errors.Is(err, unix.ENOENT): // the end, or the folder was removed
			return nil
		case err != nil:
			m.unseen(err)
			return nil
		}
	}
}

// entry counts a file, or a folder with its content.
func (m *measurer) entry(in int, name string, depth int) error {
	select {
	case <-m.done:
		return errStopped
	default:
	}
	var stat unix.Stat_t
	err := retry(func() error { return unix.Fstatat(in, name, &stat, unix.AT_SYMLINK_NOFOLLOW) })
	if err == unix.ENOENT {
		return nil
	}
	if m.usage.Files++; m.most > 0 && m.usage.Files > m.most {
		return errTooMany
	}
	if err != nil {
		m.unseen(err)
		return nil
	}
	m.usage.Bytes += stat.Blocks * blockSize
	if uint32(stat.Mode)&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	if depth == maxDepth {
		m.unseen(errTooDeep)
		return nil
	}
	fd, err := openFolder(in, name)
	switch err {
	case nil:
		return m.folder(fd, depth+1)
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP: // gone, or replaced by another file
	default:
		m.unseen(err)
	}
	return nil
}

// openFolder opens a folder inside another. It fails if name is a link.
func openFolder(in int, name string) (fd int, err error) {
	err = retry(func() error { fd, err = unix.Openat(in, name, folderFlags, 0); return err })
	return fd, err
}

// retry calls f again as long as a signal interrupts it (EINTR).
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
