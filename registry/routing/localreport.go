package routing

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// localReports writes what calls that run on this pod report of themselves to their logs, within the bounds that hold
// for the reports of devices.
type localReports struct {
	rec     hubRecorder
	calls   hubCalls
	callLog int64 // bytes of the log of one call
}

// localReport is what one call reports. It is safe for concurrent use.
type localReport struct {
	*localReports
	tenant, callID string
	silent         bool // no text is kept: it may hold what is taken out of the result

	mu     sync.Mutex
	logged int64 // bytes
	last   int64 // the recorder's number of the last line; zero: none
	full   bool
}

func (l *localReports) of(c *registry.Call) *localReport {
	return &localReport{
		localReports: l, tenant: c.Record.Tenant, callID: c.ID, silent: l.calls.amends(c.Record.Tool),
	}
}

// add adds a line to the log of the call. After the first one that does not fit, all later ones are dropped, too.
func (r *localReport) add(report registry.Report) {
	if r.silent {
		report.Message, report.Chunk = "", ""
	}
	if report == (registry.Report{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		return
	}
	if r.last == 0 {
		r.last = r.rec.event(registry.StateEvent(r.tenant, r.callID, registry.StateRunning, time.Time{}))
	}
	e := registry.CallEvent{
		Tenant: r.tenant, CallID: r.callID, Type: registry.CallEventProgress, At: time.Now().UTC(),
		Progress: report.Progress, Total: report.Total, Message: report.Message, Chunk: report.Chunk,
	}
	r.logged += jsonSize(report.Message) + jsonSize(report.Chunk)
	if r.logged > r.callLog || r.calls.spent(r.tenant, "") > 0 {
		r.full = true
		e.Type, e.Progress, e.Total, e.Chunk = registry.CallEventTruncated, nil, nil, ""
		e.Message = "No more is kept of what this call reports: too much is kept already. The call goes on."
	}
	r.last = r.rec.event(e)
}

// written waits until all lines are written, because the end of a call closes its log. It waits logWait at most.
func (r *localReport) written(ctx context.Context) {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if last == 0 || r.rec.wrote(last) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logWait)
	defer cancel()
	r.rec.waitFor(ctx, last)
}
