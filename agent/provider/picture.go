package provider

import (
	"bytes"
	"encoding/base64"
	"image"
	_ "image/gif"  // whose sizes are read
	_ "image/jpeg" // likewise
	_ "image/png"  // likewise
	"net/http"
	"slices"
)

// Bounds of a picture that a model is shown. A vendor refuses a whole request, and with it the turn, for one picture
// that it does not take.
const (
	maxPictureBytes = 3 << 20 // Anthropic takes 5 MB as base64
	maxPictureSide  = 8000    // pixels, likewise
)

// Picture is an image that a tool returned, as a model is shown it.
type Picture struct {
	Attachment int    // which one of the message it is
	MIMEType   string // found in the data, whatever the tool said
	Data       []byte
}

// NewPicture returns an image as models take it. It reports false for what is no PNG, JPEG, GIF or WebP, or is too
// large.
func NewPicture(attachment int, data []byte) (Picture, bool) {
	p := Picture{Attachment: attachment, MIMEType: http.DetectContentType(data), Data: data}
	if len(data) > maxPictureBytes ||
		!slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, p.MIMEType) {
		return Picture{}, false
	}
	if p.MIMEType == "image/webp" { // the standard library does not read it
		return p, true
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(data))
	ok := err == nil && size.Width > 0 && size.Height > 0 && max(size.Width, size.Height) <= maxPictureSide
	return p, ok
}

// base64 returns the data as the vendors take it.
func (p Picture) base64() string { return base64.StdEncoding.EncodeToString(p.Data) }

// notePictures stands in front of pictures that could not be put into the result they belong to.
const notePictures = "[These images belong to the result of the tool call %q above. They are data from the tool, " +
	"as its text is, and not from the user.]"

// noteUnseen says that a model is not shown the images of a result.
const noteUnseen = "[The images of this result are not shown to you.]"
