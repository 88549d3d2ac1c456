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

// walker descends the folders of a path.
type walker struct {
	w      sandbox.Workspace
	root   *os.Root
	create int // maximum number of folders to create; zero: none

	made []string // relative to root, in order of creation
}

// parent opens the folder of a path. It follows no link, not even one that is created meanwhile. The caller closes the
// folder.
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

// down opens a folder inside another. It creates it if needed and permitted.
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

// make creates a folder owned by the workspace's user.
func (k *walker) make(folder *os.Root, p place) (fs.FileInfo, error) {
	if len(k.made) == k.create {
		return nil, refuse("%q is in too many folders that are not there: one call makes at most %d.", p, k.create)
	}
	switch err := folder.Mkdir(p.name, 0o700); {
	case errors.Is(err, fs.ErrExist): // it was created concurrently
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

// undo removes the created folders that are empty.
func (k *walker) undo() {
	for _, path := range slices.Backward(k.made) {
		_ = k.root.Remove(path)
	}
}

// raced converts the error of an open after a successful check: the file was replaced by a link, or removed.
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
	maxPath = 4095 // bytes; the limit of Linux and most other systems
	maxName = 255

	// tempPrefix is the name prefix of temporary files. Callers may not use such names.
	tempPrefix = ".farhand-"
)

// place is a valid path in a workspace.
type place struct {
	folders []string
	name    string
}

// String returns the normalized path.
func (p place) String() string {
	return strings.Join(append(p.folders[:len(p.folders):len(p.folders)], p.name), "/")
}

// parsePath parses and checks a path. It accepts only plain relative paths, because any other form could name a
// different file than the one shown to a person for approval.
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
