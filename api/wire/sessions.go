package wire

import "github.com/farhand/farhand/registry"

// SessionAttributes are the attributes of a session, in lists and alone.
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

	// Grows with each connection of the session. Lists are in this order.
	Generation int64 `json:"generation,omitempty" schema:"minimum=1"`

	// False: only the conversation exists. Then `connected_at`, `pod` and `generation` are absent, and there are no
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

	// Absent unless the request has the parameter `presence`.
	Presence string `json:"presence,omitempty" schema:"enum=connected|sleeping"`

	LastSeen string `json:"last_seen,omitempty" schema:"format=date-time"` // of a sleeping device

	// The tools that the caller may not call now. Absent: the caller may call all of them.
	ToolsDisabled []DisabledTool `json:"tools_disabled,omitempty"`
}

// DisabledTool is a listed tool that the caller may not call.
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

// DefaultDevice is the device of a user that is called if several match.
//
//schema:closed
type DefaultDevice struct {
	DeviceID string `json:"device_id" schema:"minLength=1,maxLength=256"`
}

// SessionRenamed is a renamed session.
type SessionRenamed struct {
	SessionID SessionID `json:"session_id"`
	Name      string    `json:"name"`
}

// SessionAborted is the result of an abort.
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

// Tool is the definition of a tool, and whether the caller may call it.
type Tool struct {
	Name        ToolName   `json:"name"`
	Description string     `json:"description"`
	Parameters  Parameters `json:"parameters"`
	Enabled     bool       `json:"enabled"`          // whether the policy lets the caller call it
	Reason      string     `json:"reason,omitempty"` // why the caller may not call it; absent if it may

	// The timeout of a call that sets none.
	TimeoutMS int64 `json:"timeout_ms,omitempty" schema:"minimum=1"`

	Annotations   *Annotations           `json:"annotations,omitempty"`
	SecurityLevel registry.SecurityLevel `json:"security_level,omitempty"`
	OutputSchema  OutputSchema           `json:"output_schema,omitempty"`
	Effects       *ToolEffects           `json:"effects,omitempty"`
	Tags          ToolTags               `json:"tags,omitempty"`

	// Equal for equal definitions, including descriptions and annotations.
	SchemaHash string `json:"schema_hash" schema:"pattern=^[0-9a-f]{64}$"`

	// Each call of the caller needs a person's approval.
	Approval string `json:"approval,omitempty" schema:"enum=required"`
}

// ApprovalRequired is the value of Tool.Approval if each call of the caller needs a person's approval.
const ApprovalRequired = "required"

// ToolRow is a tool of a session, or a built-in tool. Built-in tools come first, and have no session and no pod.
type ToolRow struct {
	Tool
	SourceType string    `json:"source_type" schema:"enum=builtin|mcp|remote"`
	Source     string    `json:"source"` // for remote tools the session's id, for built-in ones `builtin`
	SessionID  SessionID `json:"session_id,omitempty"`
	DeviceID   string    `json:"device_id,omitempty"`
	DeviceName string    `json:"device_name,omitempty"`
	UserID     string    `json:"user_id,omitempty"`
	Labels     Labels    `json:"labels,omitempty"`
	Pod        string    `json:"pod,omitempty"` // the pod that holds the device's connection

	// Absent unless the request has the parameter.
	Presence string `json:"presence,omitempty" schema:"enum=connected|sleeping"`

	LastSeen string `json:"last_seen,omitempty" schema:"format=date-time"` // of a sleeping device
}

// GroupRow is one definition of a tool.
type GroupRow struct {
	Tool
	SourceType string `json:"source_type" schema:"enum=builtin|mcp|remote"`

	// Number of connected sessions with exactly this definition. Zero for built-in tools, which come first.
	Sessions int `json:"sessions" schema:"minimum=0"`
}

// OpenAITool is a tool in the format of OpenAI's chat completions. It has no other members, because servers, including
// /v1, reject tools with unknown members.
type OpenAITool struct {
	Type     string         `json:"type" schema:"enum=function"`
	Function OpenAIFunction `json:"function"`
}

// OpenAIFunction is the function of an OpenAITool.
//
//schema:inline
type OpenAIFunction struct {
	Name        ModelName  `json:"name"`
	Description string     `json:"description"`
	Parameters  Parameters `json:"parameters"`
}

// AnthropicTool is a tool in the format of Anthropic's messages.
type AnthropicTool struct {
	Name        ModelName  `json:"name"`
	Description string     `json:"description"`
	InputSchema Parameters `json:"input_schema"`
}

// MCPTool is a tool in the format of MCP's tools/list.
type MCPTool struct {
	Name         ToolName     `json:"name"`
	Description  string       `json:"description"`
	InputSchema  Parameters   `json:"inputSchema"`
	OutputSchema OutputSchema `json:"outputSchema,omitempty"`
	Annotations  *Annotations `json:"annotations,omitempty"`
	Meta         ToolMeta     `json:"_meta,omitempty"`
}

// ToolList has a row for each tool of each session.
type ToolList struct {
	Tools      []ToolRow  `json:"tools"`
	NextCursor NextCursor `json:"next_cursor,omitempty"`
}

// ToolGroupList has a row for each definition.
type ToolGroupList struct {
	Tools      []GroupRow `json:"tools"`
	NextCursor NextCursor `json:"next_cursor,omitempty"`
}

// FormatList is a list of tools in a format for models.
type FormatList[Row any] struct {
	Tools         []Row         `json:"tools"`
	Names         ChangedNames  `json:"names,omitempty"`
	NextCursor    NextCursor    `json:"next_cursor,omitempty"`
	OutputSchemas OutputSchemas `json:"output_schemas,omitempty"`
}

// Lists of tools in the formats.
type (
	// OpenAIToolList has tools in the format of OpenAI's API.
	OpenAIToolList = FormatList[OpenAITool]

	// AnthropicToolList has tools in the format of Anthropic's API.
	AnthropicToolList = FormatList[AnthropicTool]

	// MCPToolList has tools in the format of MCP.
	MCPToolList = FormatList[MCPTool]
)

// Wake says how a device is woken while it sleeps. Which fields are required depends on `kind`.
//
//schema:closed
type Wake struct {
	// Kind is the service that the push goes to. The gateway must have credentials for it.
	Kind string `json:"kind" schema:"enum=webhook|webpush|unifiedpush|fcm|apns"`

	URL      string    `json:"url,omitempty" schema:"maxLength=2048"`      // webhook: gets a signed request
	Endpoint string    `json:"endpoint,omitempty" schema:"maxLength=2048"` // webpush and unifiedpush: of the subscription
	Keys     *WakeKeys `json:"keys,omitempty"`                             // webpush and unifiedpush: of the subscription
	Token    string    `json:"token,omitempty" schema:"maxLength=4096"`    // fcm and apns: of the device
	Topic    string    `json:"topic,omitempty" schema:"maxLength=256"`     // apns: the bundle id of the app

	// MinIntervalMS is the minimum time between two pushes.
	MinIntervalMS int64       `json:"min_interval_ms,omitempty" schema:"minimum=1000,maximum=86400000,default=60000"`
	Quiet         *QuietHours `json:"quiet,omitempty"` // no pushes in this part of each day
}

// WakeKeys are the keys of a push subscription, in base64url.
//
//schema:closed
type WakeKeys struct {
	P256DH string `json:"p256dh"`
	Auth   string `json:"auth"`
}

// QuietHours are a part of each day. `from` may be later than `to`: then they pass midnight.
//
//schema:closed
type QuietHours struct {
	From string `json:"from" schema:"pattern=^[0-2][0-9]:[0-5][0-9]$"`
	To   string `json:"to" schema:"pattern=^[0-2][0-9]:[0-5][0-9]$"`
	Zone string `json:"zone"` // of the IANA database, such as Europe/Vienna; empty: UTC
}

// DeviceWake is how a device is woken, without secrets, and when it was.
type DeviceWake struct {
	DeviceID      string      `json:"device_id"`
	Kind          string      `json:"kind"`
	Host          string      `json:"host,omitempty"`  // of the URL or endpoint
	Topic         string      `json:"topic,omitempty"` // apns: the bundle id of the app
	MinIntervalMS int64       `json:"min_interval_ms"`
	Quiet         *QuietHours `json:"quiet,omitempty"`
	RegisteredAt  Time        `json:"registered_at"`
	LastPush      Time        `json:"last_push,omitempty"`
	NextPush      Time        `json:"next_push,omitempty"` // planned
	Failures      int         `json:"failures,omitempty"`  // since the last push that the service took
	Error         string      `json:"error,omitempty"`     // of the last failure
}
