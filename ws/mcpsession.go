package ws

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
	"github.com/farhand/farhand/registry/routing"
)

// beginMCP starts the MCP conversation with a device that has its session. A voice device starts it itself.
func (c *conn) beginMCP() error {
	if !c.mcp.voice {
		return c.initializeMCP()
	}
	c.mcp.arm(c.lateMCP)
	return nil
}

// sendMCP queues an MCP message. The first message opens the outbox.
func (c *conn) sendMCP(message []byte) error { return c.sendFrame(c.mcp.wrap(message)) }

func (c *conn) sendFrame(frame []byte) error {
	c.mcp.mu.Lock()
	opened := c.mcp.opened
	c.mcp.opened = true
	c.mcp.mu.Unlock()
	if !opened {
		c.sendFirst(frame)
		return nil
	}
	return sendError(c.out.push(frame))
}

// greetMCP answers the hello of a voice device. If the device is not initialized yet, greetMCP then sends initialize.
func (c *conn) greetMCP() error {
	c.mcp.talk.Lock()
	defer c.mcp.talk.Unlock()
	c.mcp.useEnvelope()
	if err := c.sendFrame(helloFrame(c.mcp.session)); err != nil || c.mcp.stage > mcpInitializing {
		return err
	}
	return c.initializeMCP()
}

// initializeMCP sends initialize. Only the first hello restarts the timeout for the answer; otherwise a device could
// repeat hello to avoid it.
func (c *conn) initializeMCP() error {
	c.mcp.stage = mcpInitializing
	id := c.mcp.newRequest()
	if !c.mcp.greeted {
		c.mcp.arm(c.lateMCP)
	}
	c.mcp.greeted = c.mcp.hasEnvelope()
	return c.sendMCP(mcpInitializeFrame(id))
}

// lateMCP ends the connection of a device that did not answer in time. If the device's tools are known, the connection
// continues with them, and lists them again if they have changed since.
func (c *conn) lateMCP() {
	c.mcp.mu.Lock()
	ready := c.mcp.ready
	c.mcp.mu.Unlock()
	c.log().Info("a device did not answer the gateway's own request of MCP in time", "ready", ready)
	if !ready {
		c.end(CloseMCP)
		return
	}
	c.mcp.talk.Lock()
	defer c.mcp.talk.Unlock()
	if err := c.listChanged(); err != nil {
		c.log().Debug("tools not asked for", "error", err)
		c.end(CloseSlow) // the only error possible for this frame
	}
}

// handleMCP handles an MCP message without an equivalent in the device protocol.
func (c *conn) handleMCP(f *mcpFrame) error {
	switch {
	case f.own:
		return c.ownAnswer(f)
	case f.stray:
		c.budget.spend(unitsPerStray)
		if f.failed != nil {
			c.log().Debug("the device reports an error", "error", f.failed)
		}
	case f.id != nil && f.method == mcpPing:
		return c.sendMCP(mcpResultFrame(f.id, "{}"))
	case f.id != nil:
		return c.sendMCP(mcpErrorFrame(f.id, rpcNoMethod, "This client does not offer "+short(f.method)+"."))
	case f.method == mcpListChanged:
		return c.listAgain()
	}
	return nil
}

// ownAnswer handles the answer to a request of the gateway, unless it is late.
func (c *conn) ownAnswer(f *mcpFrame) error {
	c.mcp.talk.Lock()
	defer c.mcp.talk.Unlock()
	if !c.mcp.isPending(string(f.id)) {
		return nil
	}
	switch c.mcp.stage {
	case mcpInitializing:
		return c.initialized(f)
	case mcpDiscovering:
		return c.discovered(f)
	default:
		return withStoreTimeout(c.toolsListed, f)
	}
}

// initialized handles the answer to initialize. If the server rejects that method, it may speak the version without it.
func (c *conn) initialized(f *mcpFrame) error {
	c.mcp.disarm()
	if f.failed != nil {
		c.log().Debug("initialize refused", "error", f.failed)
		c.mcp.stage = mcpDiscovering
		id := c.mcp.newRequest()
		c.mcp.arm(c.lateMCP)
		return c.sendMCP(mcpDiscoverFrame(id))
	}
	r, err := resultFields(f.result)
	if err != nil {
		return c.failMCP(err)
	}
	version := r.text("protocolVersion")
	if *r.err != nil || !speaksMCP(version) {
		return c.failMCP(invalidMessage("protocolVersion: %s is not spoken here", quoteShort(version)))
	}
	c.noteServer(r.value("serverInfo"))
	if err := c.sendMCP(mcpNotificationFrame(mcpInitialized)); err != nil {
		return err
	}
	return c.listTools()
}

// discovered handles the answer to server/discover.
func (c *conn) discovered(f *mcpFrame) error {
	c.mcp.disarm()
	if f.failed != nil {
		return c.failMCP(f.failed)
	}
	r, err := resultFields(f.result)
	if err != nil {
		return c.failMCP(err)
	}
	if versions := r.optionalTexts("supportedVersions"); !slices.Contains(versions, mcpStatelessVersion) {
		return c.failMCP(invalidMessage("supportedVersions: none of them is spoken here"))
	}
	c.mcp.mu.Lock()
	c.mcp.meta = mcpStatelessMeta
	c.mcp.mu.Unlock()
	if tools, err := resultFields(memberOf(r.value("capabilities"), "tools")); err == nil &&
		string(tools.value("listChanged")) == "true" {
		if err := c.sendMCP(mcpListenFrame(c.mcp.newRequest())); err != nil {
			return err
		}
	}
	return c.listTools()
}

// failMCP ends a connection whose device does not speak MCP correctly.
func (c *conn) failMCP(why error) error {
	c.log().Warn("a device does not speak MCP as it must", "error", why)
	return CloseMCP
}

// rename stores a name of the device.
func (c *conn) rename(ctx context.Context, name string) error {
	return c.local.Update(ctx, func(s *registry.Session) { s.DeviceName = name })
}

// noteServer stores the name of the device's program as the device name, if the device has none.
func (c *conn) noteServer(info json.RawMessage) {
	f, err := resultFields(info)
	if err != nil || c.local.Session().DeviceName != "" {
		return
	}
	name := f.optionalText("title")
	if name == nil || *name == "" {
		name = f.optionalText("name")
	}
	if name == nil || *f.err != nil {
		return
	}
	text := legible.Line(truncate(*name, maxEcho))
	if err := withStoreTimeout(c.rename, text); err != nil {
		c.log().Debug("name of a device not kept", "error", err)
	}
}

// resultFields returns the members of an object.
func resultFields(object json.RawMessage) (*fields, error) {
	members, reason, ok := splitObject(nil, object)
	if !ok {
		if reason == "" {
			reason = "must be an object"
		}
		return nil, invalidMessage("result: %s", reason)
	}
	var bad *frameError
	return &fields{members: members, err: &bad}, nil
}

// memberOf returns a member of an object, nil if it is absent.
func memberOf(object json.RawMessage, key string) json.RawMessage {
	f, err := resultFields(object)
	if err != nil {
		return nil
	}
	return f.value(key)
}

// Headers that voice devices (xiaozhi) send with the upgrade.
const (
	headerVoiceDevice  = "Device-Id" // its MAC address
	headerVoiceVersion = "Protocol-Version"
)

// readMCP reads the device's attributes from a request to /ws/mcp, because MCP has no message for them. If the device
// names no session, its session is named after it. So a voice device that reconnects takes over its session and is not
// listed twice.
func (o *opening) readMCP(r *http.Request, query url.Values) error {
	o.mcp = &mcpLink{device: strings.Clone(query.Get("device_id"))}
	if o.mcp.device == "" {
		o.mcp.device = strings.Clone(r.Header.Get(headerVoiceDevice))
	}
	o.mcp.voice = r.Header.Get(headerVoiceDevice) != "" && r.Header.Get(headerVoiceVersion) != ""
	o.mcp.envelope = o.mcp.voice
	s := &o.session
	if s.DeviceID == "" {
		s.DeviceID = o.mcp.device
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
	said := &connectFrame{DeviceID: &c.mcp.device}
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
	c.introduced, c.mcp.session = true, begin.session.Key.Session
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
	if err := c.beginMCP(); err != nil {
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
