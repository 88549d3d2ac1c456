package browser

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A process that looks for leftovers never gets the lock of a folder that another one is making.
func TestNewFoldersAreLocked(t *testing.T) {
	dir := t.TempDir()
	made := make(chan struct{})
	var looks sync.WaitGroup
	for range 2 {
		looks.Go(func() {
			for {
				select {
				case <-made:
					return
				default:
				}
				found, _ := filepath.Glob(filepath.Join(dir, baseName, podPrefix+"*", lockFile))
				for _, path := range found {
					if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
						if lock(f) {
							t.Errorf("%s is not locked", path)
						}
						f.Close()
					}
				}
			}
		})
	}
	for range 100 {
		f, err := newFolder(dir)
		if err != nil {
			t.Error(err)
			break
		}
		defer f.lock.Close()
	}
	close(made)
	looks.Wait()
}
