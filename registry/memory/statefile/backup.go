package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// Backup is a consistent copy of a file: all changes that were acknowledged before it was made, and no part of another.
// Read it to its end, and close it.
type Backup struct {
	*os.File
	Size int64 // bytes
}

// Backup copies the file within its folder, so that a slow reader of the copy does not keep the file's old pages. The
// copy has no name and ends with the returned value, or with the process. Commits go on meanwhile; one that makes the
// file larger waits for the copy. Backup may be called while other methods run.
func (f *File) Backup() (*Backup, error) {
	to, err := os.CreateTemp(filepath.Dir(f.path), ".farhand-*")
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", f.path, err)
	}
	b := &Backup{File: to}
	_ = os.Remove(to.Name()) // fails where open files keep their names; Close removes it there
	err = guarded(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			b.Size, err = tx.WriteTo(to)
			return err
		})
	})
	if err == nil {
		_, err = to.Seek(0, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy %s: %w", f.path, err), b.Close())
	}
	return b, nil
}

// Close ends the copy.
func (b *Backup) Close() error {
	err := b.File.Close()
	_ = os.Remove(b.Name()) // see Backup
	return err
}
