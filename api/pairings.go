package api

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// Paths of pairing that devices use.
const (
	pathPair       = "/pair"
	pathPairStatus = "/pair/status"
	pathPairRotate = "/pair/rotate"
)

// pairPolls limits how often devices of one source may poll on this pod whether they are paired.
var pairPolls = auth.Limit{Rate: 10, Burst: 100}

const (
	maxPairBody  = 16 << 10        // bytes
	pollInterval = 2 * time.Second // how often a device should poll whether it is paired
)

// pairingRoutes returns the routes that pair and manage devices.
func (h *handler) pairingRoutes() []route {
	return []route{
		{http.MethodPost, pathPair, everybody, nil, h.pair},
		{http.MethodPost, pathPairStatus, everybody, nil, h.pairStatus},
		{http.MethodPost, pairing.PathChallenge, devices, nil, h.pairChallenge},
		{http.MethodPost, pathPairRotate, devices, nil, h.audited(registry.AuditDeviceRotate, h.rotateOwn)},
		{http.MethodGet, "/api/pairings", approvers, nil, h.listPairings},
		{http.MethodPost, "/api/pairings", approvers, nil, h.audited(registry.AuditPairDecide, h.decidePairing)},
		{http.MethodPost, "/api/pairings/setup", approvers, nil, h.audited(registry.AuditPairSetup, h.makeSetup)},
		{http.MethodPost, "/api/pairings/:id", approvers, nil, h.audited(registry.AuditPairDecide, h.decidePairing)},
		{http.MethodGet, "/api/devices", approvers, []string{"presence", "limit", "cursor"}, h.listDevices},
		{http.MethodGet, "/api/devices/:id", approvers, nil, h.getDevice},
		{http.MethodPut, "/api/devices/:id", approvers, nil, h.audited(registry.AuditDeviceUpdate, h.renameDevice)},
		{http.MethodDelete, "/api/devices/:id", approvers, nil, h.audited(registry.AuditDeviceRevoke, h.revokeDevice)},
		{http.MethodPost, "/api/devices/import", admins, nil, h.audited(registry.AuditDeviceImport, h.importNodes)},
		{http.MethodPost, "/api/devices/:id/rotate", admins, nil,
			h.audited(registry.AuditDeviceRotate, h.rotateDevice)},
		{http.MethodPost, "/api/devices/:id/tools", approvers, nil,
			h.audited(registry.AuditDeviceTools, h.approveTools)},
	}
}

// pairBody reads the body of a request without a credential.
func (h *handler) pairBody(c *gin.Context) ([]byte, error) {
	body, held, err := h.bodies.readBody(c.Writer, c.Request, h.owner(c), maxPairBody)
	if held != nil {
		defer held.release()
	}
	return orNothing(body), err
}

// wantNames describes a valid list of tools, for errors.
const wantNames = "a list of names"

func (h *handler) pair(c *gin.Context, _ *params) error {
	body, err := h.pairBody(c)
	if err != nil {
		return err
	}
	in, err := readRequest[wire.PairRequest](body, map[string]string{"tools": wantNames})
	if err != nil {
		return err
	}
	r := pairing.Request{
		DeviceID: in.said.DeviceID, DeviceName: in.said.DeviceName, Platform: in.said.Platform, Tools: in.said.Tools,
	}
	if in.said.PublicKey != "" {
		if r.PublicKey, err = base64.RawURLEncoding.DecodeString(in.said.PublicKey); err != nil {
			return wrongType("public_key", "an Ed25519 key, 32 bytes in base64url without padding")
		}
	}
	asked, err := h.Pairing.Ask(storeContext(c), r, h.Sources.Network(c.Request))
	if err != nil {
		return h.Refusals.Pairing(c.Request, err)
	}
	return h.writeUncached(c, http.StatusCreated, wire.PairAsked{
		ID: asked.ID, Secret: asked.Secret, Code: asked.Code, DeviceID: asked.DeviceID,
		ExpiresIn: int(asked.ExpiresIn.Seconds()), Interval: int(pollInterval.Seconds()),
	})
}

// pairStatus returns whether a device is paired, and its credential once.
func (h *handler) pairStatus(c *gin.Context, _ *params) error {
	if !h.pairPolls.Take(h.Sources.Network(c.Request), 1) {
		e := registry.Errorf(registry.CodeRateLimited, "Too many pairing requests came from this address. Retry later.")
		e.RetryAfter = time.Duration(float64(time.Second) / pairPolls.Rate)
		return h.Refusals.Pairing(c.Request, e)
	}
	body, err := h.pairBody(c)
	if err != nil {
		return err
	}
	r, err := readStrict[wire.PairSecret](body, nil)
	if err != nil {
		return err
	}
	if r.said.Secret == "" {
		return missing("secret")
	}
	got, err := h.Pairing.Collect(storeContext(c), r.said.Secret)
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, wire.PairStatus{
		Status: string(got.State), DeviceID: got.DeviceID, Name: got.Name, Credential: got.Credential,
	})
}

func (h *handler) pairChallenge(c *gin.Context, _ *params) error {
	nonce, err := h.Pairing.Challenge(storeContext(c), caller(c), h.Sources.Network(c.Request))
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, wire.Challenge{
		Nonce: nonce, ExpiresIn: int(registry.NonceTTL.Seconds()),
	})
}

func (h *handler) approver(c *gin.Context) pairing.Approver {
	return pairing.Approver{Identity: caller(c), Source: h.Sources.Network(c.Request).String()}
}

func (h *handler) listPairings(c *gin.Context, _ *params) error {
	views, err := h.Pairing.Waiting(storeContext(c), h.approver(c))
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, wire.PairingList{Pairings: each(views, pairingOf)})
}

func pairingOf(v pairing.View) wire.Pairing {
	row := wire.Pairing{
		ID: v.ID, Status: string(pairing.StateOf(v.Pairing)), DeviceID: v.DeviceID, DeviceName: v.DeviceName,
		Platform: v.Platform, Client: v.Client, Tools: v.Tools, Fingerprint: fingerprint(v.PublicKey), Source: v.Source,
		AlreadyPaired: v.Known, LooksLike: v.LooksLike, Remarks: v.Remarks,
		CreatedAt: shownTime(v.CreatedAt), ExpiresAt: shownTime(v.ExpiresAt),
	}
	if d := v.Decision; d != nil {
		row.UserID = d.User
		if d.Approved {
			row.Tools, row.DeviceName = d.Tools, d.Name
		}
	}
	if row.Tools == nil {
		row.Tools = []string{}
	}
	return row
}

// fingerprint returns a short hash by which people compare public keys.
func fingerprint(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

func (h *handler) decidePairing(c *gin.Context, _ *params) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	r, err := readRequest[wire.PairingDecision](orNothing(body), map[string]string{
		"tools": "a list of names or globs", "replace": "true or false",
	})
	if err != nil {
		return err
	}
	id, code := c.Param("id"), r.said.Code
	if id == "" && code == "" {
		return registry.Errorf(registry.CodeInvalidRequest, "The field \"code\" is missing: the device shows it.")
	}
	decision := pairing.Decision{
		User: r.said.User, Name: r.said.Name, Tools: r.said.Tools, Replace: r.said.Replace,
	}
	text, decided := r.fields.get("decision")
	if decided {
		choice, err := readEither(text, "decision", "approve", "reject")
		if err != nil {
			return err
		}
		decision.Approve = choice == "approve"
	}
	if !decided && id != "" {
		return wrongType("decision", `"approve" or "reject"`)
	}
	ctx := storeContext(c)
	if !decided {
		return h.lookAtPairing(ctx, c, code)
	}
	view, err := h.Pairing.Decide(ctx, h.approver(c), id, code, decision)
	if err != nil {
		return err
	}
	noteAudit(c, auditOf(view))
	return h.writeUncached(c, http.StatusOK, pairingOf(view))
}

// lookAtPairing shows the request that a code names, without a decision. The audit log records the look.
func (h *handler) lookAtPairing(ctx context.Context, c *gin.Context, code string) error {
	looked := auditDetail{action: registry.AuditPairLook, outcome: registry.AuditSeen}
	noteAudit(c, looked)
	view, err := h.Pairing.Find(ctx, h.approver(c), code)
	if err != nil {
		return err
	}
	looked.target, looked.device = view.ID, view.DeviceID
	noteAudit(c, looked)
	return h.writeUncached(c, http.StatusOK, pairingOf(view))
}

func auditOf(v pairing.View) auditDetail {
	d := auditDetail{target: v.ID, device: v.DeviceID}
	switch pairing.StateOf(v.Pairing) {
	case pairing.StateRejected:
		d.outcome, d.reason = registry.AuditDenied, "rejected"
	case pairing.StateApproved:
		d.reason = "approved; tools: " + strings.Join(v.Decision.Tools, ", ")
		if v.Decision.User != "" {
			d.reason += "; user: " + v.Decision.User
		}
	}
	return d
}

// makeSetup makes a setup code, with which one OpenClaw node pairs.
func (h *handler) makeSetup(c *gin.Context, _ *params) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	r, err := readStrict[wire.SetupRequest](orNothing(body), map[string]string{"tools": "a list of names or globs"})
	if err != nil {
		return err
	}
	if h.DeviceNode == nil {
		return registry.Errorf(registry.CodeNotFound, "This gateway serves no OpenClaw nodes (FARHAND_NODE_PATH).")
	}
	address := r.said.URL
	if address == "" {
		address = h.nodeURL(c.Request)
	}
	if address, err = pairing.NodeURL(address); err != nil {
		return err
	}
	made, err := h.Pairing.MakeSetup(storeContext(c), h.approver(c), pairing.SetupRequest{
		User: r.said.User, Name: r.said.Name, Tools: r.said.Tools,
	})
	if err != nil {
		return err
	}
	code := made.Code(address)
	return h.writeUncached(c, http.StatusCreated, wire.SetupCode{
		Code: code, PairURL: pairing.SetupScheme + code, URL: address, ExpiresAt: shownTime(made.ExpiresAt),
	})
}

// nodeURL returns where nodes connect: the public URL with the path of nodes or, without one, the host of a request.
func (h *handler) nodeURL(r *http.Request) string {
	base := h.Resource.URL
	if base == "" {
		base = "http://" + r.Host
		if r.TLS != nil {
			base = "https://" + r.Host
		}
	}
	return base + h.NodePath
}

// maxImported is how many nodes one request imports. Each is a change that deviceChanges counts.
const maxImported = 50

// importNodes pairs nodes of an OpenClaw installation. It is for admins, who vouch for the keys. A node that cannot be
// paired does not keep the others from it.
func (h *handler) importNodes(c *gin.Context, _ *params) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	r, err := readStrict[wire.ImportRequest](body, map[string]string{"nodes": "a list of nodes"})
	if err != nil {
		return err
	}
	nodes := r.said.Nodes
	if len(nodes) == 0 || len(nodes) > maxImported {
		return wrongType("nodes", fmt.Sprintf("a list of 1 to %d nodes", maxImported))
	}
	keys := make([]ed25519.PublicKey, len(nodes))
	for i, n := range nodes { // before any is imported
		if keys[i], err = base64.RawURLEncoding.DecodeString(n.PublicKey); err != nil {
			return wrongType("public_key", "an Ed25519 key, 32 bytes in base64url without padding")
		}
	}
	if err := mayChangeMany(c, h.changes, deviceChanges, "changes of paired devices", len(nodes)); err != nil {
		return err
	}
	ctx, done := storeContext(c), 0
	report := wire.ImportReport{Nodes: make([]wire.ImportedState, len(nodes))}
	for i, n := range nodes {
		state, err := h.Pairing.Import(ctx, h.approver(c), pairing.Imported{
			PublicKey: keys[i], TokenDigest: n.TokenDigest, User: r.said.User, Name: n.Name,
			Tools: n.Tools,
		})
		report.Nodes[i] = wire.ImportedState{DeviceID: pairing.NodeID(keys[i]), Status: string(state)}
		if problem := registry.AsError(err); err != nil {
			if problem.Code == registry.CodeStoreUnavailable {
				return err
			}
			report.Nodes[i].Status, report.Nodes[i].Reason = "refused", auth.ProblemOf(problem).Detail
		}
		if state == pairing.ImportDone {
			done++
		}
	}
	noteAudit(c, auditDetail{reason: fmt.Sprintf("imported %d of %d OpenClaw nodes", done, len(nodes))})
	return h.writeUncached(c, http.StatusOK, report)
}
