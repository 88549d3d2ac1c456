package memory_test

import (
	"context"
	"maps"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/memory/statefile"
	"github.com/farhand/farhand/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryConformance(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(_ *testing.T, l registry.Limits) (registry.Store, func() registry.Bus) {
		m := memory.New(memory.Options{Limits: l})
		return m, func() registry.Bus { return m.NewBus() }
	})
}

// TestFileConformance: a store with a file behaves like one without. After each test, the file has exactly what memory
// has, and a store that is opened with it has the same.
func TestFileConformance(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(t *testing.T, l registry.Limits) (registry.Store, func() registry.Bus) {
		dir := t.TempDir()
		m := openStore(t, dir, memory.Options{Limits: l})
		t.Cleanup(func() {
			if err := m.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			m.Expire()
			checkFile(t, dir, m, "of the store that wrote it")
			again := openStore(t, dir, memory.Options{Limits: l})
			if err := again.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			checkFile(t, dir, again, "of the store that read it")
		})
		return m, func() registry.Bus { return m.NewBus() }
	})
}

func openStore(t testing.TB, dir string, o memory.Options) *memory.Store {
	t.Helper()
	f, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := memory.Open(o, f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// checkFile fails if a file does not have exactly what is in a store.
func checkFile(t testing.TB, dir string, m *memory.Store, of string) {
	t.Helper()
	f, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stored, err := memory.Recorded(f)
	if err != nil {
		t.Fatal(err)
	}
	kept := m.Kept()
	for _, kind := range memory.Kinds() {
		if maps.Equal(stored[kind], kept[kind]) {
			continue
		}
		for key, value := range kept[kind] {
			if got, ok := stored[kind][key]; !ok || got != value {
				t.Errorf("%s %q: memory %s has %.200q, the file %.200q, %v", kind, key, of, value, got, ok)
			}
		}
		for key, value := range stored[kind] {
			if _, ok := kept[kind][key]; !ok {
				t.Errorf("%s %q: the file has %.200q, memory %s nothing", kind, key, value, of)
			}
		}
	}
}
