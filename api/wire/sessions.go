package wire

// SessionAttributes are what both a list and a single answer say of a session.
type SessionAttributes struct {
	SessionID    SessionID `json:"session_id"`
	Name         string    `json:"name,omitempty"`
	DeviceID     string    `json:"device_id,omitempty"`
	DeviceName   string    `json:"device_name,omitempty"`
	UserID       string    `json:"user_id,omitempty"`
	Platform     string    `json:"platform,omitempty"`
	Labels       Labels    `json:"labels,omitempty"`
	Capabilities []string  `json:"capabilities,omitempty"`
	ConnectedAt  Time      `json:"connected_at,omitempty"`
	Pod          string    `json:"pod,omitempty"` // the pod that holds the device's connection

	// Grows each time the session connects. Lists are in this order.
	Generation int64 `json:"generation,omitempty" schema:"minimum=1"`

	// False: only the conversation is left. Then `connected_at`, `pod` and `generation` are absent, and there are no
	// tools.
	Connected bool `json:"connected"`

	Presence
	Conversation
}

// Presence is the state of a device's connection in lists. Unknown values are absent.
type Presence struct {
	Online      bool      `json:"online"` // whether the device is connected now
	RoundTripMS RoundTrip `json:"round_trip_ms,omitempty"`
	LastPong    LastPong  `json:"last_pong,omitempty"`
}

// Conversation is the state of a session's conversation in lists.
type Conversation struct {
	CreatedAt    Time `json:"created_at"`
	LastActivity Time `json:"last_activity"`
	MessageCount int  `json:"message_count" schema:"minimum=0"` // of the conversation
}

// SessionRow is a session in a list. The session is connected, or has a conversation.
type SessionRow struct {
	SessionAttributes
	Tools []ToolName `json:"tools"` // in order of name

	// Those of the tools that you may not call now. Absent: you may call all of them.
	ToolsDisabled []DisabledTool `json:"tools_disabled,omitempty"`
}

// DisabledTool is a listed tool that the asker may not call.
type DisabledTool struct {
	Name   ToolName `json:"name"`
	Reason string   `json:"reason"` // as in the list of tools
}

// Session is a session with the definitions of its tools.
type Session struct {
	SessionAttributes
	Tools []Tool `json:"tools"` // in order of name
}

// SessionList is a page of the list of sessions.
type SessionList struct {
	Sessions   []SessionRow `json:"sessions"`
	NextCursor NextCursor   `json:"next_cursor,omitempty"`
}

// SessionName is a request to rename a session or a paired device.
//
//schema:closed
type SessionName struct {
	Name string `json:"name" schema:"minLength=1,maxLength=256"`
}

// SessionRenamed is the answer to the renaming of a session.
type SessionRenamed struct {
	SessionID SessionID `json:"session_id"`
	Name      string    `json:"name"`
}

// SessionAborted is the answer to an abort.
type SessionAborted struct {
	Status string `json:"status" schema:"enum=aborted|no_active_response"`
}

// SessionState is whether a turn of a session is running, and since when.
type SessionState struct {
	SessionID     SessionID `json:"session_id"`
	State         string    `json:"state" schema:"enum=idle|running"`
	TurnStartedAt Time      `json:"turn_started_at,omitempty"`
}

// RunningSession is a session with a running turn.
type RunningSession struct {
	SessionID SessionID `json:"session_id"`
	Name      string    `json:"name,omitempty"`
	Conversation
	TurnStartedAt Time `json:"turn_started_at"`
}

// RunningSessionList is a page of the sessions with a running turn.
type RunningSessionList struct {
	Sessions   []RunningSession `json:"sessions" schema:"maxItems=1000"`
	NextCursor NextCursor       `json:"next_cursor,omitempty"`
}
