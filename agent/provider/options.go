package provider

import (
	"encoding/json"
	"fmt"
)

// Choice says whether a model is to call tools. The zero value leaves it to the model.
type Choice struct {
	Mode ChoiceMode
	Name string // with ChoiceTool
}

// ChoiceMode is what is asked of a model about tools.
type ChoiceMode string

// The modes.
const (
	ChoiceAuto     ChoiceMode = ""
	ChoiceNone     ChoiceMode = "none"     // no tool is called
	ChoiceRequired ChoiceMode = "required" // some tool is called
	ChoiceTool     ChoiceMode = "tool"     // the named tool is called
)

// Options are what a caller may ask of an answer beside what it is about. Zero fields ask for nothing. A model whose
// vendor does not know an option refuses the request and names it: none is ignored.
type Options struct {
	Parallel         *bool // several calls in one answer
	Format           *Format
	TopP             *float64
	PresencePenalty  *float64
	FrequencyPenalty *float64
	Seed             *int64
	LogitBias        map[string]int64
	Effort           string // how much a model reasons
	Verbosity        string
	ServiceTier      string
	User             string // for whom the vendor's records say the answer is
	SafetyIdentifier string
	CacheKey         string
	Metadata         map[string]string
}

// Format is that of an answer that must be JSON.
type Format struct {
	Name        string          // of the schema
	Description string          // of the schema
	Schema      json.RawMessage // nil: any JSON object
	Strict      *bool
}

// Part is a piece of what a user says: text, or an image.
type Part struct {
	Text  string `json:"text,omitempty"`
	Image *Image `json:"image,omitempty"`
}

// Image is one a model is shown. The gateway does not look at it: the vendor does.
type Image struct {
	URL    string `json:"url"` // http, https, or data: with a type of image
	Detail string `json:"detail,omitempty"`
}

// unoffered is why a request cannot be put to a model: an option its vendor does not know.
type unoffered struct{ param, why string }

func (u unoffered) Error() string {
	if u.why == "" {
		return fmt.Sprintf("%q is not offered by its provider", u.param)
	}
	return fmt.Sprintf("%q %s", u.param, u.why)
}
