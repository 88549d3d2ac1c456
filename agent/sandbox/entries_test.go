package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/farhand/farhand/agent/sandbox"
)

// A folder with very many names is read to its end, in little memory.
func TestEntriesOfAFullFolder(t *testing.T) {
	const names = 20_000
	dir := t.TempDir()
	for i := range names {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("a-name-that-is-not-short-%08d", i)), nil,
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	inUse := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before, seen := inUse(), make([]bool, names)
	n := 0
	for e, err := range sandbox.Entries(dir) {
		if err != nil {
			t.Fatal(err)
		}
		var i int
		if _, err := fmt.Sscanf(e.Name(), "a-name-that-is-not-short-%d", &i); err != nil || seen[i] {
			t.Fatalf("%q, seen before %t, %v", e.Name(), err == nil && seen[i], err)
		}
		seen[i] = true
		if n++; n == names/2 {
			if took := inUse() - before; took > 1<<20 { // os.ReadDir takes three times as much
				t.Errorf("half of the folder takes %d bytes", took)
			}
		}
	}
	if n != names {
		t.Errorf("%d of %d names", n, names)
	}
	for _, err := range sandbox.Entries(filepath.Join(dir, "none")) {
		if !os.IsNotExist(err) {
			t.Errorf("a folder that is not there: %v", err)
		}
		return
	}
	t.Error("a folder that is not there has no error")
}
