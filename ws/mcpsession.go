package ws

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
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
