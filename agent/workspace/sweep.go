package workspace

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// sweepsPerTTL is how often the workspaces are looked through in one TTL.
const sweepsPerTTL = 10

func (w *Workspaces) sweepUntil(ctx context.Context) {
	tick := time.NewTicker(max(w.cfg.TTL/sweepsPerTTL, time.Second))
	defer tick.Stop()
	for {
		w.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep removes the workspaces that nobody has used for the TTL.
func (w *Workspaces) sweep(ctx context.Context) {
	root := filepath.Join(w.cfg.Dir, sessionsDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		w.cfg.Log.Warn("workspaces not looked through", "error", err)
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if ctx.Err() != nil {
			return
		}
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < w.cfg.TTL {
			continue
		}
		if err := remove(filepath.Join(root, e.Name())); err != nil {
			w.cfg.Log.Warn("old workspace not removed", "workspace", e.Name(), "error", err)
		}
	}
}

// remove removes a folder with everything in it, also folders that their owner has locked.
func remove(dir string) error {
	if err := os.RemoveAll(dir); err == nil || os.Getuid() == 0 { // no mode keeps root out
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
