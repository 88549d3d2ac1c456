package files

import (
	"io/fs"
	"os"

	"github.com/farhand/farhand/agent/sandbox"
)

// openRegular opens a file for reading. What is no regular file is not opened at all, or, if somebody puts it there
// meanwhile, opened without waiting and closed again.
func openRegular(folder *os.Root, p place, w sandbox.Workspace) (*os.File, fs.FileInfo, error) {
	before, err := regular(folder, p, w)
	if err != nil {
		return nil, nil, err
	}
	f, err := folder.OpenFile(p.name, readFlags, 0)
	if err != nil {
		return nil, nil, raced(err, p)
	}
	opened, err := f.Stat()
	if err == nil {
		err = checkRegular(opened, p, w)
	}
	if err == nil && !os.SameFile(before, opened) {
		err = changed(p)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, opened, nil
}

// regular looks at a file without opening it.
func regular(folder *os.Root, p place, w sandbox.Workspace) (fs.FileInfo, error) {
	info, err := folder.Lstat(p.name)
	if err == nil {
		err = checkRegular(info, p, w)
	}
	return info, err
}

// checkRegular refuses everything but a regular file with one name that belongs to the workspace.
func checkRegular(info fs.FileInfo, p place, w sandbox.Workspace) error {
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return refuse("%q is a symbolic link. Links are not followed; give the path it leads to.", p)
	case mode.IsDir():
		return refuse("%q is a folder. Give the path of a file.", p)
	case !mode.IsRegular():
		return refuse("%q is no regular file, but a device, a pipe or a socket.", p)
	case names(info) != 1:
		return refuse("%q is a file with several names (hard links), one of which may be outside. Copy it first.", p)
	case !owned(info, w):
		return foreign(p)
	}
	return nil
}
