//go:build linux || darwin

package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/farhand/farhand/agent/sandbox"
)

// A folder with very many long names is measured in a few hundred kilobytes beside garbage: together its names take 8
// MB.
func TestMeasuringTakesLittleMemory(t *testing.T) {
	const names = 30_000
	w := sandbox.Workspace{Dir: t.TempDir()}
	first := filepath.Join(w.Dir, "first")
	if err := os.WriteFile(first, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range names { // of one file, which is faster than as many files
		if err := os.Link(first, filepath.Join(w.Dir, fmt.Sprintf("%0250d", i))); err != nil {
			t.Fatal(err)
		}
	}
	before, measured := liveHeap(), make(chan error, 1)
	go func() {
		used, err := sandbox.Measure(w, nil)
		if err == nil && (used.Files < names || used.Unseen != nil) {
			err = fmt.Errorf("counted %+v", used)
		}
		measured <- err
	}()
	for looks := 0; ; looks++ {
		select {
		case err := <-measured:
			if err != nil || looks == 0 {
				t.Errorf("measured with %d looks at the heap: %v", looks, err)
			}
			return
		default:
		}
		if more := liveHeap() - before; more > 4<<20 {
			t.Errorf("%d bytes are live while a folder is measured", more)
		}
	}
}

// liveHeap returns how many bytes are reachable.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
