package browser

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
)

const (
	baseName  = "browsers"
	podPrefix = "pod-"
	lockFile  = "lock"
	tempDir   = "tmp"

	newLockFile = "lock.new"

	removeFor   = 3 * time.Second
	removePause = 10 * time.Millisecond
)

// folder is where one process keeps its profiles. It has a lock on it, so that the next process knows the folders of
// those that are gone.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes a folder below dir, and removes those of processes that are gone, with what still runs there.
func newFolder(dir string) (*folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(dir, baseName)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, err
	}
	removeLeftovers(base)
	path, err := os.MkdirTemp(base, podPrefix)
	if err != nil {
		return nil, err
	}
	f, err := newLock(path)
	if err != nil {
		remove(path)
		return nil, err
	}
	return &folder{path: path, lock: f}, nil
}

// newLock makes the file with the lock of a folder. It has its name when it is locked: another process that starts now
// takes the lock of a file it finds, and would remove the folder.
func newLock(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, newLockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if !lock(f) {
		err = errors.New("browser: no lock on " + f.Name() + " can be had")
	} else {
		err = os.Rename(f.Name(), filepath.Join(path, lockFile))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeLeftovers removes the folders nobody has a lock on. One that has no lock yet is being made, unless it is old.
func removeLeftovers(base string) {
	for entry, err := range sandbox.Entries(base) {
		if err != nil {
			return
		}
		path := filepath.Join(base, entry.Name())
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), podPrefix) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > time.Minute {
				remove(path)
			}
			continue
		}
		if err != nil {
			continue
		}
		if lock(f) {
			remove(path)
		}
		f.Close()
	}
}

// remove kills what still uses a folder and removes it. A process that is being killed may write for a moment.
func remove(path string) {
	for end := time.Now().Add(removeFor); ; time.Sleep(removePause) {
		busy := killUsers(path)
		if err := os.RemoveAll(path); err == nil && !busy || time.Now().After(end) {
			return
		}
	}
}

// close removes the folder.
func (f *folder) close() {
	remove(f.path)
	f.lock.Close()
}
