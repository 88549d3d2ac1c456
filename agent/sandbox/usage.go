package sandbox

import (
	"errors"
	"fmt"
)

// Usage says what a workspace takes.
type Usage struct {
	Bytes int64 // on the disk
	Files int   // folders included

	// Unseen is why some of it could not be counted, so that it may hold anything; nil: all was counted.
	Unseen error
}

// Room says what is free on a disk.
type Room struct {
	Bytes int64
	Files int64 // zero, or always the same, on file systems that make room for files as they need it
}

// Reasons why a workspace cannot be counted, beside errors of the file system.
var (
	errTooMany = errors.New("it has more files and folders than are counted")
	errTooDeep = fmt.Errorf("it has folders nested deeper than %d", maxDepth)
)

// maxDepth is how deep folders are counted. Each level takes one descriptor while its files are counted.
const maxDepth = 100

// Full returns an error that wraps ErrFull and names the limit if w has reached one; nil if it has room. What could not
// be counted counts as too much.
func (u Usage) Full(w Workspace) error {
	switch {
	case u.Unseen != nil:
		return fmt.Errorf("%w: not all of it can be counted (%w); remove that, or make it readable", ErrFull, u.Unseen)
	case w.MaxBytes > 0 && u.Bytes > w.MaxBytes:
		return fmt.Errorf("%w: its files take %d KiB on the disk, at most %d KiB are allowed; remove some", ErrFull,
			u.Bytes>>10, w.MaxBytes>>10)
	case w.MaxFiles > 0 && u.Files > w.MaxFiles:
		return fmt.Errorf("%w: it has %d files and folders, at most %d are allowed; remove some", ErrFull, u.Files,
			w.MaxFiles)
	}
	return nil
}

// OverShare returns what the tenant's share says, nil if it has none.
func (u Usage) OverShare(w Workspace, more int64) error {
	if w.Share == nil {
		return nil
	}
	return w.Share.Over(w, u, more)
}
