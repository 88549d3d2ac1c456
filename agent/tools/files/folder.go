package files

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/farhand/farhand/agent/sandbox"
)

// walker goes down the folders of a path.
type walker struct {
	w      sandbox.Workspace
	root   *os.Root
	create int // folders it may make; zero: none

	made []string // relative to root, in the order they were made
}

// parent opens the folder of a path. No link is followed on the way, also if somebody puts one there meanwhile. The
// caller closes the folder, which may be root itself.
func (k *walker) parent(p place) (folder *os.Root, err error) {
	if folder, err = k.root.OpenRoot("."); err != nil {
		return nil, err
	}
	for i, name := range p.folders {
		next, err := k.down(folder, place{p.folders[:i], name})
		_ = folder.Close()
		if err != nil {
			return nil, err
		}
		folder = next
	}
	return folder, nil
}

// down opens one folder in another.
func (k *walker) down(folder *os.Root, p place) (*os.Root, error) {
	before, err := folder.Lstat(p.name)
	if errors.Is(err, fs.ErrNotExist) && k.create > 0 {
		before, err = k.make(folder, p)
	}
	switch {
	case err != nil:
		return nil, err
	case before.Mode()&fs.ModeSymlink != 0:
		return nil, refuse("%q is a symbolic link. Links are not followed; give the path it leads to.", p)
	case !before.IsDir():
		return nil, refuse("%q is no folder.", p)
	}
	next, err := folder.OpenRoot(p.name)
	if err != nil {
		return nil, raced(err, p)
	}
	opened, err := next.Stat(".")
	switch {
	case err != nil:
	case !os.SameFile(before, opened):
		err = changed(p)
	case !owned(opened, k.w):
		err = foreign(p)
	default:
		return next, nil
	}
	return nil, errors.Join(err, next.Close())
}

// make makes a folder that belongs to the workspace's user.
func (k *walker) make(folder *os.Root, p place) (fs.FileInfo, error) {
	if len(k.made) == k.create {
		return nil, refuse("%q is in too many folders that are not there: one call makes at most %d.", p, k.create)
	}
	switch err := folder.Mkdir(p.name, 0o700); {
	case errors.Is(err, fs.ErrExist): // somebody else made it
		info, err := folder.Lstat(p.name)
		return info, raced(err, p)
	case err != nil:
		return nil, err
	}
	k.made = append(k.made, p.String())
	f, err := openFolder(folder, p.name)
	if err != nil {
		return nil, raced(err, p)
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = giveTo(f, k.w)
	}
	return info, err
}

// undo removes the folders that were made, as far as they are empty.
func (k *walker) undo() {
	for _, path := range slices.Backward(k.made) {
		_ = k.root.Remove(path)
	}
}

// raced says what it means that something could not be opened that was there before: it is a link now, or gone.
func raced(err error, p place) error {
	if err == nil {
		return nil
	}
	code, ofSystem := errors.AsType[syscall.Errno](err)
	if !ofSystem || code == syscall.ELOOP || code == syscall.ENOTDIR || code == syscall.ENOENT {
		return changed(p)
	}
	return err
}

func changed(p place) error {
	return refuse("%q was changed by somebody else meanwhile. Read it, and try again.", p)
}

func foreign(p place) error { return refuse("%q belongs to another user than the workspace.", p) }
