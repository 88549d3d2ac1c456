package registry

import (
	"context"
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/registry/legible"
)

// Paths of files of results; a secret follows. They are relative to the gateway, which does not know its own address.
const (
	PathUpload = "/uploads/" // where a device puts one, once
	PathBlob   = "/blobs/"   // where it can be read until it expires
)

// BlobSecret is how many bytes the secret in the address of a file has. It is written in base64url without padding.
const BlobSecret = 32

// ValidBlobSecret reports whether a text can be the secret of a file.
func ValidBlobSecret(secret string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	return err == nil && len(raw) == BlobSecret && !strings.ContainsAny(secret, "\r\n")
}

// UploadSlot is where a device may put one file.
type UploadSlot struct {
	URL     string // relative to the gateway
	Size    int64  // bytes, exactly
	Expires time.Duration
}

// MaxBlobs is how many files of one tenant are kept at once.
const MaxBlobs = 1000

// BlobState is how far the upload of a Blob has come.
type BlobState string

// The states.
const (
	BlobOpen   BlobState = "open"   // nobody has uploaded it yet
	BlobTaken  BlobState = "taken"  // somebody is uploading it, or has failed to
	BlobFilled BlobState = "filled" // it can be read
)

// Blob is a file of a result that is too large to travel in it. Its bytes are in a bucket.
type Blob struct {
	Digest    string    `json:"digest"` // the SHA-256 of the secret in its addresses, in hexadecimal digits
	Object    string    `json:"object"` // its name in the bucket
	Tenant    string    `json:"tenant"`
	SessionID string    `json:"session_id"`
	CallID    string    `json:"call_id"`
	MIMEType  string    `json:"mime_type"`
	Name      string    `json:"name,omitempty"`
	Size      int64     `json:"size"` // bytes
	State     BlobState `json:"-"`
}

// BlobStore knows the files that were uploaded, or are to be, for as long as they live. All methods are safe for
// concurrent use and honour their context. A failure of the store is an *Error with CodeStoreUnavailable.
type BlobStore interface {
	// ReserveBlob keeps an open blob for life. CodeRateLimited if the blobs of its tenant would then have more than
	// limit bytes, those of its session more than an eighth of that, or if the tenant has MaxBlobs, or its session an
	// eighth of those.
	ReserveBlob(ctx context.Context, b Blob, limit int64, life time.Duration) error

	// TakeBlob makes an open blob a taken one. Of several who take it, one does; the others get ErrNoBlob.
	TakeBlob(ctx context.Context, digest string) (Blob, error)

	// FillBlob makes a taken blob a filled one, which is kept for life from now on. ErrNoBlob if it is not taken.
	FillBlob(ctx context.Context, digest string, life time.Duration) error

	// ReadBlob returns a blob. ErrNoBlob if there is none, or it has expired.
	ReadBlob(ctx context.Context, digest string) (Blob, error)

	// DropBlob forgets a blob, whose bytes count no longer. It does nothing if there is none.
	DropBlob(ctx context.Context, digest string) error

	// DropBlobsOf makes all blobs of a session as if they were not there. They count until they would have expired, as
	// their bytes are in the bucket for about as long.
	DropBlobsOf(ctx context.Context, key Key) error
}

// Errors of a BlobStore.
var (
	ErrNoBlob    = Errorf(CodeNotFound, "There is no such file. It has expired, or was never there.")
	ErrManyBlobs = Errorf(CodeRateLimited, "Too many files of this tenant or session are kept already. "+
		"Retry when older ones have expired, or raise FARHAND_BLOB_BYTES.")
)

// BlobShare is which part of a tenant's bytes and files one session may have.
const BlobShare = 8

// PartType says how a Part is shown.
type PartType string

// The types.
const (
	PartImage PartType = "image"
	PartAudio PartType = "audio"
	PartFile  PartType = "file" // everything else, also moving pictures
)

// Part is a piece of a result that is no text. It has either Data or URL. One with neither tells what the tool
// returned; its bytes were not kept.
type Part struct {
	Type     PartType `json:"type"`
	MIMEType string   `json:"mime_type"`
	Name     string   `json:"name,omitempty"` // of the file
	URI      string   `json:"uri,omitempty"`  // what an MCP server calls it; the gateway fetches nothing by it
	Data     []byte   `json:"data,omitempty"` // in JSON as base64
	URL      string   `json:"url,omitempty"`  // where it can be fetched for a while
	Size     int64    `json:"size"`           // bytes
}

// Bounds of the parts of a result.
const (
	// MaxInlinePart is how many bytes the parts of one result may have inline, together. Larger ones travel as links.
	MaxInlinePart = 1 << 20

	MaxParts    = 16  // of one result
	maxMIMEType = 127 // bytes
	maxPartName = 255 // bytes
	maxPartURI  = 1 << 10
)

// partWeight is about what a part takes in memory, and in a store, beside its data.
const partWeight = 200

// PartTypeOf returns the type that belongs to a MIME type.
func PartTypeOf(mimeType string) PartType {
	switch kind, _, _ := strings.Cut(mimeType, "/"); kind {
	case "image":
		return PartImage
	case "audio":
		return PartAudio
	default:
		return PartFile
	}
}

// Check returns what is wrong with the part's description, as the field and what it must be; nothing if it is all
// right. It does not look at Data and URL.
func (p *Part) Check() (field, must string) {
	switch {
	case p.Type != PartImage && p.Type != PartAudio && p.Type != PartFile:
		return "type", "must be image, audio or file"
	case !validMIMEType(p.MIMEType):
		return "mime_type", "must be a type and a subtype in lower case, such as image/png, without parameters"
	case p.Type != PartFile && p.Type != PartTypeOf(p.MIMEType):
		return "mime_type", "must begin with " + string(p.Type) + "/, or type must be file"
	case len(p.Name) > maxPartName || !utf8.ValidString(p.Name) || legible.Line(p.Name) != p.Name:
		return "name", "must have at most 255 bytes, and no control or invisible characters"
	case len(p.URI) > maxPartURI || !utf8.ValidString(p.URI) || legible.Line(p.URI) != p.URI:
		return "uri", "must have at most 1024 bytes, and no control or invisible characters"
	case p.Size < 0:
		return "size", "must not be negative"
	default:
		return "", ""
	}
}

// validMIMEType reports whether s is a type and a subtype, in lower case and without parameters (RFC 6838).
func validMIMEType(s string) bool {
	kind, sub, ok := strings.Cut(s, "/")
	return ok && len(s) <= maxMIMEType && restrictedName(kind) && restrictedName(sub)
}

// restrictedName reports whether s is what RFC 6838 allows a type or subtype to be, in lower case.
func restrictedName(s string) bool {
	for i := range len(s) {
		c := s[i]
		plain := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !plain && (i == 0 || !strings.ContainsRune("!#$&-^_.+", rune(c))) {
			return false
		}
	}
	return s != ""
}

// PartsSize returns about how many bytes the parts of a result take in memory.
func PartsSize(parts []Part) int {
	sum := 0
	for i := range parts {
		p := &parts[i]
		sum += partWeight + len(p.Data) + len(p.URL) + len(p.Name) + len(p.URI)
	}
	return sum
}

// InlineSize returns how many bytes of data the parts have.
func InlineSize(parts []Part) int64 {
	sum := 0
	for i := range parts {
		sum += len(parts[i].Data)
	}
	return int64(sum)
}

// WithoutData returns copies of the parts that say only what there was.
func WithoutData(parts []Part) []Part {
	if len(parts) == 0 {
		return nil
	}
	kept := make([]Part, len(parts))
	for i, p := range parts {
		p.Data = nil
		kept[i] = p
	}
	return kept
}
