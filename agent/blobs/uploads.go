package blobs

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
)

// slotLife is how long a caller has to begin the upload of an argument.
const slotLife = 15 * time.Minute

// unnamedType is the MIME type of an upload whose caller names none.
const unnamedType = "application/octet-stream"

// Offer creates a slot for a file that a caller sends to devices, as an argument of its calls. The file counts against
// the quotas of the tenant and of the uploader. sum is the SHA-256 of its bytes, in hexadecimal digits.
func (s *Service) Offer(
	ctx context.Context, by registry.Uploader, size int64, sum, mimeType string,
) (registry.UploadSlot, error) {
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size || hex.EncodeToString(raw) != sum {
		return registry.UploadSlot{}, registry.Errorf(registry.CodeInvalidRequest,
			"sha256: must be the SHA-256 of the bytes, as 64 hexadecimal digits in lower case.")
	}
	if mimeType == "" {
		mimeType = unnamedType
	}
	p := registry.Part{Type: registry.PartFile, MIMEType: mimeType, Size: size}
	return s.reserve(ctx, registry.Blob{
		Tenant: by.Tenant, SessionID: by.Session(), MIMEType: p.MIMEType, Size: size, SHA256: sum,
	}, p, min(slotLife, s.cfg.Life))
}

// Give returns an upload of the uploader, with a link that its device can read it by for life. The link is the same for
// the same call, so that an approval of the call covers it. Give fails with registry.ErrNoUpload if the upload does not
// exist, is another uploader's, or has no bytes yet.
func (s *Service) Give(
	ctx context.Context, by registry.Uploader, call, upload string, life time.Duration,
) (registry.GivenUpload, error) {
	b, err := s.cfg.Store.ReadBlob(ctx, upload)
	switch {
	case errors.Is(err, registry.ErrNoBlob):
		return registry.GivenUpload{}, registry.ErrNoUpload
	case err != nil:
		return registry.GivenUpload{}, err
	case b.Tenant != by.Tenant || b.SessionID != by.Session() || b.Link || b.State != registry.BlobFilled:
		return registry.GivenUpload{}, registry.ErrNoUpload
	}
	sum := sha256.Sum256([]byte("farhand upload\n" + call + "\n" + upload)) // as secret as the id of the upload
	secret := base64.RawURLEncoding.EncodeToString(sum[:])
	link := b
	link.Digest, link.CallID, link.Link = digest(secret), call, true
	if err := s.cfg.Store.ReserveBlob(ctx, link, s.cfg.TenantBytes, min(life, s.cfg.Life)); err != nil {
		return registry.GivenUpload{}, err
	}
	return registry.GivenUpload{
		URL: registry.PathBlob + secret, SHA256: b.SHA256, Size: b.Size, MIMEType: b.MIMEType,
	}, nil
}
