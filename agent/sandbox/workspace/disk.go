package workspace

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"sync"

	"github.com/farhand/farhand/agent/sandbox"
)

// disk tracks the disk usage of each tenant's workspaces, as last measured. A tenant that uses more than one full
// workspace must leave as much space free as it uses, so that other tenants have room: see decision 60. It is safe for
// concurrent use.
type disk struct {
	free func(sandbox.Workspace) (sandbox.DiskSpace, error)
	most int64 // bytes that a tenant may always use

	mu      sync.Mutex
	spaces  map[string]taken                        // by the id of the workspace
	tenants map[string]sandbox.DiskSpace            // usage of each tenant
	stale   map[string]map[string]sandbox.Workspace // by tenant: those that may have grown since they were measured
}

type taken struct {
	tenant string
	sandbox.DiskSpace
}

func newDisk(cfg Config) *disk {
	return &disk{
		free: cfg.Free, most: cfg.MaxBytes,
		spaces: make(map[string]taken), tenants: make(map[string]sandbox.DiskSpace),
		stale: make(map[string]map[string]sandbox.Workspace),
	}
}

// saw records the usage of a workspace, and returns the usage of its tenant.
func (d *disk) saw(w sandbox.Workspace, used sandbox.Usage) sandbox.DiskSpace {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(w.ID)
	now := sandbox.DiskSpace{Bytes: used.Bytes, Files: int64(used.Files)}
	d.spaces[w.ID] = taken{w.Tenant, now}
	sum := d.tenants[w.Tenant]
	sum = sandbox.DiskSpace{Bytes: sum.Bytes + now.Bytes, Files: sum.Files + now.Files}
	d.tenants[w.Tenant] = sum
	return sum
}

// touch records that a workspace may have grown since it was measured.
func (d *disk) touch(w sandbox.Workspace) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stale[w.Tenant] == nil {
		d.stale[w.Tenant] = make(map[string]sandbox.Workspace)
	}
	d.stale[w.Tenant][w.ID] = w
}

// takeStale returns the other workspaces of the tenant of w that may have grown since they were measured: at most those
// used since it was last called.
func (d *disk) takeStale(w sandbox.Workspace) map[string]sandbox.Workspace {
	d.mu.Lock()
	defer d.mu.Unlock()
	stale := d.stale[w.Tenant]
	delete(d.stale, w.Tenant)
	delete(stale, w.ID)
	return stale
}

func (d *disk) knows(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.spaces[id]
	return ok
}

func (d *disk) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.stale[d.spaces[id].tenant], id)
	d.forgetLocked(id)
}

// retain forgets all workspaces that are not in there: another pod or the sweep has removed them.
func (d *disk) retain(there map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range maps.Clone(d.spaces) {
		if !there[id] {
			d.forgetLocked(id)
		}
	}
}

func (d *disk) forgetLocked(id string) {
	was, ok := d.spaces[id]
	if !ok {
		return
	}
	delete(d.spaces, id)
	sum := d.tenants[was.tenant]
	sum = sandbox.DiskSpace{Bytes: sum.Bytes - was.Bytes, Files: sum.Files - was.Files}
	if d.tenants[was.tenant] = sum; sum == (sandbox.DiskSpace{}) {
		delete(d.tenants, was.tenant)
	}
}

// Over implements sandbox.Share. It ignores errors of free: its callers report those.
func (d *disk) Over(w sandbox.Workspace, used sandbox.Usage, more int64) error {
	for _, other := range d.takeStale(w) {
		if now, err := sandbox.Measure(other, nil); err == nil {
			d.saw(other, now)
		}
	}
	total := d.saw(w, used)
	if more > 0 {
		d.touch(w) // the caller writes now
	}
	total.Bytes += more
	if total.Bytes <= d.most && total.Files <= int64(w.MaxFiles) {
		return nil
	}
	free, err := d.free(w)
	if err == nil && free.Files > 0 && total.Files > max(int64(w.MaxFiles), free.Files) {
		return fmt.Errorf("%w: the workspaces of this tenant have %d files and folders, and the gateway's disk "+
			"has room for only %d more; remove some, or erase conversations", sandbox.ErrFull, total.Files, free.Files)
	}
	if err == nil && total.Bytes > max(d.most, free.Bytes-more) {
		return fmt.Errorf("%w: the workspaces of this tenant use %d MiB, and only %d MiB are free on the "+
			"gateway's disk; remove files, or erase conversations", sandbox.ErrFull, total.Bytes>>20, free.Bytes>>20)
	}
	return nil
}

// measureUnknown measures the workspaces that already existed when this process started.
func (w *Workspaces) measureUnknown(ctx context.Context, names []string) {
	root := filepath.Join(w.cfg.Dir, sessionsDir)
	for _, name := range names {
		if ctx.Err() != nil {
			return
		}
		if w.disk.knows(name) {
			continue
		}
		o, err := readOrigin(filepath.Join(root, name))
		if err != nil || o == (origin{}) {
			continue
		}
		space := w.workspace(o.Tenant, name)
		if used, err := sandbox.Measure(space, ctx.Done()); err == nil && !w.disk.knows(name) {
			w.disk.saw(space, used)
		}
	}
}
