package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Bounds of an export of the audit log.
const (
	auditExportLimit = 100_000 // lines
	auditExportTime  = 2 * time.Minute
	auditExportPage  = 1000

	maxExports       = 16 // open at once; each holds a page of up to 4 MB
	maxCallerExports = 4
)

// Values of the parameter format, and a media type.
const (
	formatJSON  = "json"
	formatJSONL = "jsonl"

	mediaNDJSON = "application/x-ndjson"
)

func auditLineOf(e registry.AuditEntry) wire.AuditLine {
	return wire.AuditLine{ID: e.ID, At: shownTime(e.At), AuditEntry: e}
}

// readAudit lists lines of the audit log, newest first: a page as JSON, or many as JSON lines.
func (h *handler) readAudit(c *gin.Context, q *params) error {
	format := q.oneOf("format", formatJSON, formatJSONL)
	query, err := auditQuery(caller(c).Tenant, q)
	if err != nil {
		return err
	}
	if format == formatJSONL || format == "" && strings.Contains(c.GetHeader("Accept"), mediaNDJSON) {
		return h.exportAudit(c, q, query)
	}
	if err := h.reserveAnswer(c.Request.Context(), c, pageCost); err != nil {
		return err
	}
	page, next, err := h.auditPage(storeContext(c), h.owner(c), query)
	if err != nil {
		return err
	}
	return h.respond(c, wire.AuditPage{
		Lines: each(page, auditLineOf), NextCursor: nextCursor(cursorAudit, next),
	})
}

// auditPage reads a page of the audit log. It scans up to registry.AuditScan lines.
func (h *handler) auditPage(
	ctx context.Context, by share.Owner, q registry.AuditQuery,
) (page []registry.AuditEntry, next string, err error) {
	done, err := h.reading.wait(ctx, by)
	if err != nil {
		return nil, "", err
	}
	defer done()
	return h.AuditLog.ReadAudit(ctx, q)
}

func auditQuery(tenant string, q *params) (registry.AuditQuery, error) {
	return registry.AuditQuery{
		Tenant: tenant, User: q.get("user"), Credential: q.get("credential"), Tool: q.get("tool"),
		CallID: q.get("call_id"), Action: q.oneOf("action", registry.AuditActions()...),
		Outcome:   q.oneOf("outcome", registry.AuditOutcomes()...),
		SessionID: q.sessionID(), From: q.time("from"), To: q.time("to"), Limit: q.limit(),
		Before: q.cursor(cursorAudit).Name,
	}, q.failed()
}

// exportAudit streams lines page by page, so that an export of any length needs little memory. If there are more lines,
// the last line has the cursor to continue from.
func (h *handler) exportAudit(c *gin.Context, q *params, query registry.AuditQuery) error {
	left := auditExportLimit
	if q.has("limit") {
		left = query.Limit
	}
	if h.isDraining() {
		return draining()
	}
	release, err := h.exports.enter(h.owner(c))
	if err != nil {
		return err
	}
	defer release()
	finishWritingBy(c, time.Now().Add(auditExportTime))
	ctx, cancel := context.WithTimeout(c.Request.Context(), auditExportTime)
	defer cancel()
	for begun := false; ; begun = true {
		query.Limit = min(left, auditExportPage)
		next, err := h.exportPage(ctx, c, query, &left)
		switch {
		case errors.Is(err, errTooSlow):
			return nil // the client is gone, or was disconnected
		case err != nil && !begun:
			return err
		case err != nil: // the export ends without a final chunk, so the client sees that it is incomplete
			h.Log.Warn("audit log export failed", "error", err)
			panic(http.ErrAbortHandler)
		case next == "" || left <= 0:
			return nil
		}
		query.Before = next
		c.Writer.Flush()
	}
}

// exportPage reads and writes one page of an export, and subtracts its lines from left. It reserves bytes for that page
// only.
func (h *handler) exportPage(
	ctx context.Context, c *gin.Context, query registry.AuditQuery, left *int,
) (next string, err error) {
	by := h.owner(c)
	held, err := h.responses.reserve(ctx, by, pageCost)
	if err != nil {
		return "", err
	}
	defer held.release()
	page, next, err := h.auditPage(ctx, by, query)
	if err != nil {
		return "", err
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for _, e := range page {
		_ = enc.Encode(auditLineOf(e)) // cannot fail: texts
	}
	if *left -= len(page); next != "" && *left <= 0 {
		_ = enc.Encode(map[string]string{"next_cursor": nextCursor(cursorAudit, next)})
	}
	c.Header("Content-Type", mediaNDJSON)
	c.Header("Cache-Control", "no-store")
	c.Status(http.StatusOK)
	if !held.writeParts(c.Writer, lines.Bytes()) {
		return "", errTooSlow
	}
	return next, nil
}

// Context keys: of a request's auditDetail, and of whether it is in the audit log already.
const (
	keyAudit    = "farhand.audit"
	keyRecorded = "farhand.recorded"
)

// auditDetail is what only the handler of a request knows about it. Empty fields are derived from the route.
type auditDetail struct {
	action  string // the action that was done; empty: the route's
	target  string // the id of the created or decided object; not secret
	device  string // its device_id
	outcome string // of a successful request; default registry.AuditAllowed
	reason  string // the decision
}

// audited returns a handler that records in the audit log what handle did, or failed to do, unless handle has called
// record itself.
func (h *handler) audited(action string, handle handlerFunc) handlerFunc {
	return func(c *gin.Context, q *params) error {
		err := handle(c, q)
		h.record(c, action, err)
		return err
	}
}

// record adds a request to the audit log, once. The entry's object is :id in the path: a session below /api/sessions, a
// call below /api/calls, and otherwise the target. A handler with more details sets them with noteAudit.
func (h *handler) record(c *gin.Context, action string, err error) {
	if c.GetBool(keyRecorded) {
		return
	}
	c.Set(keyRecorded, true)
	who := caller(c)
	e := registry.AuditEntry{Tenant: who.Tenant, Actor: who.Actor(), Action: action}
	switch id := c.Param("id"); action {
	case registry.AuditSessionKick, registry.AuditSessionRename, registry.AuditTurnAbort:
		e.SessionID = id
	case registry.AuditCallCancel:
		e.CallID = id
	default:
		e.Target = id
	}
	d, _ := c.Value(keyAudit).(auditDetail)
	e.Action, e.Target, e.DeviceID = cmp.Or(d.action, e.Action), cmp.Or(d.target, e.Target), d.device
	if e.Decide(err); err == nil {
		e.Outcome, e.Reason = cmp.Or(d.outcome, e.Outcome), d.reason
	}
	h.Audit.Note(e)
}

func noteAudit(c *gin.Context, d auditDetail) { c.Set(keyAudit, d) }
