package ws

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// Headers that voice devices (xiaozhi) send with the upgrade.
const (
	headerVoiceDevice  = "Device-Id" // its MAC address
	headerVoiceVersion = "Protocol-Version"
)

// readMCP reads the device's attributes from a request to /ws/mcp, because MCP has no message for them. If the device
// names no session, its session is named after it. So a voice device that reconnects takes over its session and is not
// listed twice.
func (o *opening) readMCP(r *http.Request, query url.Values) error {
	o.mcp = &mcpDevice{id: strings.Clone(query.Get("device_id"))}
	if o.mcp.id == "" {
		o.mcp.id = strings.Clone(r.Header.Get(headerVoiceDevice))
	}
	o.mcp.voice = r.Header.Get(headerVoiceDevice) != "" && r.Header.Get(headerVoiceVersion) != ""
	s := &o.session
	if s.DeviceID == "" {
		s.DeviceID = o.mcp.id
	}
	s.DeviceName = strings.Clone(query.Get("device_name"))
	s.Platform = strings.Clone(query.Get("platform"))
	s.Capabilities = []string{registry.CapabilityCancel, registry.CapabilityProgress}
	switch query.Get("resume") {
	case "", "false":
	case "true":
		s.Capabilities = append(s.Capabilities, registry.CapabilityResume)
	default:
		return registry.Errorf(registry.CodeInvalidRequest, "resume: must be true or false.")
	}
	for _, label := range query["label"] {
		key, value, ok := strings.Cut(strings.Clone(label), "=")
		if !ok {
			return registry.Errorf(registry.CodeInvalidRequest, "label: must look like key=value.")
		}
		if s.Labels == nil {
			s.Labels = make(map[string]string)
		}
		s.Labels[key] = value
	}
	if s.Key.Session == "" {
		s.Key.Session = sessionOfDevice(s)
	}
	return nil
}

// sessionOfDevice returns the session id for a device that names none. It consists of the ids of the device and its
// user. It is empty if no valid id can be built.
func sessionOfDevice(s *registry.Session) string {
	key := registry.Key{Tenant: s.Tenant, Session: s.DeviceID}
	if s.UserID != "" {
		key.Session += "@" + s.UserID
	}
	if s.DeviceID == "" || checkID(key) != nil {
		return ""
	}
	return key.Session
}

// openMCP is open for an MCP device. The upgrade request has already introduced the device.
func (c *conn) openMCP(begin opening) {
	defer c.recoverPanic()
	said := &connectFrame{DeviceID: &c.mcp.id}
	if err := c.mayBe(said); err != nil {
		c.refuseDevice(err)
		return
	}
	if !c.budget.takeLabels(begin.session.Labels) {
		c.end(CloseRate)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	_, proof := c.newResumeToken() // so that calls know which device they were given to
	begin.session.Proofs = []string{proof}
	c.introduced = true
	intro := registry.Introduction{DeviceID: begin.session.DeviceID, Holder: c.who.Holder()}
	local, resumed, err := c.server.cfg.Pod.Hub.Open(ctx, begin.session, c)
	if held := (*registry.Held)(nil); errors.As(err, &held) {
		c.endOpening()
		resumed = true
		local, err = c.obtain(begin.session, held, intro)
	}
	if err != nil {
		c.failOpen(begin.session, err)
		return
	}
	c.mu.Lock()
	c.local, c.wantsCancel = local, true
	c.mu.Unlock()
	if local.Introduce(intro) {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		if err := local.Update(ctx, func(*registry.Session) {}); err != nil {
			c.fail(err)
			return
		}
	}
	if err := c.mayBe(said); err != nil { // paired meanwhile
		c.refuseDevice(err)
		return
	}
	c.log().Info("device connected", "resumed", resumed, "mcp", true)
	if err := c.perform(ctx, c.mcp.Begin()); err != nil {
		c.fail(err)
	}
}

// obtain claims a session that another connection holds, for a device that has introduced itself.
func (c *conn) obtain(s registry.Session, held *registry.Held, intro registry.Introduction,
) (*routing.LocalSession, error) {
	ctx, cancel := context.WithTimeout(context.Background(), introductionWait)
	defer cancel()
	introductions := make(chan registry.Introduction, 1)
	introductions <- intro
	return c.server.cfg.Pod.Hub.Obtain(ctx, s, c, held, introductions)
}
