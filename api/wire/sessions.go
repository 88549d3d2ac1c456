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

	// The pod that holds the device's connection.
	Pod string `json:"pod,omitempty"`

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
	// Whether the device is connected now.
	Online bool `json:"online"`

	RoundTripMS RoundTrip `json:"round_trip_ms,omitempty"`
	LastPong    LastPong  `json:"last_pong,omitempty"`
}

// Conversation is the state of a session's conversation in lists.
type Conversation struct {
	CreatedAt    Time `json:"created_at"`
	LastActivity Time `json:"last_activity"`

	// Of the conversation.
	MessageCount int `json:"message_count" schema:"minimum=0"`
}

// SessionRow is a session in a list. The session is connected, or has a conversation.
type SessionRow struct {
	SessionAttributes

	// In order of name.
	Tools []ToolName `json:"tools"`

	// Those of the tools that you may not call now. Absent: you may call all of them.
	ToolsDisabled []DisabledTool `json:"tools_disabled,omitempty"`
}

// DisabledTool is a listed tool that the asker may not call.
type DisabledTool struct {
	Name ToolName `json:"name"`

	// As in the list of tools.
	Reason string `json:"reason"`
}

// Session is a session with the definitions of its tools.
type Session struct {
	SessionAttributes

	// In order of name.
	Tools []Tool `json:"tools"`
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
