package ws

import (
	"fmt"
	"strings"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Why a message starts no turn.
var (
	errNoAgent = &frameError{
		code: chat.CodeAgentInit,
		message: "This gateway runs no agent. Configure a model provider and connect again; " +
			"tools can be registered and called without one.",
	}
	errTooMany = &frameError{
		code: chat.CodeSessionBusy,
		message: fmt.Sprintf("%d messages wait already for the turn that is under way. "+
			"Send this one again when it has ended, or abort it.", maxWaiting),
	}
	errTooLong = &frameError{
		code: chat.CodeSessionBusy,
		message: "This pod holds as many bytes of messages as it may, or as those of this tenant may have. " +
			"Send it again after a moment, or shorten it.",
	}
	errStopping = &frameError{
		code:    chat.CodeSessionBusy,
		message: "This pod is stopping and begins no more turns. Connect again and send the message there.",
	}
)

// message asks the agent for a turn.
func (c *conn) message(f *messageFrame) error {
	if strings.TrimSpace(f.Content) == "" {
		return &frameError{chat.CodeEmptyContent, "content: must not be empty."}
	}
	return c.ask(chat.Ask{Content: f.Content, Debug: isTrue(f.Debug)})
}

// regenerate asks the agent to answer the last message again.
func (c *conn) regenerate(f *regenerateFrame) error {
	return c.ask(chat.Ask{Regenerate: true, Debug: isTrue(f.Debug)})
}

func isTrue(b *bool) bool { return b != nil && *b }

// ask begins a turn, or queues it behind the one that is under way. It does not wait itself, because the turn that is
// under way may need what the reader reads next.
func (c *conn) ask(a chat.Ask) error {
	if c.server.cfg.Agent == nil {
		return errNoAgent
	}
	s := c.local.Session()
	a.Key = s.Key
	a.Debug = a.Debug && !c.server.cfg.IgnoreDebug
	a.Caller = *c.who // as authenticated: a device cannot change it
	a.Caller.Source = c.budget.device.source
	a.Owner = registry.Owner{UserID: s.UserID, DeviceID: s.DeviceID, Bound: s.Bound}
	a.Format = chat.FormatMarkdown
	if c.plain {
		a.Format = chat.FormatPlain
	}
	place, err := c.server.asks.Try(share.Owner{Tenant: c.who.Tenant}, int64(len(a.Content)))
	if err != nil {
		return errTooLong
	}
	taken, err := c.take(asked{a, place})
	if !taken {
		place.Release()
	}
	return err
}

// take is ask for a message that there is room for. It reports whether a turn will answer it.
func (c *conn) take(a asked) (taken bool, err error) {
	c.startMu.Lock()
	defer c.startMu.Unlock()
	if c.refusesNew {
		return false, errStopping
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing != closeNone:
		return false, nil
	case c.worker == nil:
		c.startTurnsLocked(a)
		return true, nil
	case len(c.worker.waiting) == maxWaiting:
		return false, errTooMany
	default:
		c.worker.waiting = append(c.worker.waiting, a)
		return true, nil
	}
}

// abort cancels the turn that is under way and forgets the messages that wait. The answer goes out before the turn's
// last event. A client of version 1 takes the answer and that event for the same thing, so it gets the event alone.
func (c *conn) abort() error {
	c.mu.Lock()
	w := c.worker
	if w == nil {
		c.mu.Unlock()
		return c.send(abortAckFrame(statusNoActive, 0))
	}
	dropped := w.dropWaitingLocked()
	cancel, eventAlone := w.cancel, c.version1
	c.mu.Unlock()

	w.order.Lock()
	live := w.live
	status := statusAborted
	if !live && dropped == 0 { // the last event of the turn is queued already
		status = statusNoActive
	}
	var err error
	if !live || !eventAlone {
		err = c.send(abortAckFrame(status, dropped))
	}
	w.order.Unlock()
	if live {
		cancel(chat.ErrAborted)
	}
	return err
}
