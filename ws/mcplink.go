package ws

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/mcp"
)

// mcpLink is the MCP of a connection: the state machine, and what drives it.
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

// decode decodes a message. What concerns a call becomes a frame of the device protocol, except for an *mcp.Lost. Every
// other message is an *mcp.Message. Errors are as of decodeFrame.
func (l *mcpLink) decode(data []byte) (any, error) {
	message, err := l.Decode(data)
	switch m := message.(type) {
	case *mcp.Result:
		return &toolResultFrame{Type: typeToolResult, ID: m.Call, result: m.Result}, nil
	case *mcp.Failure:
		return &toolErrorFrame{Type: typeToolError, ID: m.Call, Error: &m.Text}, nil
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
	return sendError(c.out.push(message))
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
		if !l.isStopped() {
			late(turn)
		}
	})
}

func (l *mcpLink) isStopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
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
	err := c.perform(context.Background(), c.mcp.Late(turn))
	switch {
	case err == nil:
	case errors.Is(err, CloseMCP):
		c.end(CloseMCP)
	default:
		c.log().Debug("tools not asked for", "error", err)
		c.end(CloseSlow) // the only other error possible
	}
}

// handleMCP handles a message that concerns no call.
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
			c.log().Log(ctx, e.Level, e.Text, e.Args...)
		case mcp.Close:
			if e.Why != nil {
				c.log().Warn("a device does not speak MCP as it must", "error", e.Why)
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
		c.log().Debug("name of a device not kept", "error", err)
	}
}
