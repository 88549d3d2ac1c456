package api

import (
	"net/http"

	"github.com/gin-gonic/gin"

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
