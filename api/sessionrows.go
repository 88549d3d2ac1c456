package api

import (
	"time"

	"github.com/farhand/farhand/registry"
)

// sessionRow is a session in a list, with its tools. The session is connected, or has a conversation.
type sessionRow struct {
	SessionID    string            `json:"session_id"`
	Name         string            `json:"name,omitempty"`
	DeviceID     string            `json:"device_id,omitempty"`
	DeviceName   string            `json:"device_name,omitempty"`
	UserID       string            `json:"user_id,omitempty"`
	Platform     string            `json:"platform,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	ConnectedAt  string            `json:"connected_at,omitempty"`
	Pod          string            `json:"pod,omitempty"`
	Generation   int64             `json:"generation,omitempty"`
	Connected    bool              `json:"connected"`
	presence
	conversationRow
	Tools         any            `json:"tools"` // []string in a list, []toolInfo alone
	ToolsDisabled []disabledTool `json:"tools_disabled,omitempty"`
}

// disabledTool is a tool that a list names and the asker may not call.
type disabledTool struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// presence is what lists show of a device's connection. What is not known is absent.
type presence struct {
	Online      bool   `json:"online"`
	RoundTripMS int64  `json:"round_trip_ms,omitempty"`
	LastPong    string `json:"last_pong,omitempty"`
}

func presenceOf(p registry.Pulse) presence {
	return presence{
		Online: true, RoundTripMS: int64(p.RoundTrip / time.Millisecond), LastPong: optionalTime(p.At),
	}
}

// conversationRow is what lists show of a conversation.
type conversationRow struct {
	CreatedAt    string `json:"created_at"`
	LastActivity string `json:"last_activity"`
	MessageCount int    `json:"message_count"`
}

func sessionRowOf(e *registry.Entry) sessionRow {
	s := &e.Session
	connectedAt := s.ConnectedAt.UTC().Format(timeFormat)
	return sessionRow{
		SessionID: s.Key.Session, Name: s.Name, DeviceID: s.DeviceID, DeviceName: s.DeviceName, UserID: s.UserID,
		Platform: s.Platform, Labels: s.Labels, Capabilities: s.Capabilities,
		ConnectedAt: connectedAt, Pod: s.Pod, Generation: s.Generation, Connected: true,
		presence:        presenceOf(e.Pulse),
		conversationRow: conversationRow{CreatedAt: connectedAt, LastActivity: connectedAt}, // until it begins
	}
}

// offlineRowOf is the row of a session that is not connected and has a conversation.
func offlineRowOf(c registry.ConversationInfo) sessionRow {
	row := sessionRow{SessionID: c.Key.Session, DeviceID: c.Owner.DeviceID, UserID: c.Owner.UserID, Tools: []string{}}
	row.describe(c)
	return row
}

// describe adds the session's conversation. The name that a person gave wins over the one in the device's URL, and that
// one over a generated title.
func (r *sessionRow) describe(c registry.ConversationInfo) {
	if c.Named || r.Name == "" {
		r.Name = c.Title
	}
	r.MessageCount = c.Messages
	if !c.Created.IsZero() {
		r.CreatedAt, r.LastActivity = c.Created.Format(timeFormat), c.Active.Format(timeFormat)
	}
}

// rowOverhead is about how many bytes a row has beside the texts that vary in length.
const rowOverhead = 500

// disabledOverhead is about how many bytes the row of a tool has that may not be called, beside its name and the
// reason.
const disabledOverhead = 24

// sessionSize is about how many bytes a session has in a list, without its tools.
func sessionSize(s registry.Session) int {
	size := rowOverhead + len(s.Name) + len(s.DeviceID) + len(s.DeviceName) + len(s.UserID) + len(s.Platform)
	size += namesSize(s.Capabilities)
	for k, v := range s.Labels {
		size += len(k) + len(v) + 8
	}
	return size
}

func namesSize(names []string) (size int) {
	for _, name := range names {
		size += len(name) + 4
	}
	return size
}
