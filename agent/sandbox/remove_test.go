//go:build linux

package sandbox_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/farhand/farhand/agent/sandbox"
)

// asOwner calls f on a thread that modes keep out, as they do everybody but root.
func asOwner(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		none := [2]unix.CapUserData{}
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// nest makes folders in each other, and a file in the last one.
func nest(t *testing.T, dir string, levels int, mode uint32) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range levels {
		if err != nil {
			t.Fatal(err)
		}
		next := -1
		if err = unix.Mkdirat(fd, "d", 0o700); err == nil {
			next, err = unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		if err == nil {
			err = unix.Mkdirat(next, "beside", mode)
		}
		if err == nil {
			err = unix.Fchmod(fd, mode)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
}

// What a program made unremovable is removed, and nothing that its links lead to.
func TestRemoveAll(t *testing.T) {
	for name, levels := range map[string]int{"shallow": 3, "deeper than is entered": 250, "very deep": 1500} {
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			kept := filepath.Join(above, "kept")
			target := filepath.Join(above, "target")
			err := errors.Join(os.Mkdir(kept, 0o500), os.Mkdir(target, 0o700),
				os.WriteFile(filepath.Join(above, "file"), nil, 0o400),
				os.Symlink(kept, filepath.Join(target, "folder")),
				os.Symlink(filepath.Join(above, "file"), filepath.Join(target, "file")),
				os.Symlink(kept, filepath.Join(above, "link")))
			if err != nil {
				t.Fatal(err)
			}
			nest(t, target, levels, 0)
			in, err := os.Open(above)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			asOwner(t, func() {
				for _, name := range []string{"target", "link", "nothing"} {
					if err := sandbox.RemoveAll(in, name); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
			left, err := os.ReadDir(above)
			if err != nil || len(left) != 2 || left[0].Name() != "file" || left[1].Name() != "kept" {
				t.Errorf("left: %v, %v", left, err)
			}
			info, err := os.Lstat(kept)
			file, err2 := os.Lstat(filepath.Join(above, "file"))
			if err = errors.Join(err, err2); err != nil || info.Mode().Perm() != 0o500 || file.Mode().Perm() != 0o400 {
				t.Errorf("what links lead to: %v, %v, %v", info, file, err)
			}
		})
	}
}

// A folder that its programs locked is noted, and its owner can use it again.
func TestLockedFolders(t *testing.T) {
	dir := t.TempDir()
	w := sandbox.Workspace{Dir: filepath.Join(dir, "files"), MaxBytes: 1 << 20, MaxFiles: 10}
	if err := errors.Join(os.Mkdir(w.Dir, 0o700), os.Mkdir(filepath.Join(w.Dir, "locked"), 0)); err != nil {
		t.Fatal(err)
	}
	asOwner(t, func() {
		for range 2 { // first a folder in it, then itself
			used, err := sandbox.Measure(w, nil)
			if err != nil || !errors.Is(used.Unseen, fs.ErrPermission) || !errors.Is(used.Full(w), sandbox.ErrFull) {
				t.Errorf("%+v, %v", used, err)
			}
			if err := os.Chmod(w.Dir, 0); err != nil {
				t.Error(err)
			}
		}
		if err := sandbox.Unlock(w.Dir); err != nil {
			t.Error(err)
		}
		if err := os.Remove(filepath.Join(w.Dir, "locked")); err != nil {
			t.Error(err)
		}
		used, err := sandbox.Measure(w, nil)
		if err != nil || used.Unseen != nil || used.Files != 1 {
			t.Errorf("%+v, %v", used, err)
		}
	})
}

// What is not there any more is an error of its own kind, and so is a look that was stopped.
func TestMeasureEndsEarly(t *testing.T) {
	w := sandbox.Workspace{Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(w.Dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	close(stopped)
	if used, err := sandbox.Measure(w, stopped); err == nil {
		t.Errorf("stopped: %+v", used)
	}
	w.Dir = filepath.Join(w.Dir, "nothing")
	if used, err := sandbox.Measure(w, nil); !errors.Is(err, fs.ErrNotExist) || used.Unseen != nil {
		t.Errorf("gone: %+v, %v", used, err)
	}
}
