package api

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// maxWait is the maximum time that a request waits for the end of a call. To wait longer, a caller asks again.
const maxWait = time.Minute

var callIDPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// listCalls lists finished calls, newest first.
func (h *handler) listCalls(c *gin.Context, q params) error {
	query, err := callQuery(caller(c), q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	records, next, err := h.Calls.List(ctx, query)
	if err != nil {
		return err
	}
	answer := wire.CallList{Calls: make([]wire.CallRecord, len(records))}
	for i, r := range records {
		answer.Calls[i] = summaryOf(r)
	}
	if next != "" {
		answer.NextCursor = cursor{Kind: cursorCalls, Name: next}.String()
	}
	return h.respond(c, answer)
}

func callQuery(who auth.Identity, q params) (registry.CallQuery, error) {
	query := registry.CallQuery{Tenant: who.Tenant, UserID: who.Viewer(), DeviceID: q.get("device_id")}
	var states []string
	for _, s := range registry.States() {
		states = append(states, string(s))
	}
	state, err := q.oneOf("state", states...)
	if err != nil {
		return query, err
	}
	query.State = registry.State(state)
	if query.Tool, err = q.toolName("tool"); err != nil {
		return query, err
	}
	if query.SessionID, err = q.sessionID(); err != nil {
		return query, err
	}
	if query.Limit, err = q.limit(); err != nil {
		return query, err
	}
	from, err := q.cursor(cursorCalls)
	query.Before = from.Name
	return query, err
}

// getCall returns one call: immediately, or when the call or the wait ends.
func (h *handler) getCall(c *gin.Context, q params) error {
	wait, release, err := h.beginWait(c, q)
	if err != nil {
		return err
	}
	defer release()
	return h.showCall(c, wait+storeTimeout, func(ctx context.Context, tenant, id string) (registry.Record, error) {
		if wait > 0 { // waiting requests reserve nothing, so a long record is dropped and read again
			rec, err := h.waitFor(ctx, tenant, id, wait)
			if err != nil || rec.Result == nil || rec.MemorySize() <= smallResponse {
				return rec, err
			}
		}
		if err := h.reserveAnswer(ctx, c, recordCost); err != nil {
			return registry.Record{}, err
		}
		return h.Calls.Get(ctx, tenant, id)
	})
}

// beginWait returns how long the client wants to wait, and takes a slot for it, until release is called.
func (h *handler) beginWait(c *gin.Context, q params) (wait time.Duration, release func(), err error) {
	if wait, err = q.wait(); err != nil {
		return 0, nil, err
	}
	release = func() {}
	if wait > 0 {
		if release, err = h.waiting.enter(h.owner(c)); err != nil {
			return 0, nil, err
		}
	}
	finishWritingBy(c, time.Now().Add(wait+writeTimeout))
	return wait, release, nil
}

// wait returns the parameter wait_ms.
func (p params) wait() (time.Duration, error) {
	if !p.has("wait_ms") {
		return 0, nil
	}
	ms, err := strconv.ParseUint(p.get("wait_ms"), 10, 31)
	if wait := time.Duration(ms) * time.Millisecond; err == nil && wait <= maxWait {
		return wait, nil
	}
	return 0, registry.Errorf(registry.CodeInvalidRequest,
		"The query parameter \"wait_ms\" must be a whole number from 0 to %d.", maxWait.Milliseconds())
}

// cancelCall cancels a call, on any pod. Cancelling a finished call has no effect.
func (h *handler) cancelCall(c *gin.Context, _ params) error {
	return h.showCall(c, storeTimeout, func(ctx context.Context, tenant, id string) (registry.Record, error) {
		rec, err := h.Calls.Cancel(ctx, tenant, id)
		if err == nil {
			h.withdrawApproval(ctx, rec)
		}
		return rec, err
	})
}

// showCall answers with the record that read returns for the call in the path.
func (h *handler) showCall(
	c *gin.Context, timeout time.Duration, read func(ctx context.Context, tenant, id string) (registry.Record, error),
) error {
	id, err := callID(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), timeout)
	defer cancel()
	if err := h.checkCall(ctx, caller(c), id); err != nil {
		return err
	}
	r, err := read(ctx, caller(c).Tenant, id)
	switch {
	case err != nil:
		return err
	case c.Request.Method == http.MethodDelete:
		return h.writeStatus(c, recordOf(r)) // the answer to a change must not be cached
	default:
		return h.respond(c, recordOf(r))
	}
}

// checkCall checks that a call exists for the caller. A caller whose credentials name a user sees only calls of that
// user. Calls without a user are not visible to such callers, because their arguments and results are not public.
func (h *handler) checkCall(ctx context.Context, who auth.Identity, id string) error {
	viewer := who.Viewer()
	if viewer == "" {
		return nil
	}
	switch r, err := h.Calls.Get(ctx, who.Tenant, id); {
	case err != nil:
		return err
	case r.UserID != viewer:
		return registry.ErrNoCall
	}
	return nil
}

// callID returns the id of the call in the path. An impossible id is unknown; it is not sent to the store.
func callID(c *gin.Context) (string, error) {
	id := c.Param("id")
	if !callIDPattern.MatchString(id) {
		return "", registry.ErrNoCall
	}
	return id, nil
}

// waitFor waits for the end of a call. It returns early when the pod begins to drain, because its caller can continue
// to wait at another pod.
func (h *handler) waitFor(ctx context.Context, tenant, id string, wait time.Duration) (registry.Record, error) {
	waiting, stop := h.untilDraining(ctx)
	defer stop()
	rec, err := h.Calls.Wait(waiting, tenant, id, wait)
	if waiting.Err() != nil { // the canceled wait may have returned an error
		return h.Calls.Wait(ctx, tenant, id, 0)
	}
	return rec, err
}
