package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// ErrInUse is what every *InUseError is.
var ErrInUse = errors.New("the state file is in use")

// InUseError is the error for a file that another process has.
type InUseError struct {
	Path string
	PID  int    // zero: unknown
	Host string // empty: unknown
}

// Error implements error.
func (e *InUseError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d on %s", e.PID, e.Host)
	}
	return fmt.Sprintf("%s is in use by %s. Stop it, or use another folder; several gateways share data by Redis only",
		e.Path, who)
}

// Is reports whether target is ErrInUse.
func (e *InUseError) Is(target error) bool { return target == ErrInUse }

// owner is what a process writes about itself beside its file. The lock is the file's own: an owner that was killed
// leaves only this text.
type owner struct {
	PID  int    `json:"pid"`
	Host string `json:"host"`
}

func ownerPath(path string) string { return path + ".owner" }

// sign writes who has the file.
func (f *File) sign() error {
	host, _ := os.Hostname() // empty if it is unknown
	text, err := json.Marshal(owner{os.Getpid(), host})
	if err != nil {
		return err
	}
	return os.WriteFile(ownerPath(f.path), text, 0o600)
}

// inUse returns the error for a file that is locked. Its owner may not have signed yet.
func inUse(path string) error {
	var o owner
	if text, err := os.ReadFile(ownerPath(path)); err == nil {
		_ = json.Unmarshal(text, &o)
	}
	return &InUseError{path, o.PID, o.Host}
}

// Status describes the file of a folder.
type Status struct {
	Path    string
	Size    int64       // bytes; zero: there is no file yet
	InUseBy *InUseError // nil: it is free
	Exposed error       // not nil: others than the user could read or replace the file
}

// Look checks the file of a folder, and whether a gateway could use it, without changing anything. It fails as Open
// would, except if the file is in use.
func Look(dir string) (Status, error) {
	s := Status{Path: filepath.Join(dir, Name)}
	folder, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, creatable(dir)
	}
	if err != nil {
		return s, err
	}
	if !folder.IsDir() {
		return s, fmt.Errorf("%s is not a folder", dir)
	}
	if err := writable(dir); err != nil {
		return s, err
	}
	file, err := os.Stat(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		s.Exposed = private(dir, folder, 0o022)
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Size = file.Size()
	err = guarded(func() error { return examine(s.Path) })
	if err != nil && !errors.As(err, &s.InUseBy) {
		return s, err
	}
	s.Exposed = errors.Join(private(dir, folder, 0o022), private(s.Path, file, 0o077))
	return s, nil
}

// private returns an error if others have one of these permissions.
func private(path string, info fs.FileInfo, others fs.FileMode) error {
	if runtime.GOOS == "windows" || info.Mode().Perm()&others == 0 {
		return nil
	}
	return fmt.Errorf("%s is open to other users (%v): run chmod go-rwx %s", path, info.Mode().Perm(), path)
}

// creatable returns an error if a folder cannot be made.
func creatable(dir string) error {
	parent := filepath.Dir(dir)
	info, err := os.Stat(parent)
	switch {
	case errors.Is(err, fs.ErrNotExist) && parent != dir:
		return creatable(parent)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", parent)
	}
	return writable(parent)
}

// writable returns an error if no file can be made in a folder.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".farhand-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
