package files

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/registry/legible"
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

const (
	maxPath = 4095 // bytes, of Linux and of most others
	maxName = 255

	// tempPrefix begins the names of files that are being written. Nobody else may use them.
	tempPrefix = ".farhand-"
)

// place is a path that may be looked for in a workspace.
type place struct {
	folders []string
	name    string
}

// String returns the path in its shortest form.
func (p place) String() string {
	return strings.Join(append(p.folders[:len(p.folders):len(p.folders)], p.name), "/")
}

// parsePath says what a path means. It takes plain relative paths only: what else a path may be written as is one more
// way to mean another file than the one that a person was shown.
func parsePath(path string) (p place, err error) {
	switch {
	case path == "":
		return p, refuse("The path is empty. Give one relative to the workspace, as notes/today.md.")
	case len(path) > maxPath:
		return p, refuse("The path has %d bytes; at most %d are possible.", len(path), maxPath)
	case !utf8.ValidString(path), strings.ContainsFunc(path, unicode.IsControl), legible.Hides(path):
		return p, refuse("The path has characters that nobody sees, such as controls. Use visible ones.")
	case strings.Contains(path, `\`):
		return p, refuse(`The path has a backslash. Folders are separated by "/".`)
	case path[0] == '/':
		return p, refuse("The path %q is absolute. Give one relative to the workspace, as notes/today.md.", path)
	case path == "~" || strings.HasPrefix(path, "~/"):
		return p, refuse("There is no home folder here. Give a path relative to the workspace, as notes/today.md.")
	case strings.HasSuffix(path, "/"):
		return p, refuse("The path %q is that of a folder. Give that of a file.", path)
	}
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "" || name == ".":
		case name == "..":
			return p, refuse("The path %q leads upwards. Write it without \"..\".", path)
		case len(name) > maxName:
			return p, refuse("The path has a name of %d bytes; at most %d are possible.", len(name), maxName)
		case len(name) >= len(tempPrefix) && strings.EqualFold(name[:len(tempPrefix)], tempPrefix):
			return p, refuse("Names that begin with %q are the gateway's own.", tempPrefix)
		default:
			p.folders = append(p.folders, name)
		}
	}
	last := len(p.folders) - 1
	if last < 0 || strings.HasSuffix(path, "/.") {
		return p, refuse("The path %q is that of a folder. Give that of a file.", path)
	}
	p.folders, p.name = p.folders[:last], p.folders[last]
	return p, nil
}
