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

// beginMCP begins the conversation with a device that has its session. A voice device begins it itself.
func (c *conn) beginMCP() error {
	if !c.mcp.voice {
		return c.initializeMCP()
	}
	c.mcp.arm(c.lateMCP)
	return nil
}

// sendMCP queues a message of MCP. The first one opens the outbox.
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

// greetMCP answers the hello of a voice device. Then, if the device has not answered in an envelope yet, it is asked.
func (c *conn) greetMCP() error {
	c.mcp.talk.Lock()
	defer c.mcp.talk.Unlock()
	c.mcp.useEnvelope()
	if err := c.sendFrame(helloFrame(c.mcp.session)); err != nil || c.mcp.stage > mcpInitializing {
		return err
	}
	return c.initializeMCP()
}

// initializeMCP asks a device to begin. The time for the answer begins anew with the first hello only: who says it
// again and again would never be late.
func (c *conn) initializeMCP() error {
	c.mcp.stage = mcpInitializing
	id := c.mcp.newRequest()
	if !c.mcp.greeted {
		c.mcp.arm(c.lateMCP)
	}
	c.mcp.greeted = c.mcp.hasEnvelope()
	return c.sendMCP(mcpInitializeFrame(id))
}

// lateMCP ends a connection whose device has not answered in time. One whose tools are known goes on with those, and is
// asked for them again if they have changed since they were asked for.
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
		c.end(CloseSlow) // nothing else can be wrong with a frame of ours
	}
}

// handleMCP handles a message of MCP that is no frame of the device protocol in other words.
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

// ownAnswer goes on with the answer to a request of the gateway itself, unless it is late.
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

// initialized takes the answer to initialize. A server that does not know that method may be of the version that has
// none.
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

// discovered takes the answer to server/discover.
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

// failMCP ends a connection whose device cannot be spoken to.
func (c *conn) failMCP(why error) error {
	c.log().Warn("a device does not speak MCP as it must", "error", why)
	return CloseMCP
}

// rename keeps a name of the device.
func (c *conn) rename(ctx context.Context, name string) error {
	return c.local.Update(ctx, func(s *registry.Session) { s.DeviceName = name })
}

// noteServer keeps the name of the device's program as that of the device, if it has no other.
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

// memberOf returns a member of an object, nil if it is not there.
func memberOf(object json.RawMessage, key string) json.RawMessage {
	f, err := resultFields(object)
	if err != nil {
		return nil
	}
	return f.value(key)
}

// Headers that voice devices (xiaozhi) send with the upgrade.
const (
	headerVoiceDevice  = "Device-Id" // the address of its network card
	headerVoiceVersion = "Protocol-Version"
)

// readMCP reads what a request to /ws/mcp says of its device, because MCP has no message for it. A device that names no
// session has one that is named after it: a voice device that comes back takes over its session, and is not there
// twice.
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

// sessionOfDevice returns the id of the session of a device that names none: the id of the device, and its user's.
// Empty: no session can be named so.
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

// openMCP is open for a device that speaks MCP. The request has introduced it already.
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
	_, proof := c.newResumeToken() // so that calls know whom they were given to
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
	if err := c.mayBe(said); err != nil { // it was paired meanwhile
		c.refuseDevice(err)
		return
	}
	c.log().Info("device connected", "resumed", resumed, "mcp", true)
	if err := c.beginMCP(); err != nil {
		c.fail(err)
	}
}

// obtain claims a session that another connection has, for a device that has introduced itself.
func (c *conn) obtain(s registry.Session, held *registry.Held, intro registry.Introduction,
) (*routing.LocalSession, error) {
	ctx, cancel := context.WithTimeout(context.Background(), introductionWait)
	defer cancel()
	introductions := make(chan registry.Introduction, 1)
	introductions <- intro
	return c.server.cfg.Pod.Hub.Obtain(ctx, s, c, held, introductions)
}
