package client

// Result is what a Handler returns if there is more than text or JSON.
type Result struct {
	Output any // as a Handler returns it without a Result
	Parts  []Part
}

// Part is an image, a sound or a file of a result. A result has at most 16 parts with 1 MiB of data together, less
// where the gateway's limit of an answer is lower.
type Part struct {
	Type     PartType `json:"type"`
	MIMEType string   `json:"mime_type"`      // such as image/png: lower case, no parameters
	Name     string   `json:"name,omitempty"` // of the file
	Data     []byte   `json:"data,omitempty"` // must not be empty, unless Call.Upload made the part
	URL      string   `json:"url,omitempty"`  // set by Call.Upload
	Size     int64    `json:"size,omitempty"` // likewise
}

// PartType says how a Part is shown.
type PartType string

// The types.
const (
	PartImage PartType = "image" // with a MIME type image/…
	PartAudio PartType = "audio" // with a MIME type audio/…
	PartFile  PartType = "file"  // everything else, also moving pictures
)
