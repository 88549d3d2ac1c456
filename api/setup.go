package api

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

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
