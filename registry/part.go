package registry

// PartType says how a Part is shown.
type PartType string

// The types.
const (
	PartImage PartType = "image"
	PartAudio PartType = "audio"
	PartFile  PartType = "file" // everything else, also moving pictures
)

// Part is a piece of a result that is no text. It has either Data or URL.
type Part struct {
	Type     PartType `json:"type"`
	MIMEType string   `json:"mime_type"`
	Name     string   `json:"name,omitempty"` // of the file
	Data     []byte   `json:"data,omitempty"` // in JSON as base64
	URL      string   `json:"url,omitempty"`  // where it can be fetched for a while
	Size     int64    `json:"size"`           // bytes
}

// MaxInlinePart is how many bytes the parts of one result may have inline, together. Larger ones travel as links.
const MaxInlinePart = 1 << 20
