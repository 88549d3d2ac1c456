package workspace_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns the workspaces of a folder that others may pass through, as programs of another user do.
func open(t *testing.T, change ...func(*workspace.Config)) *workspace.Workspaces {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "workspaces")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	cfg := workspace.Config{Dir: filepath.Join(dir, "w")}
	for _, c := range change {
		c(&cfg)
	}
	w, err := workspace.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestEachSessionHasItsOwn(t *testing.T) {
	w := open(t)
	seen := make(map[string]agent.SessionID)
	for _, id := range []agent.SessionID{
		{Tenant: "t", Conversation: "phone"}, {Tenant: "t", Conversation: "phone", Sandboxed: true},
		{Tenant: "t", Identity: "phone"}, {Tenant: "u", Conversation: "phone"}, {Tenant: "t"},
		{Tenant: `t""phone`}, {Tenant: "t", Conversation: "../../etc"},
	} {
		space, err := w.Find(id, registry.Place{}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := seen[space.Dir]; taken {
			t.Errorf("%+v has the workspace of %+v", id, other)
		}
		seen[space.Dir] = id
		again, err := w.Find(id, registry.Place{}).Open(t.Context())
		if err != nil || again != space {
			t.Errorf("opened again: %+v, %v", again, err)
		}
		info, err := os.Lstat(space.Dir)
		if err != nil || info.Mode() != fs.ModeDir|0o700 || filepath.Base(filepath.Dir(space.Dir)) != space.ID {
			t.Errorf("%s: %v, %v", space.Dir, info, err)
		}
		if os.Getuid() == 0 && space.UID != workspace.DefaultUser || os.Getuid() != 0 && space.UID != os.Getuid() {
			t.Errorf("programs run as %d", space.UID)
		}
	}
}

// Pods that share the folder find the same workspaces; another gateway's names are others.
func TestNamesNeedTheKey(t *testing.T) {
	dir := t.TempDir()
	names := make(chan string, 8)
	for range cap(names) {
		go func() {
			w, err := workspace.New(workspace.Config{Dir: dir})
			if err != nil {
				t.Error(err)
				names <- ""
				return
			}
			defer w.Close()
			space, err := w.Find(agent.SessionID{Tenant: "t"}, registry.Place{}).Open(context.Background())
			if err != nil {
				t.Error(err)
			}
			names <- space.ID
		}()
	}
	first := <-names
	for range cap(names) - 1 {
		if name := <-names; name != first {
			t.Errorf("%s and %s", name, first)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "key")); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	other, err := open(t).Find(agent.SessionID{Tenant: "t"}, registry.Place{}).Open(t.Context())
	if err != nil || other.ID == first {
		t.Errorf("another gateway's: %s, %v", other.ID, err)
	}
}

func TestManyOpenOneAtOnce(t *testing.T) {
	w := open(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := w.Find(agent.SessionID{Tenant: "t"}, registry.Place{}).Open(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestRefusesBadConfig(t *testing.T) {
	for _, cfg := range []workspace.Config{{Dir: "here"}, {Dir: t.TempDir(), AgentID: "../x"}} {
		if _, err := workspace.New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// What nobody uses goes, whatever its programs did to it; what is in use stays.
func TestOldWorkspacesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(c *workspace.Config) { c.TTL = 20 * time.Minute })
		old, err := w.Find(agent.SessionID{Tenant: "old"}, registry.Place{}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		locked := filepath.Join(old.Dir, "locked")
		if err := errors.Join(os.Mkdir(locked, 0o700), os.WriteFile(filepath.Join(locked, "f"), nil, 0o600),
			os.Chmod(locked, 0),
			os.Chtimes(old.Dir, time.Now().Add(time.Hour), time.Now().Add(time.Hour))); err != nil {
			t.Fatal(err)
		}
		// The bubble's time is long past for the disk, so the time of the folder is set as Open would.
		used := filepath.Dir(old.Dir)
		if err := os.Chtimes(used, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Minute)
		young, err := w.Find(agent.SessionID{Tenant: "young"}, registry.Place{}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if _, err := os.Lstat(used); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the old one is there: %v", err)
		}
		if _, err := os.Lstat(young.Dir); err != nil {
			t.Error(err)
		}
	})
}

// What an erased conversation has left is not there for the next one under its id, and is removed: when its pod hears
// of it, or when it starts.
func TestEarlierGenerationsGo(t *testing.T) {
	key := registry.Key{Tenant: "t", Session: "phone"}
	of := func(w *workspace.Workspaces, generation int64) string {
		t.Helper()
		id := agent.SessionID{Tenant: "t", Conversation: "phone", Generation: generation}
		space, err := w.Find(id, registry.Place{Generation: generation, Epoch: 1}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return space.Dir
	}
	asked := make(chan []registry.Key, 1)
	var dir string
	w := open(t, func(c *workspace.Config) { dir = c.Dir })
	first, second := of(w, 1), of(w, 2)
	if first == second {
		t.Fatal("two generations have one folder")
	}
	for _, space := range w.Earlier(key, 2) {
		if err := w.Remove(space); err != nil || space.Dir != first {
			t.Errorf("%s: %v", space.Dir, err)
		}
	}
	if _, err := os.Lstat(first); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the first is there: %v", err)
	}
	next, err := workspace.New(workspace.Config{
		Dir: dir, Generations: func(_ context.Context, keys []registry.Key) ([]int64, error) {
			asked <- keys
			return []int64{3}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if keys := <-asked; len(keys) != 1 || keys[0] != key {
		t.Errorf("asked for %v", keys)
	}
	next.Close()
	if _, err := os.Lstat(second); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the second is there: %v", err)
	}
}

// A folder that its pod left, and that another pod has gone on with on its own disk, is not gone on with; one on a
// volume that both share is. A pod that lost the session does not touch it.
func TestFoldersOfFormerOwners(t *testing.T) {
	for name, tt := range map[string]struct {
		now  registry.Place
		kept bool
		code registry.Code
	}{
		"the same owner":            {registry.Place{Epoch: 5, Before: 3}, true, ""},
		"the next owner":            {registry.Place{Epoch: 9, Before: 5}, true, ""},
		"it was nowhere meanwhile":  {registry.Place{Epoch: 9}, true, ""},
		"it was elsewhere":          {registry.Place{Epoch: 9, Before: 7}, false, ""},
		"a call that came too late": {registry.Place{Epoch: 4}, true, registry.CodeBusy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			id := agent.SessionID{Tenant: "t", Identity: "user:anna"}
			space, err := w.Find(id, registry.Place{Epoch: 5, Before: 3}).Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(space.Dir, "f")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err = w.Find(id, tt.now).Open(t.Context())
				if tt.code == "" && err != nil || tt.code != "" && !errors.Is(err, tt.code) {
					t.Error(err)
				}
			}
			if _, err := os.Lstat(file); (err == nil) != tt.kept {
				t.Errorf("kept: %v", err)
			}
		})
	}
}
