package group

import (
	"context"
	"hash/maphash"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// pageSize is how many devices are read at a time.
const pageSize = 100

// target is one device to call.
type target struct {
	route  registry.Route  // from a listing; zero: named by at
	at     registry.Target // of a device in a list
	asleep bool            // route is a known device that was not listed
	away   bool            // the caller does not reach it
	held   *held           // its child needed approval, and is continued; nil: it is new
	slot   *share.Grant    // of the pod, for its child
}

// targets are the devices of one call, in order. next returns false after the last one. They belong to one goroutine.
type targets interface {
	next(ctx context.Context) (t target, more bool, err error)

	// skipped returns how many devices were read and not returned by next.
	skipped() int
}

// list are targets that are known: named by the caller, or held.
type list []target

func (l *list) next(context.Context) (t target, more bool, err error) {
	if len(*l) == 0 {
		return t, false, nil
	}
	t, *l = (*l)[0], (*l)[1:]
	return t, true, nil
}

func (l *list) skipped() int { return len(*l) }

// named returns the devices of a list of ids, within scope.
func named(scope registry.Target, d Devices) *list {
	var l list
	for _, id := range d.DeviceIDs {
		at := scope
		at.DeviceID = id
		l = append(l, target{at: at})
	}
	for _, id := range d.SessionIDs {
		at := scope
		at.SessionID = id
		l = append(l, target{at: at, away: scope.SessionID != "" && scope.SessionID != id})
	}
	return &l
}

// devices are hashes of the devices that were found, so that none is called twice: a device may have several sessions,
// and would otherwise reach a quorum alone. Make it with newDevices.
type devices struct {
	seed maphash.Seed
	seen map[uint64]struct{}
}

func newDevices() devices { return devices{maphash.MakeSeed(), make(map[uint64]struct{})} }

// isNew reports whether a session's device has not been found yet, and notes it. A session without a device id is
// always new.
func (d devices) isNew(of *registry.Session) bool {
	key := of.DeviceKey()
	if key == "" {
		return true
	}
	hash := maphash.String(d.seed, key)
	_, seen := d.seen[hash]
	d.seen[hash] = struct{}{}
	return !seen
}

// pages are the connected devices that match a query, read page by page. A device that reconnects gets a new place at
// the end of the order, where it could be called a second time. So the pages end with the last device that was there at
// the beginning, and later ones count as skipped.
type pages struct {
	directory Directory
	query     registry.Query
	last      int64 // generation of that device
	found     devices

	page  []registry.Entry
	ended bool // there is no further page
	later int  // devices that connected after the beginning
	known bool // those with a device id are called as known devices
	skips int  // the others
}

// maxLater bounds the pages of devices that connected after the beginning, which are read to count them.
const maxLater = 10 * pageSize

// openPages returns the devices of a query, and one of them.
func openPages(ctx context.Context, directory Directory, q registry.Query) (*pages, registry.Entry, error) {
	newest := q
	newest.Newest, newest.Limit = true, 1
	for {
		found, next, err := directory.List(ctx, newest)
		switch {
		case err != nil:
			return nil, registry.Entry{}, err
		case len(found) > 0:
			q.Limit = pageSize
			p := &pages{directory: directory, query: q, last: found[0].Session.Generation, found: newDevices()}
			return p, found[0], nil
		case next == nil:
			return nil, registry.Entry{}, noneFound(ctx, directory, q.Tool)
		}
		newest.After = *next
	}
}

func noneFound(ctx context.Context, directory Directory, tool string) error {
	if err := directory.Whole(ctx); err != nil {
		return err
	}
	return registry.Errorf(registry.CodeSessionNotFound,
		"No connected device that you can use matches devices and offers the tool %q. GET /api/sessions?tool=%s "+
			"lists those that offer it.", tool, tool).With(registry.DispatchedNo)
}

func (p *pages) next(ctx context.Context) (t target, more bool, err error) {
	for {
		for len(p.page) > 0 {
			e := p.page[0]
			p.page = p.page[1:]
			if e.Session.Generation > p.last {
				p.later++
				if (!p.known || e.Session.DeviceKey() == "") && p.found.isNew(&e.Session) {
					p.skips++
				}
				continue
			}
			if spec, ok := offered(e.Tools, p.query.Tool); ok && p.found.isNew(&e.Session) {
				return target{route: registry.Route{
					Session: e.Session, Spec: spec, Target: p.query.Target, Remembered: true,
					Attributes: e.Session.AttributesDigest(),
				}}, true, nil
			}
		}
		if p.ended || p.later >= maxLater {
			return t, false, nil
		}
		page, after, err := p.directory.List(ctx, p.query)
		if err != nil {
			return t, false, err
		}
		for i := range page {
			page[i].Tools = only(page[i].Tools, p.query.Tool)
		}
		p.page, p.ended = page, after == nil
		if after != nil {
			p.query.After = *after
		}
	}
}

func (p *pages) skipped() int {
	n := p.skips
	for i := range p.page {
		if p.found.isNew(&p.page[i].Session) {
			n++
		}
	}
	return n
}

func offered(tools []registry.ToolSpec, tool string) (registry.ToolSpec, bool) {
	for _, spec := range tools {
		if spec.Name == tool {
			return spec, true
		}
	}
	return registry.ToolSpec{}, false
}

// only returns the tool with a name, without the others of its device: a page may wait as long as the call, and a
// device can have a mebibyte of definitions.
func only(tools []registry.ToolSpec, name string) []registry.ToolSpec {
	if spec, ok := offered(tools, name); ok {
		return []registry.ToolSpec{spec}
	}
	return nil
}

// begin checks the whole call before its first child: it finds the devices, and asks the policy about the tool.
func (t tool) begin(ctx context.Context, a Args, sink Sink) (*run, error) {
	by := t.sc.Asker(ctx)
	q, reaches := t.sc.Devices(by.Model)
	if !reaches {
		return nil, noneFound(ctx, t.service.cfg.Directory, a.Tool)
	}
	if a.Queue != nil {
		if err := agent.CheckQueue(ctx, a.Queue.ttl()); err != nil {
			return nil, err
		}
	}
	q.Tool = a.Tool
	r := &run{
		service: t.service, args: a, sink: sink, by: t.sc.Caller.Owner(), moved: make(chan struct{}, 1),
		places: make(chan struct{}, a.Concurrency),
	}
	spec := registry.ToolSpec{Name: a.Tool}
	if a.Devices.listed() {
		r.targets = named(q.Target, a.Devices)
	} else {
		q.UserID, q.Labels = a.Devices.UserID, a.Devices.Labels
		var err error
		if r.targets, spec, err = t.service.matching(ctx, q, a.Queue != nil); err != nil {
			return nil, err
		}
	}
	if err := agent.MayCall(t.service.cfg.Policy, by, spec, nil).Err(); err != nil {
		return nil, registry.AsError(err).With(registry.DispatchedNo)
	}
	sink.Begin(agent.CallID(ctx), a.Mode)
	return r, nil
}
