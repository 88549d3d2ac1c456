package group

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/parallel"
	"github.com/farhand/farhand/registry"
)

// matching returns the devices that match a query, with queue also those that sleep, and the tool of one of them.
func (s *Service) matching(
	ctx context.Context, q registry.Query, queue bool,
) (targets, registry.ToolSpec, error) {
	p, one, err := openPages(ctx, s.cfg.Directory, q)
	spec, _ := offered(one.Tools, q.Tool)
	switch {
	case err != nil && (!queue || !errors.Is(err, registry.CodeSessionNotFound)):
		return nil, spec, err
	case !queue || s.cfg.Known == nil:
		return p, spec, err
	}
	w := &withSleeping{
		connected: &list{}, known: s.cfg.Known, tool: q.Tool, seen: newDevices(),
		query: registry.KnownQuery{Tenant: q.Tenant, Target: q.Target, Limit: pageSize},
	}
	if err == nil {
		p.known = true
		w.connected, w.seen = p, p.found
		return w, spec, nil
	}
	first, found, failed := w.next(ctx)
	switch {
	case failed != nil:
		return nil, spec, failed
	case !found:
		return nil, spec, err
	}
	w.connected = &list{first}
	return w, first.route.Spec, nil
}

// withSleeping are connected devices, and then the devices that the gateway knows and that were not among them. A
// device that has connected meanwhile gets its call from its queue at once. The order of known devices is by the end of
// their memory: each that connects or goes moves others to an earlier page. So the pages are read until they have
// nothing new.
type withSleeping struct {
	connected targets
	known     registry.KnownDevices
	query     registry.KnownQuery
	tool      string
	seen      devices // that next returned

	page  []registry.KnownDevice
	last  bool // there is no further page
	found bool // the pages since the first one had a new device
}

func (w *withSleeping) next(ctx context.Context) (target, bool, error) {
	if t, more, err := w.connected.next(ctx); more || err != nil {
		return t, more, err
	}
	for {
		for len(w.page) > 0 {
			d := w.page[0]
			w.page = w.page[1:]
			if spec, ok := offered(d.Tools, w.tool); ok && w.seen.isNew(&d.Session) {
				w.found = true
				return target{
					route: registry.Route{Session: d.Session, Spec: spec, Target: w.query.Target}, asleep: true,
				}, true, nil
			}
		}
		if w.last && !w.found {
			return target{}, false, nil
		}
		if w.last {
			w.found = false
		}
		page, after, err := w.known.KnownDevices(ctx, w.query)
		if err != nil {
			return target{}, false, err
		}
		for i := range page {
			page[i].Tools = only(page[i].Tools, w.tool)
		}
		w.page, w.query.Skip, w.last = page, after, after == 0
	}
}

func (w *withSleeping) skipped() int {
	n := w.connected.skipped()
	for _, d := range w.page {
		if _, ok := offered(d.Tools, w.tool); ok && w.seen.isNew(&d.Session) {
			n++
		}
	}
	return n
}

// How the queued children of a cancelled call are cancelled.
const (
	cancelsAtATime = 16
	cancelTime     = 10 * time.Second
)

// cancelQueued cancels the children that wait for their devices, and returns the error of the cancelled call.
func (r *run) cancelQueued(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	var left atomic.Int64
	_ = parallel.Each(len(r.queued), cancelsAtATime, func(i int) error { // errors are counted
		if _, err := r.service.cfg.Calls.Cancel(ctx, r.by.Tenant, r.queued[i]); err != nil {
			left.Add(1)
		}
		return nil
	})
	if n := left.Load(); n > 0 {
		return registry.Errorf(registry.CodeCancelled,
			"The call was cancelled, but %d queued calls could not be. DELETE /api/calls/ID cancels each.", n)
	}
	return registry.Cancelled()
}
