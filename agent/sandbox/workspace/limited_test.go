package workspace_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// acts is an engine whose command is a function. What that returns is the command's end; nil: it runs until it is
// ended, or as long as lasts says.
type acts struct {
	sandbox.Engine
	act   func(w sandbox.Workspace, c sandbox.Command) error
	lasts time.Duration
}

var errDone = errors.New("the command has ended by itself")

func (e acts) Run(ctx context.Context, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	switch err := e.act(w, c); err {
	case nil:
	case errDone:
		return sandbox.Exit{}, nil
	default:
		return sandbox.Exit{}, err
	}
	select {
	case <-ctx.Done():
		return sandbox.Exit{}, context.Cause(ctx)
	case <-time.After(cmp.Or(e.lasts, 5*testkit.Limit)):
		return sandbox.Exit{}, nil
	}
}

// small returns workspaces that hold 2 MiB in 50 files, and one of them.
func small(t *testing.T, change ...func(*workspace.Config)) (*workspace.Workspaces, sandbox.Workspace) {
	t.Helper()
	w := open(t, append([]func(*workspace.Config){func(c *workspace.Config) {
		c.MaxBytes, c.MaxFiles, c.MinFree = 2<<20, 50, 1
	}}, change...)...)
	space, err := w.Find(agent.SessionID{Tenant: "t"}, registry.Place{}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w, space
}

// deep makes folders in each other, each by a name that is this long, and returns a descriptor of the last one.
func deep(dir string, levels, name int) (int, error) {
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range levels {
		if err != nil {
			return -1, err
		}
		next := -1
		if err = unix.Mkdirat(fd, strings.Repeat("d", name), 0o700); err == nil {
			next, err = unix.Openat(fd, strings.Repeat("d", name), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		_ = unix.Close(fd)
		fd = next
	}
	return fd, err
}

// writeDeep writes a file at the end of such folders.
func writeDeep(dir string, levels, name, size int) error {
	fd, err := deep(dir, levels, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	file, err := unix.Openat(fd, "f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(file), "f")
	_, err = f.Write(make([]byte, size))
	return errors.Join(err, f.Close())
}

func write(dir, name string, size int) error {
	return os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600)
}

// A command that takes more than its workspace may is ended, however it hides that, and the error names the limit.
func TestFullWorkspaceEndsTheCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		act  func(w sandbox.Workspace, c sandbox.Command) error
		says string // part of the error; empty: it is not ended
	}{
		"bytes": {func(w sandbox.Workspace, _ sandbox.Command) error { return write(w.Dir, "f", 3<<20) }, "2048 KiB"},
		"files": {func(w sandbox.Workspace, _ sandbox.Command) (err error) {
			for i := range 60 {
				err = errors.Join(err, write(w.Dir, fmt.Sprint(i), 0))
			}
			return err
		}, "at most 50 are allowed"},
		"a long path": {func(w sandbox.Workspace, _ sandbox.Command) error {
			return writeDeep(w.Dir, 20, 255, 3<<20)
		}, "2048 KiB"},
		"many long paths": {func(w sandbox.Workspace, _ sandbox.Command) (err error) {
			for i := range 3 {
				dir := filepath.Join(w.Dir, fmt.Sprint(i))
				err = errors.Join(err, os.Mkdir(dir, 0o700), writeDeep(dir, 20, 255, 0))
			}
			return err
		}, "at most 50 are allowed"},
		"little": {func(w sandbox.Workspace, _ sandbox.Command) error { return write(w.Dir, "f", 1<<20) }, ""},
		"one file is bounded": {func(w sandbox.Workspace, c sandbox.Command) error {
			if c.Limits.FileSize != w.MaxBytes {
				return fmt.Errorf("one file may have %d bytes", c.Limits.FileSize)
			}
			return nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // which makes the command's minutes short
				w, space := small(t)
				_, err := w.Limited(acts{act: tt.act}).Run(t.Context(), space, sandbox.Command{})
				if tt.says == "" && err != nil || tt.says != "" &&
					(!errors.Is(err, sandbox.ErrFull) || !strings.Contains(err.Error(), tt.says)) {
					t.Error(err)
				}
			})
		})
	}
}

// Folders nested deeper than are counted may hold anything.
func TestTooDeepIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, space := small(t, func(c *workspace.Config) { c.MaxFiles = 1000 })
		engine := w.Limited(acts{act: func(w sandbox.Workspace, _ sandbox.Command) error {
			return writeDeep(w.Dir, 300, 1, 0)
		}})
		_, err := engine.Run(t.Context(), space, sandbox.Command{})
		if !errors.Is(err, sandbox.ErrFull) || !strings.Contains(err.Error(), "nested deeper than 100") {
			t.Error(err)
		}
	})
}

// A command that finds its workspace full can remove files and write none. There is one at a time, and after one that
// added something none for a minute. Whatever a command did to the workspace, the next one may clean it.
func TestFullWorkspaceIsCleaned(t *testing.T) {
	for name, fill := range map[string]func(w sandbox.Workspace) error{
		"bytes":       func(w sandbox.Workspace) error { return write(w.Dir, "f", 3<<20) },
		"a long path": func(w sandbox.Workspace) error { return writeDeep(w.Dir, 20, 255, 3<<20) },
		"too deep":    func(w sandbox.Workspace) error { return writeDeep(w.Dir, 300, 1, 0) },
		"many files": func(w sandbox.Workspace) (err error) {
			for i := range 200 {
				err = errors.Join(err, write(w.Dir, fmt.Sprint(i), 0))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, space := small(t)
				if err := fill(space); err != nil {
					t.Fatal(err)
				}
				begun, end := make(chan struct{}), make(chan struct{})
				first := make(chan error, 1)
				go func() {
					_, err := w.Limited(acts{act: func(sandbox.Workspace, sandbox.Command) error {
						close(begun)
						<-end
						return errors.Join(write(space.Dir, "more", 200<<10), errDone)
					}}).Run(t.Context(), space, sandbox.Command{})
					first <- err
				}()
				select {
				case <-begun:
				case err := <-first:
					t.Fatalf("the command that cleans: %v", err)
				}
				refused := func(says string) {
					t.Helper()
					_, err := w.Limited(acts{act: func(sandbox.Workspace, sandbox.Command) error {
						return errors.New("the command ran")
					}}).Run(t.Context(), space, sandbox.Command{})
					if !errors.Is(err, sandbox.ErrFull) || !strings.Contains(err.Error(), says) {
						t.Error(err)
					}
				}
				refused("wait for it")
				close(end)
				<-first
				refused("the next command may run in 1m0s")
				time.Sleep(time.Minute)

				var said bytes.Buffer
				_, err := w.Limited(acts{act: func(_ sandbox.Workspace, c sandbox.Command) error {
					if c.Limits.FileSize != 1 {
						t.Errorf("it may write %d bytes into a file", c.Limits.FileSize)
					}
					if err := clear(space.Dir); err != nil {
						return err
					}
					return errDone
				}}).Run(t.Context(), space, sandbox.Command{Stderr: &said})
				if err != nil || !strings.Contains(said.String(), "the workspace is full") {
					t.Errorf("%v, %q", err, said.String())
				}
				if _, err := w.Limited(acts{act: func(_ sandbox.Workspace, c sandbox.Command) error {
					if c.Limits.FileSize != space.MaxBytes {
						return errors.New("it cannot write")
					}
					return errDone
				}}).Run(t.Context(), space, sandbox.Command{}); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

// A command that makes room cannot fill the disk with empty files where they are not counted.
func TestFilesThatNobodySeesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, space := small(t)
		if free, err := sandbox.Free(space); err != nil || free.Files == 0 {
			t.Skipf("this file system does not say how many files it has room for: %v", err)
		}
		fd, err := deep(space.Dir, 300, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		engine := w.Limited(acts{act: func(sandbox.Workspace, sandbox.Command) error {
			for i := range 30_000 {
				file, err := unix.Openat(fd, fmt.Sprint(i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
				if err = errors.Join(err, unix.Close(file)); err != nil {
					return err
				}
			}
			return nil
		}})
		_, err = engine.Run(t.Context(), space, sandbox.Command{})
		if !errors.Is(err, sandbox.ErrFull) || !strings.Contains(err.Error(), "files meanwhile") {
			t.Error(err)
		}
	})
}

// Making room may take a little room itself. What commands add that way is counted together.
func TestCleaningMayAddALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, space := small(t)
		if err := write(space.Dir, "f", 3<<20); err != nil {
			t.Fatal(err)
		}
		add := func(name string) error {
			_, err := w.Limited(acts{lasts: 2 * time.Second, act: func(sandbox.Workspace, sandbox.Command) error {
				return write(space.Dir, name, 16<<10)
			}}).Run(t.Context(), space, sandbox.Command{})
			return err
		}
		for i := range 5 {
			if err := add(fmt.Sprint(i)); err != nil {
				t.Errorf("command %d: %v", i, err)
			}
		}
		if err := add("late"); !errors.Is(err, sandbox.ErrFull) || !strings.Contains(err.Error(), "may run in") {
			t.Errorf("when five have added more than may be added: %v", err)
		}
	})
}

// clear removes what is in a folder.
func clear(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	in, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer in.Close()
	for _, n := range names {
		err = errors.Join(err, sandbox.RemoveAll(in, n.Name()))
	}
	return err
}

// On a disk without room commands cannot write, and those that only read go on.
func TestDiskWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, space := small(t, func(c *workspace.Config) { c.MinFree = 1 << 60 })
		var said bytes.Buffer
		_, err := w.Limited(acts{act: func(_ sandbox.Workspace, c sandbox.Command) error {
			time.Sleep(10 * time.Second)
			if c.Limits.FileSize != 1 {
				t.Errorf("it may write %d bytes into a file", c.Limits.FileSize)
			}
			return errDone
		}}).Run(t.Context(), space, sandbox.Command{Stderr: &said})
		if err != nil || !strings.Contains(said.String(), "the gateway's disk") {
			t.Errorf("%v, %q", err, said.String())
		}
	})
}
