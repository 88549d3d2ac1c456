package registry

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/registry/textsafe"
)

// Paths of result files; a secret follows. They are relative to the gateway, which does not know its own address.
const (
	PathUpload = "/uploads/" // a device uploads a file here, once
	PathBlob   = "/blobs/"   // the file can be read here until it expires
)

// BlobSecret is the length in bytes of the secret in a file's address. It is written in base64url without padding.
const BlobSecret = 32

// ValidBlobSecret reports whether a text has the format of a file's secret.
func ValidBlobSecret(secret string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	return err == nil && len(raw) == BlobSecret && !strings.ContainsAny(secret, "\r\n")
}

// UploadSlot is an address for the upload of one file.
type UploadSlot struct {
	ID      string // of the upload, for arguments
	URL     string // relative to the gateway
	Size    int64  // bytes, exactly
	Expires time.Duration
}

// MaxBlobs is the most files that one tenant can keep at once.
const MaxBlobs = 1000

// BlobState is the progress of a Blob's upload.
type BlobState string

// The states.
const (
	BlobOpen   BlobState = "open"   // not uploaded yet
	BlobTaken  BlobState = "taken"  // an upload is running, or has failed
	BlobFilled BlobState = "filled" // it can be read
)

// Blob is a result file that is too large to send inline. Its bytes are in a bucket.
type Blob struct {
	Digest    string    `json:"digest"` // the SHA-256 of the secret in its addresses, in hexadecimal digits
	Object    string    `json:"object"` // its name in the bucket
	Tenant    string    `json:"tenant"`
	SessionID string    `json:"session_id"`
	Owner     BlobOwner `json:"owner,omitzero"` // whose sessions share a quota; zero: none
	CallID    string    `json:"call_id"`
	MIMEType  string    `json:"mime_type"`
	Name      string    `json:"name,omitempty"`
	Size      int64     `json:"size"`             // bytes
	SHA256    string    `json:"sha256,omitempty"` // of an upload of a caller, in hexadecimal digits
	Link      bool      `json:"link,omitempty"`   // another blob has the same bytes, which count there
	State     BlobState `json:"-"`

	// Generation tells the blobs of a session from those of an erased session with the same id (DropBlobsOf). The store
	// sets it. A link has that of the blob with its bytes.
	Generation string `json:"generation,omitempty"`
}

// BlobStore tracks uploaded files and open uploads until they expire.
type BlobStore interface {
	// ReserveBlob stores a blob for life: in its state or, if it has none, open. The bytes of a link do not count.
	// limit is the tenant's quota in bytes. It fails with CodeRateLimited if the tenant would exceed limit or has
	// MaxBlobs, or if the session would exceed an eighth of either quota, or all sessions of the owner's user or device
	// their share. It sets the generation, except of a link.
	ReserveBlob(ctx context.Context, b Blob, limit int64, life time.Duration) error

	// TakeBlob marks an open blob as taken. If several callers race, one succeeds; the others get ErrNoBlob.
	TakeBlob(ctx context.Context, digest string) (Blob, error)

	// FillBlob marks a taken blob as filled and keeps it for life from now. It fails with ErrNoBlob if not taken.
	FillBlob(ctx context.Context, digest string, life time.Duration) error

	// ReadBlob returns a blob. It fails with ErrNoBlob if there is none, if it has expired, or if it is of an earlier
	// generation than its session.
	ReadBlob(ctx context.Context, digest string) (Blob, error)

	// DropBlob deletes a blob and frees its quota. It does nothing if there is none.
	DropBlob(ctx context.Context, digest string) error

	// DropBlobsOf hides all blobs of a session: it begins a new generation, and deletes the blobs. A blob that it does
	// not find, because it is being stored, is of the earlier generation. The store remembers the generation for life,
	// which must be longer than any blob of the session lives. After an error, repeat it: some blobs may be readable.
	// Blobs count against the quotas until they would have expired, because their bytes stay in the bucket for about as
	// long.
	DropBlobsOf(ctx context.Context, key Key, life time.Duration) error
}

// Uploader is the caller who uploads a file for arguments of calls.
type Uploader struct {
	Tenant string
	Key    string // of the caller, as in Requester.Key
}

// Session returns what stands for the session of the uploader's blobs. No session can have this id.
func (u Uploader) Session() string { return uploaderMark + u.Key }

const uploaderMark = "@"

// UploaderOf returns the key of the uploader whose Session this is. ok is false for a session of a device.
func UploaderOf(session string) (key string, ok bool) {
	return strings.CutPrefix(session, uploaderMark)
}

// GivenUpload is an upload as the device of a call gets it, in place of {"$upload": ID} in the arguments.
type GivenUpload struct {
	URL      string `json:"url"` // relative to the gateway
	SHA256   string `json:"sha256"`
	Size     int64  `json:"size"`
	MIMEType string `json:"mime_type"`
}

// ErrNoUpload is the error for arguments that name an upload which the caller cannot use.
var ErrNoUpload = Errorf(CodeInvalidArguments, "The arguments name an upload that does not exist, has expired, has no "+
	"bytes yet, or is another caller's. POST /api/uploads makes a new one.")

// Errors of a BlobStore.
var (
	ErrNoBlob    = Errorf(CodeNotFound, "The file does not exist or has expired.")
	ErrManyBlobs = Errorf(CodeRateLimited, "This tenant or session has too many stored files. Retry when older ones "+
		"have expired, or raise FARHAND_BLOB_BYTES.")
)

// BlobShare is the divisor of a tenant's quota of bytes and files that gives one session's quota.
const BlobShare = 8

// BlobUserShare is the divisor that gives the quota of a user.
const BlobUserShare = 2

// BlobOwner is the user, and the device that a credential names, whose sessions share quotas of files: they can have
// any number of ids. Empty: none.
type BlobOwner struct {
	User   string `json:"user,omitempty"`
	Device string `json:"device,omitempty"` // its quota is that of one session
}

// PartType says how a Part is shown.
type PartType string

// The types.
const (
	PartImage PartType = "image"
	PartAudio PartType = "audio"
	PartFile  PartType = "file" // everything else, including video
)

// Part is a non-text piece of a result. It has Data or URL. A part with neither describes a file whose bytes were not
// stored.
type Part struct {
	Type     PartType `json:"type"`           // moving pictures are files
	MIMEType string   `json:"mime_type"`      // as the device named it, in lower case and without parameters
	Name     string   `json:"name,omitempty"` // of the file, as the device named it. It is no path to write to

	// The URI of an MCP server's resource. It is not an address to fetch.
	URI string `json:"uri,omitempty"`

	// All parts of a result together have at most 1 MiB here.
	Data []byte `json:"data,omitempty"`

	// The temporary URL of the bytes, if they are not in `data`. With neither, they were not stored.
	URL string `json:"url,omitempty"`

	Size int64 `json:"size"` // in bytes
}

// Limits of a result's parts.
const (
	// MaxInlinePart is the total of a result's inline parts in bytes. Larger files travel as links.
	MaxInlinePart = 1 << 20

	MaxParts    = 16  // of one result
	maxMIMEType = 127 // bytes
	maxPartName = 255 // bytes
	maxPartURI  = 1 << 10
)

// partWeight is the approximate size of a part in memory and in a store, without its data.
const partWeight = 200

// PartTypeOf returns the type for a MIME type.
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

// Check returns the first invalid field of the part's description and the rule it breaks, or empty strings. It does not
// check Data and URL.
func (p *Part) Check() (field, must string) {
	switch {
	case p.Type != PartImage && p.Type != PartAudio && p.Type != PartFile:
		return "type", "must be image, audio or file"
	case !validMIMEType(p.MIMEType):
		return "mime_type", "must be a type and a subtype in lower case, such as image/png, without parameters"
	case p.Type != PartFile && p.Type != PartTypeOf(p.MIMEType):
		return "mime_type", "must begin with " + string(p.Type) + "/, or type must be file"
	case len(p.Name) > maxPartName || !utf8.ValidString(p.Name) || textsafe.Line(p.Name) != p.Name:
		return "name", "must have at most 255 bytes, and no control or invisible characters"
	case len(p.URI) > maxPartURI || !utf8.ValidString(p.URI) || textsafe.Line(p.URI) != p.URI:
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

// restrictedName reports whether s is a valid type or subtype by RFC 6838, in lower case.
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

// PartsSize returns the approximate size of a result's parts in memory, in bytes.
func PartsSize(parts []Part) int {
	sum := 0
	for i := range parts {
		p := &parts[i]
		sum += partWeight + len(p.Data) + len(p.URL) + len(p.Name) + len(p.URI)
	}
	return sum
}

// InlineSize returns the total size of the parts' data, in bytes.
func InlineSize(parts []Part) int64 {
	sum := 0
	for i := range parts {
		sum += len(parts[i].Data)
	}
	return int64(sum)
}

// WithoutData returns copies of the parts without their data.
func WithoutData(parts []Part) []Part {
	kept := slices.Clone(parts)
	for i := range kept {
		kept[i].Data = nil
	}
	return kept
}
