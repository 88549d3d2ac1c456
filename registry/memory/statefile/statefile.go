// Package statefile keeps the records of a memory store in one file of a folder, by bbolt: a B+ tree whose pages are
// never overwritten while they are in use. So the file is whole after every crash, without a log to replay.
//
// Start with Open. look.go describes a file without opening it for writing; Backup copies it while it is in use.
//
// Imports: only registry/memory, of the packages of this module.
package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/farhand/farhand/registry/memory"
)

// Name is the name of the file in its folder.
const Name = "farhand.db"

// format is the version of the records' form. A release reads its own and all earlier ones.
const format = 1

// The bucket that says what the file is. All other buckets have the names of kinds.
const (
	metaBucket = "meta"
	formatKey  = "format"
)

// File implements memory.Journal. One goroutine uses it at a time; others may call Backup meanwhile.
type File struct {
	path   string
	db     *bbolt.DB
	broken error // why no more commits are possible
}

var _ memory.Journal = (*File)(nil)

// Open opens the file in dir, and creates both if they do not exist, for this user only. It fails with an
// *InUseError if another process has the file, and with an error if a newer release wrote it. It then changes nothing.
func Open(dir string) (f *File, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f = &File{path: filepath.Join(dir, Name)}
	defer func() {
		if err != nil && f.db != nil {
			err = errors.Join(err, f.db.Close())
		}
	}()
	return f, guarded(func() error {
		if err := examine(f.path); err != nil {
			return err
		}
		if f.db, err = openBolt(f.path, false); err != nil {
			return err
		}
		if err := f.prepare(); err != nil {
			return err
		}
		return f.sign()
	})
}

// examine checks a file that exists, before bbolt follows its pages.
func examine(path string) error {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	db, err := openBolt(path, true)
	if err != nil {
		return err
	}
	_, err = check(db)
	return errors.Join(err, db.Close())
}

// lockWait is how long a lock is tried to get: it is longer than another process examines the file.
const lockWait = 300 * time.Millisecond

// openBolt opens a file.
func openBolt(path string, readOnly bool) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockWait, ReadOnly: readOnly, NoStatistics: true,
		NoFreelistSync: true, // the free pages are found again at the start, which reads the file anyway
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, inUse(path)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum),
		errors.Is(err, berrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%s is not a state file, or damaged: %w. Restore a backup, or move it away", path, err)
	case err != nil:
		return nil, err
	}
	return db, nil
}

// prepare checks the format of the file. It writes the format and the buckets to a new one.
func (f *File) prepare() error {
	version, err := check(f.db)
	switch {
	case err != nil:
		return err
	case version == format:
		return os.Chmod(f.path, 0o600)
	}
	err = f.db.Update(func(tx *bbolt.Tx) error {
		for _, kind := range memory.Kinds() {
			if _, err := tx.CreateBucketIfNotExists([]byte(kind)); err != nil {
				return err
			}
		}
		meta, err := tx.CreateBucketIfNotExists([]byte(metaBucket))
		if err != nil {
			return err
		}
		return meta.Put([]byte(formatKey), strconv.AppendInt(nil, format, 10))
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return syncDir(filepath.Dir(f.path))
}

// check returns the format of a file, zero if it is new.
func check(db *bbolt.DB) (version int, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		if info, err := os.Stat(db.Path()); err != nil || info.Size() < tx.Size() {
			return errors.Join(err, fmt.Errorf("%s is damaged: its end is missing. Restore a backup, or move it away",
				db.Path()))
		}
		meta := tx.Bucket([]byte(metaBucket))
		if meta == nil {
			if name, _ := tx.Cursor().First(); name != nil {
				return fmt.Errorf("%s is not a state file. Move it away", db.Path())
			}
			return nil
		}
		text := string(meta.Get([]byte(formatKey)))
		version, err = strconv.Atoi(text)
		switch {
		case err != nil || version < 1:
			return fmt.Errorf("%s is damaged: its format is %q. Restore a backup, or move it away", db.Path(), text)
		case version > format:
			return fmt.Errorf("%s was written by a newer release, in format %d; this release reads up to %d. Run that "+
				"release again, or use another folder", db.Path(), version, format)
		}
		return nil
	})
	return version, err
}

// syncDir makes a new file in a folder durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // which cannot, and need not
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// guarded runs f, and returns an error where bbolt panics: on pages that are damaged, or cannot be read.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the state file is damaged: %v. Restore a backup, or move it away", p)
		}
	}()
	return f()
}

// Path returns the path of the file.
func (f *File) Path() string { return f.path }

// Load implements memory.Journal.
func (f *File) Load(each func(memory.Record) error) error {
	return guarded(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			for _, kind := range memory.Kinds() {
				bucket := tx.Bucket([]byte(kind))
				if bucket == nil {
					return fmt.Errorf("%s is damaged: it has no %s. Restore a backup, or move it away", f.path, kind)
				}
				err := bucket.ForEach(func(key, value []byte) error {
					return each(memory.Record{Kind: kind, Key: string(key), Value: value})
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// fill is how full pages become that are split, because most new keys are the last of their kind or conversation.
const fill = 0.9

// Commit implements memory.Journal.
func (f *File) Commit(changes []memory.Record) error {
	if f.broken != nil {
		return f.broken
	}
	id := 0
	err := guarded(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			id = tx.ID()
			return apply(tx, changes)
		})
	})
	if err == nil {
		return nil
	}
	if seen, failed := f.last(); failed != nil || seen >= id {
		// The end of the commit was written, and perhaps not stored by the disk: what follows could overwrite pages
		// that the file on the disk still needs.
		f.broken = fmt.Errorf("the disk failed: %w. Check it, and restart the gateway", err)
		return f.broken
	}
	return err
}

func apply(tx *bbolt.Tx, changes []memory.Record) error {
	for _, r := range changes {
		bucket := tx.Bucket([]byte(r.Kind))
		bucket.FillPercent = fill
		var err error
		if r.Value == nil {
			err = bucket.Delete([]byte(r.Key))
		} else {
			err = bucket.Put([]byte(r.Key), r.Value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.Kind, err)
		}
	}
	return nil
}

// last returns the number of the last commit in the file.
func (f *File) last() (id int, err error) {
	err = guarded(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			id = tx.ID()
			return nil
		})
	})
	return id, err
}

// Read implements memory.Journal.
func (f *File) Read(records []memory.Record) error {
	return guarded(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			for i, r := range records {
				records[i].Value = bytes.Clone(tx.Bucket([]byte(r.Kind)).Get([]byte(r.Key)))
			}
			return nil
		})
	})
}

// Close implements memory.Journal.
func (f *File) Close() error {
	err := os.Remove(ownerPath(f.path))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.db.Close())
}

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
