package files

import (
	"context"
	"io/fs"

	"github.com/dustin/go-humanize"

	"github.com/farhand/farhand/agent/sandbox"
)

// roomFor refuses a file that the workspace has no room for. was is the file whose place it takes, nil for a new one.
func roomFor(ctx context.Context, w sandbox.Workspace, size int64, was fs.FileInfo) error {
	files := 1
	if was != nil {
		size, files = size-was.Size(), 0
	}
	if w.MaxBytes == 0 && w.MaxFiles == 0 || size <= 0 && files == 0 {
		return nil
	}
	used, err := sandbox.Measure(w, ctx.Done())
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case used.Unseen != nil:
		return refuse("The workspace takes no more files: %v.", used.Full(w))
	case w.MaxBytes > 0 && used.Bytes+size > w.MaxBytes:
		return refuse("The workspace is full: its files have %s, and at most %s are allowed. Make room first.",
			humanize.IBytes(uint64(used.Bytes)), humanize.IBytes(uint64(w.MaxBytes)))
	case w.MaxFiles > 0 && used.Files+files > w.MaxFiles:
		return refuse("The workspace is full: it has %d files and folders, and at most %d are allowed. Make "+
			"room first.", used.Files, w.MaxFiles)
	}
	if err := used.OverShare(w, size); err != nil {
		return refuse("The workspace takes no more files: %v.", err)
	}
	return nil
}
