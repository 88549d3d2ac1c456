package workspace_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// One tenant fills workspace after workspace. It leaves as much free as it holds, so another one still finds room, and
// goes on when it removes something. What was there before the gateway started counts, too.
func TestTheDiskIsShared(t *testing.T) {
	t.Parallel()
	const size, full = 16 << 20, 1 << 20
	dir := t.TempDir()
	var others atomic.Int64 // bytes of others on the disk
	free := func(sandbox.Workspace) (sandbox.DiskSpace, error) {
		var sum int64
		err := filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				info, err := e.Info()
				if err == nil {
					sum += info.Size()
				}
			}
			return nil
		})
		return sandbox.DiskSpace{Bytes: size - sum - others.Load()}, err
	}
	start := func() *workspace.Workspaces {
		return open(t, func(c *workspace.Config) { c.Dir, c.MaxBytes, c.MinFree, c.Free = dir, 2*full, 1, free })
	}
	w := start()
	fill := func(tenant, conversation string) (sandbox.Workspace, error) {
		id := agent.SessionID{Tenant: tenant, Conversation: conversation, Generation: 1}
		space, err := w.Find(id, registry.Place{}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e := w.Limited(acts{act: func(s sandbox.Workspace, c sandbox.Command) error {
			if c.Limits.FileSize == 1 {
				return errors.Join(os.RemoveAll(filepath.Join(s.Dir, "f")), errDone)
			}
			text := []byte(strings.Repeat("x", full))
			return errors.Join(os.WriteFile(filepath.Join(s.Dir, "f"), text, 0o600), errDone)
		}})
		_, err = e.Run(t.Context(), space, sandbox.Command{})
		return space, err
	}
	filled := func(tenant string) (n int) {
		for range 20 {
			space, err := fill(tenant, fmt.Sprint(tenant, n))
			if err != nil && !errors.Is(err, errDone) {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(space.Dir, "f")); err != nil {
				return n
			}
			n++
		}
		return n
	}
	if n := filled("greedy"); n < 6 || n > 9 {
		t.Errorf("a tenant has %d of 16 MiB", n)
	}
	if n := filled("modest"); n < 2 {
		t.Errorf("another one has %d MiB of the rest", n)
	}
	w.Close()
	w = start()
	testkit.Eventually(t, "what was there before counts", func() bool {
		space, _ := fill("greedy", "new")
		_, err := os.Stat(filepath.Join(space.Dir, "f"))
		return err != nil
	})
	if _, err := fill("third", "one"); err != nil && !errors.Is(err, errDone) {
		t.Errorf("a third tenant: %v", err)
	}
}

// The files of a disk run out, too, where it has a fixed number of them.
func TestTheFilesOfTheDiskAreShared(t *testing.T) {
	t.Parallel()
	free := sandbox.DiskSpace{Bytes: 1 << 40, Files: 1000}
	w := open(t, func(c *workspace.Config) {
		c.MaxFiles, c.Free = 100, func(sandbox.Workspace) (sandbox.DiskSpace, error) { return free, nil }
	})
	add := func(tenant, conversation string) error {
		id := agent.SessionID{Tenant: tenant, Conversation: conversation}
		space, err := w.Find(id, registry.Place{}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = sandbox.Usage{Files: 90}.OverShare(space, 0)
		if err == nil {
			if err := os.MkdirAll(filepath.Join(space.Dir, strings.Repeat("d/", 88)), 0o700); err != nil {
				t.Fatal(err)
			}
			free.Files -= 90
		}
		return err
	}
	n := 0
	for n < 20 && add("greedy", fmt.Sprint(n)) == nil {
		n++
	}
	if n < 4 || n > 7 {
		t.Errorf("a tenant has %d times 90 of 1000 files", n)
	}
	for i := range 2 {
		if err := add("modest", fmt.Sprint(i)); err != nil {
			t.Errorf("another one: %v", err)
		}
	}
}

// A command that runs while another workspace of its tenant is used counts with what it has written when it ends.
func TestCommandsBesideEachOtherCount(t *testing.T) {
	t.Parallel()
	w := open(t, func(c *workspace.Config) {
		c.MaxBytes, c.MinFree = 1<<20, 1
		c.Free = func(sandbox.Workspace) (sandbox.DiskSpace, error) { return sandbox.DiskSpace{Bytes: 3 << 19}, nil }
	})
	var full bool
	run := func(conversation string, during func()) {
		t.Helper()
		id := agent.SessionID{Tenant: "greedy", Conversation: conversation}
		space, err := w.Find(id, registry.Place{}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e := w.Limited(acts{act: func(s sandbox.Workspace, c sandbox.Command) error {
			during()
			full = c.Limits.FileSize == 1
			if full {
				return errDone
			}
			err := os.WriteFile(filepath.Join(s.Dir, "f"), make([]byte, 900<<10), 0o600)
			if err != nil {
				return err
			}
			return errDone
		}})
		if _, err := e.Run(t.Context(), space, sandbox.Command{}); err != nil {
			t.Fatal(err)
		}
	}
	idle := func() {
		id := agent.SessionID{Tenant: "greedy", Conversation: "idle"}
		space, err := w.Find(id, registry.Place{}).Open(t.Context())
		if err == nil {
			err = sandbox.Usage{Files: 1}.OverShare(space, 0)
		}
		if err != nil {
			t.Error(err)
		}
	}
	run("first", idle)
	run("second", idle)
	if run("third", func() {}); !full {
		t.Error("1,800 KiB of a tenant leave 1,536 KiB free, and it may write")
	}
}
