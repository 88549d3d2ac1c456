package api

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

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
