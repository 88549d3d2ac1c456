package files

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
)

const (
	// staleAfter is the age of a file that nobody is writing any more: whoever began it was killed.
	staleAfter = 5 * time.Minute
	// maxSwept bounds how many names of a folder are looked at for such files.
	maxSwept = 4096
)

// replace puts a file with this content in the place of what was there: was, or nothing. Whoever reads the file
// meanwhile reads the one or the other, also after a crash.
func replace(
	ctx context.Context, folder *os.Root, p place, w sandbox.Workspace, content []byte, was fs.FileInfo,
) (err error) {
	sweep(folder)
	if err := roomFor(ctx, w, int64(len(content)), was); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if was != nil {
		mode = was.Mode().Perm()
	}
	temp := tempPrefix + strings.ToLower(rand.Text()) + ".tmp"
	if err := fill(folder, temp, w, content, mode); err != nil {
		return errors.Join(err, removed(folder, temp))
	}
	if err = context.Cause(ctx); err == nil {
		err = unchanged(folder, p, was)
	}
	if err == nil {
		err = folder.Rename(temp, p.name)
	}
	if err != nil {
		return errors.Join(err, removed(folder, temp))
	}
	return nil
}

// fill writes a new file to the disk.
func fill(folder *os.Root, name string, w sandbox.Workspace, content []byte, mode fs.FileMode) error {
	f, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = giveTo(f, w)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func removed(folder *os.Root, name string) error {
	if err := folder.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unchanged refuses to replace what is not there any more as it was looked at.
func unchanged(folder *os.Root, p place, was fs.FileInfo) error {
	now, err := folder.Lstat(p.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if was != nil {
			return changed(p)
		}
		return nil
	case err != nil:
		return err
	case was == nil, !os.SameFile(was, now), !was.ModTime().Equal(now.ModTime()), was.Size() != now.Size():
		return changed(p)
	}
	return nil
}

// sweep removes what a pod that was killed had begun to write in a folder.
func sweep(folder *os.Root) {
	f, err := folder.Open(".")
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // it was only read
	entries, _ := f.ReadDir(maxSwept)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) || !e.Type().IsRegular() {
			continue
		}
		if info, err := folder.Lstat(e.Name()); err == nil && time.Since(info.ModTime()) > staleAfter {
			_ = folder.Remove(e.Name())
		}
	}
}
