package ws

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws/node"
	"github.com/farhand/farhand/ws/node/commands"
)

// nodeLink is the connection's part of an OpenClaw node.
type nodeLink struct {
	*node.Machine
	catalogs connCatalogs
}

// nodeDevice is what the handshake found out about a node. Only the opening of its connection uses it.
type nodeDevice struct {
	hello    *node.Hello
	token    string           // its new credential; empty: it has one
	socket   *handshakeSocket // upgraded already
	catalogs connCatalogs     // passes to the nodeLink
}

// connCatalogs are the catalogs that a connection holds. The zero value holds none. Only the goroutine that opens the
// connection, and then its reader, use it.
type connCatalogs struct {
	server  *Server
	owner   share.Owner
	own     *commands.Catalog // without plug-in tools; nil: none
	current *commands.Catalog // with plug-in tools; nil: own
}

// holdCatalog returns the hold of the catalog of a node with an identity. It fails with CodeRateLimited.
func (s *Server) holdCatalog(who *auth.Identity, hello *node.Hello) (connCatalogs, error) {
	h := connCatalogs{server: s, owner: who.Owner(), own: s.catalogs.of(hello.Node, nil)}
	if err := s.catalogs.hold(s.cfg.Pod.Hub, h.owner, h.own); err != nil {
		return connCatalogs{}, err
	}
	return h, nil
}

// with returns the catalog of the node with the plug-in tools that it published, in place of the one before. If there
// is no room for it, that is the catalog without them.
func (h *connCatalogs) with(plugins []json.RawMessage) *commands.Catalog {
	if h.current != nil { // first: tools in place of others need room only for what is more
		h.server.catalogs.release(h.owner.Tenant, h.current)
		h.current = nil
	}
	if len(plugins) > 0 {
		made := h.server.catalogs.of(h.own.Node(), plugins)
		if err := h.server.catalogs.hold(h.server.cfg.Pod.Hub, h.owner, made); err == nil {
			h.current = made
		} else {
			h.server.log.Debug("plug-in tools of a node are not offered", "tenant", h.owner.Tenant, "error", err)
		}
	}
	return cmp.Or(h.current, h.own)
}

func (h *connCatalogs) release() {
	for _, c := range [...]*commands.Catalog{h.own, h.current} {
		if c != nil {
			h.server.catalogs.release(h.owner.Tenant, c)
		}
	}
	h.own, h.current = nil, nil
}

// minTick is the least interval of ticks in hello-ok. It is that of OpenClaw's gateway. Ticks are sent with
// pings, which are more frequent by default.
const minTick = 30 * time.Second

// readNode takes the session from what a node said. Its session is named after it, so a node that reconnects takes over
// its session.
func (o *opening) readNode(hello *node.Hello) {
	o.node = &nodeDevice{hello: hello}
	o.session = sessionOf(o.who, "")
	s := &o.session
	if s.DeviceID == "" {
		s.DeviceID = hello.DeviceID
	}
	s.DeviceName, s.Platform = hello.DisplayName, hello.Node.Platform
	s.Labels = commands.Labels(hello.Node)
	s.Capabilities = []string{registry.CapabilityCancel, registry.CapabilityProgress}
	s.Key.Session = sessionOfDevice(s)
	if o.derived = s.Key.Session != ""; !o.derived {
		s.Key.Session, o.fresh = hello.DeviceID, false
	}
}

// nodeProof is what stands for a resume token of a node. The handshake has proved that the node has its key, so its id
// is enough. It is longer than a resume token may be, so no device can present it in a frame.
func nodeProof(id string) string { return "openclaw-node:" + strings.Repeat(id, 3) }

func (s *Server) newNodeLink(device *nodeDevice) *nodeLink {
	hello := device.hello
	link := &nodeLink{catalogs: device.catalogs}
	link.Machine = node.New(node.Config{
		NodeID: hello.DeviceID, Protocol: hello.Protocol, Catalog: link.catalogs.with,
	})
	return link
}

// openNode is open for an OpenClaw node, which has introduced itself in the handshake.
func (c *conn) openNode(begin opening) {
	defer c.recoverPanic()
	hello := begin.node.hello
	if err := c.mayBe(hello.DeviceID); err != nil {
		refusal := refusalToOpen(hello, err)
		if errors.Is(err, errImpostor) || errors.Is(err, errPairedID) {
			refusal = hello.RefuseToken(err.Error())
		}
		c.sendFirst(refusal.Frame())
		c.refuseDevice(err)
		return
	}
	if c.budget.takeLabels(begin.session.Labels) != noSpender {
		c.end(CloseRate)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout+introductionWait)
	defer cancel()
	intro := registry.Introduction{
		DeviceID: begin.session.DeviceID, Token: nodeProof(hello.DeviceID), Holder: c.who.Holder(),
	}
	begin.session.Proofs = []string{intro.Proof()}
	c.introduced = true
	local, resumed, err := c.claim(ctx, begin.session, intro)
	if err != nil {
		if ctx.Err() != nil { // the claim is undecided, whatever the error says
			err = registry.Errorf(registry.CodeStoreUnavailable, "The node's session was not opened in time.")
		}
		c.sendFirst(refusalToOpen(hello, err).Frame())
		c.failOpen(begin.session, err)
		return
	}
	c.mu.Lock()
	c.local, c.wantsCancel = local, true
	c.mu.Unlock()
	if local.Introduce(intro) {
		if err := local.Update(ctx, func(*registry.Session) {}); err != nil {
			c.fail(err)
			return
		}
	}
	c.sendFirst(c.welcome(begin.node))
	c.note(slog.LevelInfo, "device connected", "resumed", resumed, "node", hello.ClientID,
		"version", hello.Version, "protocol", hello.Protocol)
	if err := c.offerNode(ctx); err != nil {
		c.fail(err)
	}
}

// welcome returns hello-ok.
func (c *conn) welcome(device *nodeDevice) []byte {
	s := c.server
	ref := c.local.Session()
	return node.Welcome{
		Version: s.cfg.Version, Connection: ref.Pod + "-" + ref.Key.Session[:min(8, len(ref.Key.Session))],
		DeviceToken: device.token, MaxPayload: s.cfg.MaxNodeFrame, MaxBuffered: int64(s.cfg.MaxOutbound),
		Tick: max(minTick, s.cfg.PingInterval), Uptime: s.now(),
	}.Frame(device.hello)
}

// decode decodes a frame. The answer to a call becomes a frame of the device protocol. Errors are as of decodeFrame.
func (l *nodeLink) decode(data []byte, spend func(units float64) time.Duration) (any, error) {
	frame, values, err := l.Decode(data)
	if values > 0 { // delays the next read
		spend(unitsPerValue * float64(values))
	}
	if a, ok := frame.(*node.Answer); ok && a.Ask == "" {
		return &toolResultFrame{Type: typeToolResult, ID: a.Call, result: a.Result}, nil
	}
	return frame, err
}

// callNode returns the frame that starts a call.
func (c *conn) callNode(call routing.DeviceCall) ([]byte, error) {
	return c.node.Call(call.ID, call.Tool, commands.Call{
		Args: call.Args, Left: call.Timeout, Approved: call.Approved,
	})
}

// sendNode queues a frame to a node.
func (c *conn) sendNode(frame []byte) error {
	return c.queue(frame, func() error { return c.out.push(frame) })
}

// handleNode carries out what a request needs.
func (c *conn) handleNode(ctx context.Context, r *node.Request) (err error) {
	for _, e := range c.node.Handle(r) {
		switch e := e.(type) {
		case node.Send:
			err = c.sendNode(e.Frame)
		case node.Charge:
			c.budget.spend(unitsPerStray)
		case node.Offer:
			c.budget.spend(unitsPerStore)
			if err = c.offerNode(ctx); err == nil {
				err = c.sendNode(e.Answer(c.offers))
			}
		case node.Seen:
			if c.who.Use != nil {
				c.who.Use.NoteUse()
			}
		case node.Log:
			c.note(e.Level, e.Text, e.Args...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stepNode asks a node for what a call needs next.
func (c *conn) stepNode(s *node.Step) error {
	left, running := c.local.Remaining(s.Call)
	if ack := c.node.Acknowledge(s.Call, !running); ack != nil {
		if err := c.sendNode(ack); err != nil {
			return err
		}
	}
	if !running {
		return nil
	}
	frame := c.node.Next(s, left)
	if frame == nil {
		return nil
	}
	if err := c.sendNode(frame); err != nil {
		return err
	}
	if _, running = c.local.Remaining(s.Call); !running { // it ended meanwhile, when the node ran nothing to cancel
		c.Cancel(s.Call, "the call ended")
	}
	return nil
}

// Files stores files that the gateway itself adds to a result. *blobs.Service implements it.
type Files interface {
	// Store stores the data of a call's part, in the quotas of its session and of an owner. It returns the part with a
	// URL in place of the data.
	Store(
		ctx context.Context, key registry.Key, owner registry.BlobOwner, call string, p registry.Part,
	) (registry.Part, error)
}

// nodeResult completes a call. Nodes send pictures and films inside their results, so what is too large to travel on is
// stored first. The node's next frame waits for that: what it sent is counted in the intake until it is handled.
func (c *conn) nodeResult(f *toolResultFrame) error {
	if err := c.storeParts(f); err != nil {
		c.local.Fail(f.ID, registry.Errorf(registry.CodeInvalidResult,
			"A file of the node's answer could not be kept: %s", registry.AsError(err).Message))
		return c.acknowledge(f.ID, false)
	}
	c.completeCall(f.ID, f.result)
	return nil
}

// storeParts replaces the data of parts by links, as far as the parts are too large together.
func (c *conn) storeParts(f *toolResultFrame) error {
	room := registry.MaxInlinePart
	ctx, cancel := context.WithTimeout(context.Background(), c.server.cfg.PongTimeout/3) // no pongs are read
	defer cancel()
	for i, p := range f.result.Parts {
		if len(p.Data) <= room {
			room -= len(p.Data)
			continue
		}
		if _, running := c.local.Remaining(f.ID); !running { // no caller would read the file
			f.result.Parts = nil
			return nil
		}
		if c.server.cfg.Files == nil {
			return registry.Errorf(registry.CodePayloadTooLarge,
				"this gateway stores no files (FARHAND_BLOB_URL), and a "+
					"result has at most %d bytes of them. Ask for a smaller one.", registry.MaxInlinePart)
		}
		c.budget.spend(unitsPerStore)
		stored, err := c.server.cfg.Files.Store(ctx, c.local.Session().Key, c.who.FileOwner(), f.ID, p)
		if err != nil {
			return err
		}
		f.result.Parts[i] = stored
	}
	return nil
}

// askNode gives a call back that the node did not run, because it wants a person's decision first.
func (c *conn) askNode(a *node.Answer) error {
	c.local.Return(a.Call, a.Ask)
	if ack := c.node.Acknowledge(a.Call, false); ack != nil {
		return c.sendNode(ack)
	}
	return nil
}

// progressNode records output of a call.
func (c *conn) progressNode(p *node.Progress) error {
	for _, chunk := range p.Chunks {
		if c.local.Progress(p.Call, nil, nil, "", chunk) != nil {
			break // reports of the call are no longer stored, and a node cannot learn that
		}
	}
	return c.sendNode(p.Frame())
}

// offerNode registers the node's tools, and removes those that it does not offer any more.
func (c *conn) offerNode(ctx context.Context) error {
	c.registering.Lock()
	defer c.registering.Unlock()
	tools := c.node.Catalog().Tools()
	listed := make(map[string]bool, len(tools))
	definitions := make([]json.RawMessage, len(tools))
	for i, t := range tools {
		listed[t.Name], definitions[i] = true, t.Definition
	}
	r := c.newRegistration(len(tools))
	for _, t := range c.local.Tools() {
		if !listed[t.Name] {
			r.withdraw(t.Name)
		}
	}
	r.inTurn(ctx, definitions, r.offerMCP)
	for _, refused := range r.rejected { // not with the definitions they had before
		if c.offers(refused.Name) {
			r.withdraw(refused.Name)
		}
	}
	if err := r.review(ctx); err != nil {
		return err
	}
	if err := r.store(ctx); err != nil {
		return err
	}
	if n := len(r.rejected); n > 0 {
		c.note(slog.LevelInfo, "tools of a node are not offered", "number", n,
			"rejected", r.rejected[:min(n, loggedRejections)])
	}
	for _, out := range c.node.Catalog().LeftOut() {
		c.log().Debug("a command of a node is no tool", "command", out.Name, "reason", out.Reason)
	}
	return nil
}

// nodeClosePayload returns the close frame for a node. OpenClaw's clients reconnect after every code; people read the
// reason. Where OpenClaw's gateway has a code for a case, it is that one.
func nodeClosePayload(why Close) []byte {
	switch why {
	case CloseReplaced:
		return websocket.FormatCloseMessage(websocket.ClosePolicyViolation, "replaced by a newer connection")
	case CloseEnded:
		return websocket.FormatCloseMessage(closeAuthChanged, "auth changed")
	case CloseOwnerMismatch:
		return websocket.FormatCloseMessage(websocket.ClosePolicyViolation, "session owner mismatch")
	case CloseSlow:
		return websocket.FormatCloseMessage(websocket.ClosePolicyViolation, "slow consumer")
	case CloseRestart:
		return websocket.FormatCloseMessage(websocket.CloseServiceRestart, "service restart")
	default:
		return why.payload()
	}
}

// closeAuthChanged is OpenClaw's code for a client whose credential ended.
const closeAuthChanged = 4001
