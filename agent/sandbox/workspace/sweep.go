package workspace

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/registry"
)

const (
	sweepsPerTTL = 10              // sweeps in one TTL
	sweepBatch   = 256             // folders per request to the store
	sweepTimeout = 5 * time.Second // for one such request
)

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

// sweep removes workspaces that were not used for the TTL, and workspaces of conversations that were erased while this
// pod was down.
func (w *Workspaces) sweep(ctx context.Context) {
	root := filepath.Join(w.cfg.Dir, sessionsDir)
	var young []string
	there := make(map[string]bool)
	for e, err := range sandbox.Entries(root) {
		if err != nil {
			w.cfg.Log.Warn("workspaces not listed", "error", err)
			return
		}
		if ctx.Err() != nil {
			return
		}
		info, err := e.Info()
		switch {
		case err != nil || !info.IsDir():
		case time.Since(info.ModTime()) < w.cfg.TTL:
			young, there[e.Name()] = append(young, e.Name()), true
		default:
			w.sweepOne(root, e.Name())
		}
		if len(young) == sweepBatch {
			w.sweepErased(ctx, root, young)
			young = young[:0]
		}
	}
	w.sweepErased(ctx, root, young)
	w.disk.retain(there)
	w.measureUnknown(ctx, slices.Collect(maps.Keys(there)))
}

func (w *Workspaces) sweepOne(root, name string) {
	w.disk.forget(name)
	if err := remove(filepath.Join(root, name)); err != nil {
		w.cfg.Log.Warn("old workspace not removed", "workspace", name, "error", err)
	}
}

// sweepErased removes the folders whose conversations have moved on to another generation.
func (w *Workspaces) sweepErased(ctx context.Context, root string, names []string) {
	if w.cfg.Generations == nil {
		return
	}
	var folders []string
	var origins []origin
	var keys []registry.Key
	for _, name := range names {
		if o, err := readOrigin(filepath.Join(root, name)); err == nil && o.Session != "" {
			folders, origins = append(folders, name), append(origins, o)
			keys = append(keys, registry.Key{Tenant: o.Tenant, Session: o.Session})
		}
	}
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	generations, err := w.cfg.Generations(ctx, keys)
	if err != nil {
		w.cfg.Log.Warn("workspaces of erased conversations not removed; the pod retries", "error", err)
		return
	}
	for i, current := range generations {
		if current != 0 && current != origins[i].Generation {
			w.sweepOne(root, folders[i])
		}
	}
}

// remove removes a folder with its content. Only the gateway can write to the parent folder.
func remove(dir string) error {
	above, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer above.Close() //nolint:errcheck // it was only read
	return sandbox.RemoveAll(above, filepath.Base(dir))
}
