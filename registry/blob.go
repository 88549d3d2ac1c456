package registry

import (
	"context"
	"encoding/base64"
	"strings"
	"time"
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
