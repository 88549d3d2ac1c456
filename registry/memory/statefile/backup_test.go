package statefile_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/memory/statefile"
)

// TestBackup: the file is copied while lanes write to it. A copy has what was acknowledged before, each write as a
// whole, and no copy is left in the folder.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := memory.Open(memory.Options{}, file)
	if err != nil {
		t.Fatal(err)
	}
	acknowledged, stop, writers := [lanes]atomic.Int64{}, make(chan struct{}), sync.WaitGroup{}
	for lane := range lanes {
		writers.Go(func() {
			turn, err := m.BeginTurn(t.Context(), laneKey(lane), time.Hour)
			for n := 1; err == nil; n++ {
				if err = writeStep(t.Context(), m, turn, lane, n, false); err == nil {
					acknowledged[lane].Store(int64(n))
				}
				select {
				case <-stop:
					return
				default:
				}
			}
			t.Errorf("lane %d: %v", lane, err)
		})
	}
	var last int64
	for range 5 {
		testkit.Eventually(t, "the lanes have gone on", func() bool { return acknowledged[0].Load() > last })
		last = acknowledged[0].Load()
		checkBackup(t, file, &acknowledged)
	}
	close(stop)
	writers.Wait()
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	if b, err := file.Backup(); err == nil {
		t.Errorf("a closed file was copied: %v", b.Close())
	}
}

func checkBackup(t *testing.T, file *statefile.File, acknowledged *[lanes]atomic.Int64) {
	t.Helper()
	var before [lanes]int64
	for lane := range lanes {
		before[lane] = acknowledged[lane].Load()
	}
	b, err := file.Backup()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(b)
	if err = errors.Join(err, b.Close()); err != nil || int64(len(content)) != b.Size {
		t.Fatalf("%d of %d bytes: %v", len(content), b.Size, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, statefile.Name), content, 0o600); err != nil {
		t.Fatal(err)
	}
	reopened(t, dir, func(m *memory.Store) {
		for lane, n := range before {
			_, _, whole, err := written(t.Context(), m, lane) // usage is written last
			if err != nil || int64(whole) < n {
				t.Errorf("lane %d: %d were acknowledged, the copy has %d: %v", lane, n, whole, err)
			}
			checkLane(t, m, lane, whole)
		}
	})
	for _, size := range []int{len(content) / 2, len(content) - 1} { // a copy that did not arrive as a whole
		if err := os.Truncate(filepath.Join(dir, statefile.Name), int64(size)); err != nil {
			t.Fatal(err)
		}
		if m, err := open(dir); err == nil {
			t.Errorf("%d of %d bytes were opened: %v", size, len(content), m.Close(context.Background()))
		}
	}
}
