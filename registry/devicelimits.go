package registry

// DeviceLimits are what the gateway takes of one device, as session_start and GET /api/limits announce it.
type DeviceLimits struct {
	FrameBytes      int64   `json:"frame_bytes"`            // of one message
	OutputBytes     int64   `json:"output_bytes"`           // of what one call returns
	FramesPerSecond float64 `json:"frames_per_second"`      // on average; answers to open calls do not count
	FrameBurst      float64 `json:"frame_burst"`            // at once
	Tools           int     `json:"tools"`                  // that one session offers
	ToolBytes       int     `json:"tool_bytes"`             // of the definitions of all of them
	ToolByteRate    int     `json:"tool_bytes_per_second"`  // of definitions, beyond a burst of twice ToolBytes
	SchemaBytes     int     `json:"schema_bytes"`           // of the parameters of one tool
	SchemaDepth     int     `json:"schema_depth"`           // nesting of the parameters of one tool
	Description     int     `json:"description_characters"` // kept of a description
	Calls           int     `json:"calls"`                  // that one session has in flight
}
