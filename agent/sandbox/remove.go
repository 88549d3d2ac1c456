//go:build linux || darwin

package sandbox

import (
	"crypto/rand"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxPasses is the maximum number of times a folder is read while it is emptied. More than two are only needed if a
// program still writes to it.
const maxPasses = 8

// RemoveAll removes a file, or a folder with its content, from the folder in. Programs cannot prevent that, neither by
// the modes of folders nor by paths that are too long for the kernel. It works by descriptors and follows no link, not
// even one that is created meanwhile. A missing file is not an error.
func RemoveAll(in *os.File, name string) error {
	fd := int(in.Fd())
	if gone, err := unlink(fd, name); gone || err != nil {
		return err
	}
	top, err := enter(fd, name)
	if err != nil {
		return gone(err)
	}
	r := remover{top: top}
	err = r.removeContent(top, 0)
	for err == nil && r.moved {
		r.moved = false
		err = r.removeContent(top, 0)
	}
	_ = unix.Close(top)
	if err != nil {
		return err
	}
	return gone(unix.Unlinkat(fd, name, unix.AT_REMOVEDIR))
}

// remover empties a folder. It descends to maxDepth, and moves deeper folders to the top, so that it needs few
// descriptors.
type remover struct {
	top   int
	moved bool // a folder was moved to the top since the last pass
}

// removeContent removes the content of a folder. It rereads the folder until it is empty, because some file systems
// skip names while others are removed.
func (r *remover) removeContent(fd, depth int) error {
	for range maxPasses {
		found, err := r.pass(fd, depth)
		if err != nil || !found {
			return err
		}
	}
	return nil
}

// pass removes the entries of one reading of a folder, and reports whether there were any.
func (r *remover) pass(fd, depth int) (found bool, err error) {
	again, err := openFolder(fd, ".") // a new descriptor, positioned at the start
	if err != nil {
		return false, gone(err)
	}
	f := os.NewFile(uintptr(again), "a folder to remove")
	defer f.Close() //nolint:errcheck // it was only read
	for {
		names, err := f.Readdirnames(readStep)
		for _, name := range names {
			found = true
			if err := r.remove(fd, name, depth); err != nil {
				return found, err
			}
		}
		switch {
		case err == io.EOF || errors.Is(err, unix.ENOENT):
			return found, nil
		case err != nil:
			return found, err
		}
	}
}

// remove removes one entry of a folder.
func (r *remover) remove(in int, name string, depth int) error {
	if gone, err := unlink(in, name); gone || err != nil {
		return err
	}
	if depth == maxDepth {
		return r.lift(in, name)
	}
	fd, err := enter(in, name)
	if err != nil {
		return gone(err)
	}
	err = r.removeContent(fd, depth+1)
	_ = unix.Close(fd)
	if err != nil {
		return err
	}
	return gone(unix.Unlinkat(in, name, unix.AT_REMOVEDIR))
}

// lift moves a folder to the top.
func (r *remover) lift(in int, name string) error {
	_ = unlock(in, name) // otherwise it cannot be moved
	r.moved = true
	return gone(unix.Renameat(in, name, r.top, rand.Text()))
}

// unlink removes a file or an empty folder. It returns true if the name no longer exists.
func unlink(in int, name string) (bool, error) {
	err := retry(func() error { return unix.Unlinkat(in, name, 0) })
	if err == unix.EISDIR || err == unix.EPERM { // POSIX has EPERM for folders
		err = retry(func() error { return unix.Unlinkat(in, name, unix.AT_REMOVEDIR) })
	}
	switch err {
	case nil, unix.ENOENT:
		return true, nil
	case unix.ENOTEMPTY, unix.EEXIST:
		return false, nil
	}
	return false, err
}

// enter opens a folder, after giving its owner the rights to remove its content.
func enter(in int, name string) (int, error) {
	fd, err := openFolder(in, name)
	if err == unix.EACCES {
		_ = unlock(in, name)
		fd, err = openFolder(in, name)
	}
	if err == nil {
		_ = unix.Fchmod(fd, 0o700) // if it fails, the removal reports why
	}
	return fd, err
}

// gone returns nil if the error means that there is nothing to remove.
func gone(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// Unlock lets the owner of a workspace's folder read and change it again, regardless of its current mode.
func Unlock(dir string) error { return unlock(unix.AT_FDCWD, dir) }
