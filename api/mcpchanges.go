package api

import (
	"context"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/mcp"
	"github.com/farhand/farhand/registry"
)

// mcpChanges hears of changes from the feed of a tenant, which the pod reads once for all streams that follow it. It
// implements mcp.Changes.
type mcpChanges struct {
	reader *feedReader
	at     int64 // the place of the next entry
	viewer string
	scope  mcp.Scope
}

// Follow implements mcp.Changer.
func (g mcpGateway) Follow(
	ctx context.Context, who auth.Identity, scope mcp.Scope,
) (_ mcp.Changes, leave func(), err error) {
	reader, leave := g.h.hub.follow(who.Tenant)
	for {
		at, started, grown := reader.end()
		if started {
			return &mcpChanges{reader, at, who.Viewer(), scope}, leave, nil
		}
		await(ctx, grown, storeTimeout)
		if _, started, _ := reader.end(); !started {
			leave()
			return nil, nil, registry.StoreUnavailable("read the end of the feed", ctx.Err())
		}
	}
}

// end returns the place behind the newest entry. started is false as long as the reader has not begun; grown is closed
// when it has.
func (r *feedReader) end() (at int64, started bool, grown <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped + int64(len(r.kept)), r.started, r.grown
}

// Wait implements mcp.Changes.
func (m *mcpChanges) Wait(ctx context.Context, atMost time.Duration) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for ctx.Err() == nil {
		entries, ok, grown := m.reader.from(m.at, feedWrite)
		if !ok { // entries have been dropped that nobody has looked at
			m.at, _, _ = m.reader.end()
			return true
		}
		for _, e := range entries {
			m.at++
			changed = changed || m.means(e)
		}
		if changed {
			return true
		}
		if len(entries) == 0 {
			await(ctx, grown, atMost)
		}
	}
	return false
}

// means reports whether an entry says that something in the scope may have changed.
func (m *mcpChanges) means(e feedEntry) bool {
	switch e.kind {
	case registry.ActivityPodDied: // its sessions leave without a word
		return true
	case registry.ActivityConnected, registry.ActivityUpdated, registry.ActivityDisconnected, registry.ActivityTools:
	default:
		return false
	}
	return e.owner.SeenBy(m.viewer) && (m.scope.Session == "" || m.scope.Session == e.session) &&
		(m.scope.User == "" || m.scope.User == e.owner.User)
}
