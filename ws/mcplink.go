package ws

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/mcp"
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
		o.derived = s.Key.Session != ""
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
	if err := c.mayBe(c.mcp.id); err != nil {
		c.refuseDevice(err)
		return
	}
	if c.budget.takeLabels(begin.session.Labels) != noSpender {
		c.end(CloseRate)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout+introductionWait)
	defer cancel()
	_, proof := c.newResumeToken() // so that calls know which device they were given to
	begin.session.Proofs = []string{proof}
	c.introduced = true
	intro := registry.Introduction{DeviceID: begin.session.DeviceID, Holder: c.who.Holder()}
	local, resumed, err := c.claim(ctx, begin.session, intro)
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
	if err := c.mayBe(c.mcp.id); err != nil { // paired meanwhile
		c.refuseDevice(err)
		return
	}
	c.note(slog.LevelInfo, "device connected", "resumed", resumed, "mcp", true)
	if err := c.perform(ctx, c.mcp.Begin()); err != nil {
		c.fail(err)
	}
}

type mcpLink struct {
	*mcp.Machine
	mcpDevice

	mu      sync.Mutex
	opened  bool        // the first frame was sent
	turn    int         // of the timer
	timer   *time.Timer // nil: it does not run
	stopped bool        // the connection has ended; no timer starts any more
}

// mcpDevice is what the upgrade request says about an MCP device.
type mcpDevice struct {
	id    string // device id
	voice bool   // a voice device
}

func (s *Server) newMCPLink(device mcpDevice, session string) *mcpLink {
	return &mcpLink{mcpDevice: device, Machine: mcp.New(mcp.Config{
		Session: session, Voice: device.voice, MaxToolBytes: s.cfg.Admission.Limits().MaxToolBytes,
		MaxTools: maxDefinitions,
	})}
}

// decode decodes a message. A message about a call becomes a frame of the device protocol, except an *mcp.Lost. Every
// other message is an *mcp.Message. Errors are as of decodeFrame.
func (l *mcpLink) decode(data []byte) (any, error) {
	message, err := l.Decode(data)
	switch m := message.(type) {
	case *mcp.Result:
		return &toolResultFrame{Type: typeToolResult, ID: m.Call, result: m.Result}, nil
	case *mcp.Failure:
		return &toolErrorFrame{Type: typeToolError, ID: m.Call, Error: m.Text}, nil
	case *mcp.Progress:
		return &toolProgressFrame{
			Type: typeToolProgress, ID: m.Call, Progress: m.Progress, Total: m.Total, Message: m.Message,
		}, nil
	}
	return message, err
}

// sendMCP queues a message. The first message opens the outbox.
func (c *conn) sendMCP(message []byte) error {
	c.mcp.mu.Lock()
	opened := c.mcp.opened
	c.mcp.opened = true
	c.mcp.mu.Unlock()
	if !opened {
		c.sendFirst(message)
		return nil
	}
	return c.queue(message, func() error { return c.out.push(message) })
}

// startTimer calls late after mcp.AnswerWait, unless a later turn began.
func (l *mcpLink) startTimer(turn int, late func(turn int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || turn < l.turn {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.turn, l.timer = turn, time.AfterFunc(mcp.AnswerWait, func() {
		l.mu.Lock()
		stopped := l.stopped
		l.mu.Unlock()
		if !stopped {
			late(turn)
		}
	})
}

// stopTimer stops the timer. With forGood it never starts again, because the connection ends.
func (l *mcpLink) stopTimer(forGood bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = l.stopped || forGood
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// lateMCP handles the end of the time that a device had to answer. It runs in the timer's goroutine.
func (c *conn) lateMCP(turn int) {
	defer c.recoverPanic()
	if err := c.perform(context.Background(), c.mcp.Late(turn)); err != nil {
		c.fail(err)
	}
}

func (c *conn) handleMCP(ctx context.Context, m *mcp.Message) error {
	return c.perform(ctx, c.mcp.Handle(m))
}

// perform carries out effects until one fails.
func (c *conn) perform(ctx context.Context, effects []mcp.Effect) (err error) {
	for _, e := range effects {
		switch e := e.(type) {
		case mcp.Send:
			err = c.sendMCP(e.Message)
		case mcp.StartTimer:
			c.mcp.startTimer(e.Turn, c.lateMCP)
		case mcp.StopTimer:
			c.mcp.stopTimer(false)
		case mcp.Charge:
			units := float64(unitsPerStray)
			if e.Listing {
				units = unitsPerListing
			}
			c.budget.spend(units)
		case mcp.NameDevice:
			c.nameDevice(ctx, e.Name)
		case mcp.Offer:
			err = c.offerMCP(ctx, e)
		case mcp.Retain:
			err = c.retainMCP(ctx, e)
		case mcp.Log:
			c.note(e.Level, e.Text, e.Args...)
		case mcp.Close:
			if e.Why != nil {
				c.note(slog.LevelWarn, "a device violated MCP", "error", e.Why)
			}
			err = CloseMCP
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nameDevice stores the name of the device's program as the device name, if the device has none.
func (c *conn) nameDevice(ctx context.Context, name string) {
	if c.local.Session().DeviceName != "" {
		return
	}
	if err := c.local.Update(ctx, func(s *registry.Session) { s.DeviceName = name }); err != nil {
		c.log().Debug("device name not stored", "error", err)
	}
}

const (
	loggedRejections = 8  // rejected tools of one page that the log names
	unitsPerListing  = 20 // work that a device spends with each tools/list_changed notification
)

// listLevel returns the log level for messages about a list: of the first list, or of later ones. A device can cause
// any number of those.
func listLevel(first bool, level slog.Level) slog.Level {
	if first {
		return level
	}
	return slog.LevelDebug
}

// offerMCP carries out an Offer, and what follows it.
func (c *conn) offerMCP(ctx context.Context, page mcp.Offer) error {
	if err := c.registerMCP(ctx, page); err != nil {
		_ = c.perform(ctx, c.mcp.Failed()) // if the outbox is full, the answer to err ends the connection
		return err
	}
	return c.perform(ctx, c.mcp.Registered())
}

// registerMCP registers the tools of one page, as register_tools would.
func (c *conn) registerMCP(ctx context.Context, page mcp.Offer) error {
	c.registering.Lock()
	defer c.registering.Unlock()
	r := c.newRegistration(len(page.Tools))
	r.inTurn(ctx, page.Tools, func(ctx context.Context, raw json.RawMessage) {
		rejected := len(r.rejected)
		name := r.admitMCP(ctx, raw)
		if len(r.rejected) > rejected && c.offers(name) { // with the definition it had before
			r.withdraw(name)
		}
	})
	if err := c.holdNames(); err != nil {
		return err
	}
	if err := r.review(ctx); err != nil {
		return err
	}
	c.mcp.UseNames()
	if err := r.store(ctx); err != nil {
		return err
	}
	if n := len(r.rejected); n > 0 {
		c.note(listLevel(page.First, slog.LevelWarn), "tools of a device rejected",
			"number", n, "rejected", r.rejected[:min(n, loggedRejections)])
	}
	if n := len(r.bare); n > 0 {
		c.note(listLevel(page.First, slog.LevelInfo), "tools are offered without their output schemas",
			"number", n, "tools", r.bare[:min(n, loggedRejections)])
	}
	return nil
}

// freeNames is how many bytes of names of tools at the device a connection has without a part of the pool.
const freeNames = 2 << 10

// holdNames takes what the names of the tools at the device need of the pod's pool of offered tools. It gives nothing
// back before the connection ends: what a device has had it may have again. The error is CloseRate.
func (c *conn) holdNames() error {
	need, err := c.mcp.NameBytes(), error(nil)
	switch {
	case need <= freeNames:
	case c.toolNames == nil:
		c.toolNames, err = c.server.cfg.Pod.Hub.HoldTools(c.who.Owner(), need)
	default:
		err = c.toolNames.Grow(int64(need))
	}
	if err != nil {
		c.note(slog.LevelWarn, "a device lists too many tools", "error", err)
		return CloseRate
	}
	return nil
}

// retainMCP carries out a Retain, and what follows it.
func (c *conn) retainMCP(ctx context.Context, list mcp.Retain) error {
	gone := &unregisterToolsFrame{Type: typeUnregisterTools}
	for _, t := range c.local.Tools() {
		if _, listed := list.Listed[t.Name]; !listed {
			gone.Names = append(gone.Names, t.Name)
		}
	}
	if err := c.unregisterTools(ctx, gone); err != nil {
		_ = c.perform(ctx, c.mcp.Failed()) // as above
		return err
	}
	tools := c.local.Tools()
	after := c.mcp.Listed(tools, c.isPaired()) // an approver may still approve the other tools of a paired device
	c.note(listLevel(list.First, slog.LevelInfo), "tools of a device listed", "tools", len(tools))
	return c.perform(ctx, after)
}

// admitMCP checks one definition and offers the tool if it is admitted. It returns the tool's name here, empty if
// another tool of the list has it.
func (r *registration) admitMCP(ctx context.Context, raw json.RawMessage) (name string) {
	tool := r.conn.mcp.Tool(raw)
	if tool.Refused != "" {
		r.reject(tool.Name, tool.Refused)
		if tool.Taken {
			return ""
		}
		return tool.Name
	}
	before := len(r.rejected)
	r.offerMCP(ctx, tool.Definition)
	if len(r.rejected) > before && strings.HasPrefix(r.rejected[before].Reason, registry.FieldOutputSchema+": ") {
		r.bare = append(r.bare, r.rejected[before])
		r.rejected = r.rejected[:before]
		r.offerMCP(ctx, mcp.WithoutOutput(raw))
	}
	return tool.Name
}

// offerMCP offers a tool if its definition is admitted. A tool that is already offered unchanged costs nothing.
func (r *registration) offerMCP(ctx context.Context, definition json.RawMessage) {
	known, ok := r.conn.server.cfg.Admission.Known(definition)
	if ok && slices.ContainsFunc(r.conn.local.Tools(), func(t registry.ToolSpec) bool {
		return t.Name == known.Spec.Name && t.Hash() == known.Spec.Hash()
	}) {
		return
	}
	r.admitTool(ctx, definition)
}
