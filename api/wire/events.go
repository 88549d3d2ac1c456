package wire

import "github.com/farhand/farhand/registry"

// ActivityType is what an entry of the feed is about.
//
//schema:enum=session.connected|session.updated|session.disconnected|session.tools|call.finished|call.progress
//schema:enum=turn.started|turn.finished|pod.died|approval.requested|approval.decided
type ActivityType = string

// Activity is an entry of the feed.
type Activity struct {
	Type      ActivityType       `json:"type"`
	At        Time               `json:"at"`
	Pod       string             `json:"pod"` // the pod that tells
	SessionID SessionID          `json:"session_id,omitempty"`
	DeviceID  string             `json:"device_id,omitempty"`
	UserID    string             `json:"user_id,omitempty"` // whose session it is
	Tools     *[]ToolName        `json:"tools,omitempty"`   // with `session.tools`: all that are offered now
	Reason    string             `json:"reason,omitempty"`
	Call      *CallRecord        `json:"call,omitempty"`
	Turn      *registry.TurnNote `json:"turn,omitempty"` // with `turn.started` and `turn.finished`
	Approval  *ApprovalNote      `json:"approval,omitempty"`
}

// ApprovalNote is what the feed says of an approval.
type ApprovalNote struct {
	ID        ApprovalID    `json:"id"`
	CallID    string        `json:"call_id" schema:"format=uuid"`
	Tool      string        `json:"tool"`
	UserID    string        `json:"user_id,omitempty"`
	State     ApprovalState `json:"state"`
	DecidedBy string        `json:"decided_by,omitempty"`
	ExpiresAt Time          `json:"expires_at"`
}

// TicketRequest is a request for a ticket of an event stream.
//
//schema:closed
type TicketRequest struct {
	// The stream: `/api/events`, or `/api/calls/{id}/events`.
	Path string `json:"path,omitempty" schema:"default=/api/events"`
}

// EventTicket is a ticket with which a page opens one event stream, once.
type EventTicket struct {
	Ticket    string `json:"ticket"`
	URL       string `json:"url"`        // the path of the stream with the ticket, for an EventSource
	ExpiresIn int    `json:"expires_in"` // seconds
}
