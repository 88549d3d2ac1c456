package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// queued makes calls that may wait for their device: once, with a key, or cancelled on the way. Most are for a device
// that sleeps.
func (c *ledgerCaller) queued(ctx context.Context, shape string) {
	session := c.sleeper()
	for range 1 + c.random.IntN(4) {
		c.queuedOnce(ctx, shape, session)
	}
}

// sleeper returns the session of a device that sleeps, if it finds one.
func (c *ledgerCaller) sleeper() string {
	for range ledgerDevices {
		if d := c.devices[c.random.IntN(ledgerDevices)]; d.sleeps() {
			return d.session
		}
	}
	return fmt.Sprintf("device-%d", c.random.IntN(ledgerDevices))
}

func (c *ledgerCaller) queuedOnce(ctx context.Context, shape, session string) {
	work := ledgerWork{DelayMS: c.random.IntN(150)}
	more := fmt.Sprintf(`,"queue":{"ttl_ms":%d}`, 1000+c.random.IntN(5000))
	key := ""
	if shape == "queued, keyed" {
		key = fmt.Sprintf("q%x", c.random.Uint64())
		more += fmt.Sprintf(`,"idempotency_key":%q`, key)
	}
	entry, url, body := c.draw(shape, &work, more)
	url = strings.Replace(url, "/"+entry.session+"/", "/"+session+"/", 1)
	entry.session, entry.key = session, key
	again := entry
	c.finish(&entry, c.post(context.WithoutCancel(ctx), &entry, url, body))
	switch {
	case key != "":
		again.pod = c.fleet.urls()[c.random.IntN(ledgerPods)]
		url = strings.Replace(url, entry.pod, again.pod, 1)
		c.finish(&again, c.post(context.WithoutCancel(ctx), &again, url, body))
	case entry.status == http.StatusAccepted && shape == "queued, cancelled":
		waitFor(ctx, time.Duration(c.random.IntN(500))*time.Millisecond)
		c.read(http.MethodDelete, entry.CallID, "")
		c.read(http.MethodGet, entry.CallID, "")
	case entry.status == http.StatusAccepted:
		c.read(http.MethodGet, entry.CallID, "")
	}
}

// group asks all devices the same in one call. Each device's part is an entry of its own.
func (c *ledgerCaller) group(ctx context.Context, mode string) {
	work := ledgerWork{DelayMS: c.random.IntN(100), Group: true}
	parent, _, _ := c.draw(mode, &work, "")
	args, err := json.Marshal(work)
	if err != nil {
		panic(err)
	}
	body := fmt.Sprintf(`{"tool":%q,"args":%s,"target":{"labels":{"ledger":"yes"}},"mode":%q,"timeout_ms":%d}`,
		parent.tool, args, mode, parent.limit.Milliseconds())
	var table struct{ Results []ledgerRow }
	broken := c.postInto(context.WithoutCancel(ctx), &parent, parent.pod+"/api/calls", body, &table)
	if broken != nil || parent.status != http.StatusOK { // nothing is known of any device
		for i := range ledgerDevices {
			entry := parent
			entry.session = fmt.Sprintf("device-%d", i)
			entry.nonce = groupNonce(parent.nonce, entry.session)
			c.finish(&entry, errNoRecord)
		}
		return
	}
	for _, row := range table.Results {
		entry := parent
		entry.session, entry.nonce = row.SessionID, groupNonce(parent.nonce, row.SessionID)
		entry.answer, entry.state = row.answer, row.State
		entry.status = http.StatusOK
		if row.Problem != nil {
			entry.status, entry.Code, entry.Detail = http.StatusBadGateway, row.Problem.Code, row.Problem.Detail
		}
		if entry.CallID != "" { // else no call was made, and whatever arrives was not asked for
			c.finish(&entry, nil)
		}
	}
}

// ledgerRow is what a group call says of one device.
type ledgerRow struct {
	answer
	State   string                         `json:"state"`
	Problem *struct{ Code, Detail string } `json:"problem"`
}

// auditQueued: no call begins after its expiry or its cancellation, and calls that wait for a device begin in the order
// in which they were accepted, one after the other.
func (b *ledger) auditQueued(reached map[string][]ledgerArrival, answered map[string][]ledgerAnswer, report reporter) {
	waited := make(map[string][]ledgerCall) // by device
	begun := make(map[string]time.Time)     // by nonce: a repeated request is of a call that may wait for long
	for _, c := range b.asked {
		if at, ok := begun[c.nonce]; !ok || c.asked.Before(at) {
			begun[c.nonce] = c.asked
		}
	}
	for _, c := range b.asked {
		if c.broken || c.status != http.StatusAccepted || c.state != string(registry.StateQueued) {
			continue
		}
		waited[c.session] = append(waited[c.session], c)
		for _, a := range reached[c.CallID] {
			if late := a.at.Sub(c.expires); late > b.patienceAt(c, c.expires, a.at) {
				report("expired", c.CallID, c.nonce, "reached the device %v after its expiry", late)
			}
		}
	}
	for _, r := range b.seen {
		if r.state == string(registry.StateCancelled) && r.dispatched == "no" && len(reached[r.callID]) > 0 {
			report("cancelled", r.callID, "", "cancelled before it was sent, but it reached a device")
		}
	}
	for _, calls := range waited {
		slices.SortFunc(calls, func(a, b ledgerCall) int { return a.heard.Compare(b.heard) })
		for i, second := range calls {
			second.asked = begun[second.nonce]
			for _, first := range calls[:i] {
				b.auditOrder(first, second, reached, answered, report)
			}
		}
	}
}

// auditOrder: the second call was asked for when the first one was known to wait.
func (b *ledger) auditOrder(first, second ledgerCall, reached map[string][]ledgerArrival,
	answered map[string][]ledgerAnswer, report reporter) {
	was, is := reached[first.CallID], reached[second.CallID]
	if first.CallID == second.CallID || !first.heard.Before(second.asked) || len(was) != 1 || len(is) != 1 ||
		b.forgotten(first.asked.Add(-time.Second), first.heard, is[0].at) {
		return
	}
	if is[0].at.Before(was[0].at) {
		report("order", second.CallID, second.nonce, "reached the device before this one, which was "+
			"accepted before it: %s",
			b.history(first.CallID, first.nonce))
	}
	excused := b.dropped(first.session, was[0].at, is[0].at) || b.gaveUp(first.CallID) ||
		b.stopped(was[0].at.Add(-time.Second), is[0].at)
	if a := firstAnswer(answered[first.CallID]); a != nil && is[0].at.Before(a.at) && !excused {
		report("order", second.CallID, second.nonce, "reached the device before this one, accepted before it, was "+
			"answered: %s", b.history(first.CallID, first.nonce))
	}
}

// gaveUp reports whether a call ended before its device answered: its time was up, or it was cancelled. The next call
// of its queue begins then.
func (b *ledger) gaveUp(callID string) bool {
	return slices.ContainsFunc(b.seen, func(r ledgerRecord) bool {
		state := registry.State(r.state)
		return r.callID == callID && state.Final() && (r.late || !state.Answered())
	})
}

// patienceAt is how much later than promised something may happen to a call: what the machine, and what was broken
// around it, need.
func (b *ledger) patienceAt(c ledgerCall, from, to time.Time) time.Duration {
	limit := ledgerSlack + ledgerScale*b.worstControl(c)
	for _, f := range b.faults {
		if (f.pod != "" || f.store) && f.to.After(from.Add(-time.Second)) && f.from.Before(to) {
			limit += f.to.Sub(f.from)
		}
	}
	return limit
}
