package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/parallel"
	"github.com/farhand/farhand/registry"
)

// deviceChanges limits how often the approvers of a tenant may change its paired devices on this pod. Each change is a
// line of a log with limited space that all tenants share. Without a limit, one tenant could push other tenants'
// revocations out of it. Revoking a device is not limited.
var deviceChanges = auth.Limit{Rate: 0.5, Burst: 100}

// mayChange counts a change of a paired device, or fails if there are too many.
func (h *handler) mayChange(c *gin.Context) error {
	return mayChange(c, h.changes, deviceChanges, "changes of paired devices")
}

// mayChange takes one token of a tenant's bucket, or fails with registry.CodeRateLimited.
func mayChange(c *gin.Context, of *auth.Buckets[string], limit auth.Limit, what string) error {
	return mayChangeMany(c, of, limit, what, 1)
}

func mayChangeMany(c *gin.Context, of *auth.Buckets[string], limit auth.Limit, what string, n int) error {
	if of.Take(caller(c).Tenant, float64(n)) {
		return nil
	}
	e := registry.Errorf(registry.CodeRateLimited,
		"Nothing was changed: this tenant made too many %s in a short time. Retry later.", what)
	e.RetryAfter = time.Duration(float64(n) * float64(time.Second) / limit.Rate)
	return e
}

// devicesNow is the state of devices that is not in their credentials, by device id.
type devicesNow struct {
	online map[string]registry.Entry
	alike  map[string]string    // other devices they can be mistaken for
	seen   map[string]time.Time // those that sleep, if the request asks for presence
}

// presence returns whether a device is connected or sleeps; empty: neither.
func (n devicesNow) presence(d registry.Credential) string {
	if _, online := n.online[d.DeviceID]; online {
		return presenceConnected
	}
	if _, sleeps := n.seen[d.DeviceID]; sleeps {
		return presenceSleeping
	}
	return ""
}

// devicesNow looks up the current state of devices of a tenant.
func (h *handler) devicesNow(ctx context.Context, by pairing.Approver, ids ...string) (now devicesNow, err error) {
	if now.online, err = h.Directory.OnlineDevices(ctx, by.Tenant, ids); err != nil {
		return now, err
	}
	now.alike, err = h.Pairing.LookAlikes(ctx, by, ids...)
	return now, err
}

func deviceRowOf(c registry.Credential, now devicesNow) wire.DeviceRow {
	row := wire.DeviceRow{
		ID: c.ID, DeviceID: c.DeviceID, LooksLike: now.alike[c.DeviceID], Name: c.Name, UserID: c.User,
		Fingerprint: fingerprint(c.PublicKey),
		Tools:       []string{}, CreatedAt: shownTime(c.CreatedAt), CreatedBy: c.CreatedBy,
		LastUsed: optionalTime(c.LastUsed), ExpiresAt: optionalTime(c.ExpiresAt), Former: formerOf(c),
		Node: pairing.IsNode(c), Renew: c.Renew,
	}
	if e, ok := now.online[c.DeviceID]; ok {
		row.Presence = presenceOf(e.Pulse)
	}
	for _, a := range c.Approved {
		if a.Hash == "" {
			row.Tools = append(row.Tools, a.Name)
		}
	}
	return row
}

func definitionOf(t registry.ToolSpec) wire.WaitingDefinition {
	return wire.WaitingDefinition{
		Name: t.Name, Description: t.Description, Parameters: t.Parameters, TimeoutMS: t.TimeoutMS,
		Annotations: t.Annotations, SecurityLevel: t.SecurityLevel, OutputSchema: t.OutputSchema,
		Effects: t.Effects, Tags: t.Tags,
	}
}

func deviceOf(d pairing.Device, now devicesNow) wire.Device {
	detail := wire.Device{
		DeviceRow: deviceRowOf(d.Credential, now), Approved: []registry.ApprovedTool{}, Rejected: []string{},
		Waiting: []wire.WaitingTool{},
	}
	detail.WaitingTools = len(d.Waiting)
	detail.Approved = append(detail.Approved, d.Pins()...)
	detail.Rejected = append(detail.Rejected, d.Rejected()...)
	for _, t := range d.Waiting {
		w := wire.WaitingTool{WaitingDefinition: definitionOf(t), Hash: t.Hash()}
		for _, a := range detail.Approved {
			if a.Name == t.Name {
				w.ApprovedHash = a.Hash
			}
		}
		for _, p := range d.Pinned {
			if p.Name == t.Name {
				before := definitionOf(p)
				w.Before, w.Changed = &before, changedFields(before, w.WaitingDefinition)
			}
		}
		detail.Waiting = append(detail.Waiting, w)
	}
	return detail
}

// changedFields returns the names of the fields in which two definitions differ.
func changedFields(a, b wire.WaitingDefinition) []string {
	fields := func(d wire.WaitingDefinition) map[string]json.RawMessage {
		text, _ := json.Marshal(d) // cannot fail: its parts were JSON before
		members := make(map[string]json.RawMessage)
		_ = json.Unmarshal(text, &members)
		return members
	}
	before, after := fields(a), fields(b)
	var changed []string
	for _, name := range [...]string{
		"description", "parameters", "timeout_ms", "annotations", "security_level", registry.FieldOutputSchema,
		"effects", "tags",
	} {
		if string(before[name]) != string(after[name]) {
			changed = append(changed, name)
		}
	}
	return changed
}

func (h *handler) listDevices(c *gin.Context, q *params) error {
	limit, from, presence := q.limit(), q.cursor(cursorDevices), q.presence()
	if err := q.failed(); err != nil {
		return err
	}
	ctx, by := storeContext(c), h.approver(c)
	all, next, err := h.Pairing.Devices(ctx, by, from.Name, limit)
	if err != nil {
		return err
	}
	now, err := h.devicesNow(ctx, by, each(all, func(d registry.Credential) string { return d.DeviceID })...)
	if err != nil {
		return err
	}
	if presence != "" {
		if now.seen, err = h.lastSeen(ctx, all, now); err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(d registry.Credential) bool {
			return presence != presenceAny && now.presence(d) != presence
		})
	}
	if err := h.reserveAnswer(ctx, c, pageCost); err != nil { // the stored tools are longer than the answer
		return err
	}
	waiting, err := h.Pairing.WaitingTools(ctx, all...)
	if err != nil {
		return err
	}
	page := wire.DeviceList{Devices: []wire.DeviceRow{}, NextCursor: nextCursor(cursorDevices, next)}
	for i, d := range all {
		row := deviceRowOf(d, now)
		row.WaitingTools = waiting[i]
		if presence != "" {
			row.PresenceNow, row.LastSeen = now.presence(d), optionalTime(now.seen[d.DeviceID])
		}
		page.Devices = append(page.Devices, row)
	}
	return h.writeUncached(c, http.StatusOK, page)
}

// lastSeen returns when the paired devices that are not connected were last connected, if they are remembered.
func (h *handler) lastSeen(
	ctx context.Context, devices []registry.Credential, now devicesNow,
) (map[string]time.Time, error) {
	seen := make([]time.Time, len(devices))
	err := parallel.Each(len(devices), sleepingReads, func(i int) error {
		d := devices[i]
		if _, online := now.online[d.DeviceID]; online || h.Devices == nil {
			return nil
		}
		found, _, err := h.Devices.KnownDevices(ctx, registry.KnownQuery{
			Tenant: d.Tenant, Limit: sameDevice,
			Target: registry.Target{DeviceID: d.DeviceID, Bound: true}, // others only say that they have the id
		})
		for _, known := range found {
			if known.LastSeen.After(seen[i]) {
				seen[i] = known.LastSeen
			}
		}
		return err
	})
	by := make(map[string]time.Time)
	for i, d := range devices {
		if !seen[i].IsZero() {
			by[d.DeviceID] = seen[i]
		}
	}
	return by, err
}

// onDevice runs step on the device that the path names, and answers with the device that step returns.
func (h *handler) onDevice(
	c *gin.Context, step func(ctx context.Context, by pairing.Approver, id string) (pairing.Device, error),
) error {
	ctx := storeContext(c)
	d, err := step(ctx, h.approver(c), c.Param("id"))
	if err != nil {
		return err
	}
	now, err := h.devicesNow(ctx, h.approver(c), d.DeviceID)
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, deviceOf(d, now))
}

func (h *handler) getDevice(c *gin.Context, _ *params) error { return h.onDevice(c, h.Pairing.Device) }

func (h *handler) renameDevice(c *gin.Context, _ *params) error {
	name, err := h.readName(c)
	if err != nil {
		return err
	}
	if err := h.mayChange(c); err != nil {
		return err
	}
	return h.onDevice(c, func(ctx context.Context, by pairing.Approver, id string) (pairing.Device, error) {
		return h.Pairing.Rename(ctx, by, id, name)
	})
}

func (h *handler) revokeDevice(c *gin.Context, _ *params) error {
	if err := h.Pairing.Revoke(storeContext(c), h.approver(c), c.Param("id")); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

func (h *handler) approveTools(c *gin.Context, _ *params) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	r, err := readRequest[wire.ToolDecision](orNothing(body), map[string]string{
		"approve": "a list of objects with name and hash", "reject": wantNames,
	})
	if err != nil {
		return err
	}
	approve, reject := r.said.Approve, r.said.Reject
	if len(approve)+len(reject) == 0 {
		return registry.Errorf(registry.CodeInvalidRequest, "Name the tools to approve or to reject.")
	}
	if err := h.mayChange(c); err != nil {
		return err
	}
	names := each(approve, func(t wire.ApprovedTool) string { return t.Name })
	noteAudit(c, auditDetail{
		reason: "approved: " + strings.Join(names, ", ") + "; rejected: " + strings.Join(reject, ", "),
	})
	return h.onDevice(c, func(ctx context.Context, by pairing.Approver, id string) (pairing.Device, error) {
		return h.Pairing.ApproveTools(ctx, by, id, approve, reject)
	})
}

const pathDefaultDevice = "/api/users/:id/default-device"

// ofUser returns the user of the path, if the caller is that user or an admin.
func ofUser(c *gin.Context) (auth.Identity, string, error) {
	who, user := caller(c), c.Param("id")
	change := registry.CredentialChange{Tenant: who.Tenant, Kind: registry.ChangeUser, ID: user}
	if err := change.Validate(); err != nil {
		return who, "", err
	}
	if !who.Admin && who.User != user {
		return who, "", auth.NeedRole(who, auth.NameAdmin)
	}
	return who, user, nil
}

func (h *handler) getDefaultDevice(c *gin.Context, _ *params) error {
	who, user, err := ofUser(c)
	if err != nil {
		return err
	}
	device, err := h.Defaults.DefaultDevice(storeContext(c), who.Tenant, user)
	if err != nil {
		return err
	}
	return h.respond(c, wire.DefaultDevice{DeviceID: device})
}

func parseDefaultDevice(body []byte) (string, error) {
	r, err := readStrict[wire.DefaultDevice](orNothing(body), nil)
	if err == nil && r.said.DeviceID == "" {
		err = missing("device_id")
	}
	if err != nil {
		return "", err
	}
	return r.said.DeviceID, registry.Session{DeviceID: r.said.DeviceID}.ValidateAttributes()
}

func (h *handler) setDefaultDevice(c *gin.Context, _ *params) error {
	who, user, err := ofUser(c)
	if err != nil {
		return err
	}
	device, err := readAs(h, c, parseDefaultDevice)
	if err != nil {
		return err
	}
	if err := h.Defaults.SetDefaultDevice(storeContext(c), who.Tenant, user, device); err != nil {
		return err
	}
	noteAudit(c, auditDetail{target: user, device: device})
	return h.writeJSON(c, http.StatusOK, wire.DefaultDevice{DeviceID: device})
}

func (h *handler) dropDefaultDevice(c *gin.Context, _ *params) error {
	who, user, err := ofUser(c)
	if err != nil {
		return err
	}
	err = h.Defaults.DropDefaultDevice(storeContext(c), who.Tenant, user)
	if err != nil && !errors.Is(err, registry.ErrNoDefault) {
		return err
	}
	noteAudit(c, auditDetail{target: user})
	c.Status(http.StatusNoContent)
	return nil
}
