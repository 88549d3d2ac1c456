// Package blobs stores files that are too large to be part of a result. A device requests a slot while its call runs,
// uploads the file to a single-use URL, and names the slot in its result. Readers of the result get a URL that works
// until it expires. The bytes are in a bucket (a folder, or S3), the metadata in the registry's store.
package blobs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// Defaults of a Config.
const (
	DefaultLife        = time.Hour
	DefaultMaxUpload   = 64 << 20
	DefaultTenantBytes = 1 << 30
)

// Config configures where files are stored, and how many.
type Config struct {
	URL         string // of the bucket: file:///folder or s3://bucket?region=…; required
	Store       registry.BlobStore
	Life        time.Duration // of an uploaded file; default DefaultLife
	MaxUpload   int64         // bytes per file; default DefaultMaxUpload
	TenantBytes int64         // quota of stored bytes per tenant; default DefaultTenantBytes
	Log         *slog.Logger  // default: discard
}

// Service stores files. It is safe for concurrent use. Call Close when done.
type Service struct {
	cfg    Config
	bucket bucket
	stop   context.CancelFunc
	sweeps sync.WaitGroup
}

// Open opens the bucket, and starts to remove its expired files.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	cfg.Life = cmp.Or(max(cfg.Life, 0), DefaultLife)
	cfg.MaxUpload = cmp.Or(max(cfg.MaxUpload, 0), DefaultMaxUpload)
	cfg.TenantBytes = cmp.Or(max(cfg.TenantBytes, 0), DefaultTenantBytes)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	bucket, err := openBucket(cfg.URL, openFolder)
	if err != nil {
		return nil, fmt.Errorf("open the bucket of files: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Service{cfg: cfg, bucket: bucket, stop: stop}
	s.sweeps.Go(func() { s.sweepUntil(ctx) })
	return s, nil
}

// Close stops the sweep and closes the bucket.
func (s *Service) Close() error {
	s.stop()
	s.sweeps.Wait()
	return s.bucket.close()
}

// Reserve creates a slot for a file of a running call. It expires with the call, after left. The file counts against
// the quotas of the tenant, the session and, if there is one, the owner.
func (s *Service) Reserve(
	ctx context.Context, key registry.Key, owner registry.BlobOwner, call string, p registry.Part, left time.Duration,
) (registry.UploadSlot, error) {
	return s.reserve(ctx, registry.Blob{
		Tenant: key.Tenant, SessionID: key.Session, Owner: owner, CallID: call, MIMEType: p.MIMEType, Name: p.Name,
		Size: p.Size,
	}, p, left)
}

// reserve creates a slot for a blob that p describes. It expires after left.
func (s *Service) reserve(
	ctx context.Context, b registry.Blob, p registry.Part, left time.Duration,
) (registry.UploadSlot, error) {
	if field, must := p.Check(); field != "" {
		return registry.UploadSlot{}, registry.Errorf(registry.CodeInvalidRequest, "%s: %s.", field, must)
	}
	if p.Size < 1 || p.Size > s.cfg.MaxUpload {
		return registry.UploadSlot{}, registry.Errorf(registry.CodePayloadTooLarge,
			"size: must be from 1 to %d bytes (FARHAND_MAX_UPLOAD).", s.cfg.MaxUpload)
	}
	secret := newSecret()
	b.Digest, b.Object = digest(secret), objectName(time.Now().Add(left+s.cfg.Life))
	if err := s.cfg.Store.ReserveBlob(ctx, b, s.cfg.TenantBytes, left); err != nil {
		return registry.UploadSlot{}, err
	}
	return registry.UploadSlot{ID: b.Digest, URL: registry.PathUpload + secret, Size: p.Size, Expires: left}, nil
}

// Find returns the slot or file of a secret.
func (s *Service) Find(ctx context.Context, secret string) (registry.Blob, error) {
	return s.cfg.Store.ReadBlob(ctx, digest(secret))
}

// Receive stores the file of a slot. A slot accepts one upload. A failed upload also uses it up.
func (s *Service) Receive(ctx context.Context, b registry.Blob, mimeType string, size int64, body io.Reader) error {
	switch {
	case b.State != registry.BlobOpen:
		return registry.ErrNoBlob
	case size != b.Size:
		return registry.Errorf(registry.CodeInvalidRequest, "Content-Length must be %d, as requested.", b.Size)
	case mimeType != b.MIMEType:
		return registry.Errorf(registry.CodeInvalidRequest, "Content-Type must be %s, as requested.", b.MIMEType)
	}
	b, err := s.cfg.Store.TakeBlob(ctx, b.Digest)
	if err != nil {
		return err
	}
	if err = s.write(ctx, b, body); err == nil {
		err = s.cfg.Store.FillBlob(ctx, b.Digest, s.cfg.Life)
	}
	if err != nil {
		s.discard(b)
	}
	return err
}

// write stores the bytes of a blob atomically.
func (s *Service) write(ctx context.Context, b registry.Blob, body io.Reader) error {
	upload := &upload{body: body, left: b.Size, sum: b.SHA256, hash: sha256.New()}
	err := s.bucket.put(ctx, b.Object, b.Size, upload)
	switch {
	case upload.differs:
		return registry.Errorf(registry.CodeInvalidRequest, "The SHA-256 of the bytes is not that of the slot.")
	case upload.broke:
		return registry.Errorf(registry.CodeInvalidRequest, "The upload is incomplete: %d of %d bytes arrived.",
			b.Size-upload.left, b.Size)
	case err != nil:
		return fmt.Errorf("store an uploaded file: %w", err)
	}
	return nil
}

// upload is a body that fails if its length is wrong, before its last bytes are stored.
type upload struct {
	body  io.Reader
	left  int64 // remaining bytes
	broke bool  // fewer bytes arrived, or more

	sum     string    // the SHA-256 that the bytes must have, in hexadecimal digits; empty: any
	hash    hash.Hash // of the bytes so far
	differs bool      // the SHA-256 is another one
}

func (u *upload) Read(p []byte) (int, error) {
	if u.left == 0 {
		return 0, io.EOF
	}
	n, err := u.body.Read(p[:min(int64(len(p)), u.left)])
	_, _ = u.hash.Write(p[:n]) // never fails
	if u.left -= int64(n); u.left == 0 {
		if err = u.end(); err == nil || err == io.EOF {
			if u.differs = u.sum != "" && hex.EncodeToString(u.hash.Sum(nil)) != u.sum; u.differs {
				return n, io.ErrUnexpectedEOF
			}
		}
	}
	switch {
	case err == io.EOF && u.left > 0, errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrDeadlineExceeded):
		u.broke = true
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

func (u *upload) end() error {
	var more [1]byte
	n, err := io.ReadFull(u.body, more[:])
	if n > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// discardTime bounds the removal of a file after a failed upload.
const discardTime = 5 * time.Second

// discard removes a blob after a failed upload. If that fails, the sweep removes it later.
func (s *Service) discard(b registry.Blob) {
	ctx, cancel := context.WithTimeout(context.Background(), discardTime)
	defer cancel()
	_ = s.bucket.remove(ctx, b.Object)
	if err := s.cfg.Store.DropBlob(ctx, b.Digest); err != nil {
		s.cfg.Log.Warn("slot of a failed upload not released", "call", b.CallID, "error", err)
	}
}

// Link returns a part of a call's result with the URL to read its file. The part names the slot of its upload. Link
// fails with CodeInvalidResult if the slot belongs to another call or is not filled, or if the part's MIME type is not
// that of the slot.
func (s *Service) Link(ctx context.Context, key registry.Key, call string, p registry.Part) (registry.Part, error) {
	secret, ok := strings.CutPrefix(p.URL, registry.PathUpload)
	if !ok {
		return p, registry.Errorf(registry.CodeInvalidResult, "url: must be the URL of an upload_slot.")
	}
	b, err := s.Find(ctx, secret)
	switch {
	case err != nil && !errors.Is(err, registry.ErrNoBlob):
		return p, err
	case err != nil, b.Tenant != key.Tenant || b.SessionID != key.Session || b.CallID != call:
		return p, registry.Errorf(registry.CodeInvalidResult, "url: the slot does not exist or has expired.")
	case b.State != registry.BlobFilled:
		return p, registry.Errorf(registry.CodeInvalidResult, "url: nothing was uploaded to the slot.")
	case b.MIMEType != p.MIMEType:
		return p, registry.Errorf(registry.CodeInvalidResult, "mime_type: must be %s, as requested.", b.MIMEType)
	}
	p.URL, p.Size = registry.PathBlob+secret, b.Size
	return p, nil
}

// Open returns the bytes of an uploaded file. The caller closes the reader.
func (s *Service) Open(ctx context.Context, b registry.Blob) (io.ReadCloser, error) {
	if b.State != registry.BlobFilled {
		return nil, registry.ErrNoBlob
	}
	r, err := s.bucket.get(ctx, b.Object)
	if err != nil {
		return nil, fmt.Errorf("read an uploaded file: %w", err)
	}
	return r, nil
}

func newSecret() string {
	secret := make([]byte, registry.BlobSecret)
	_, _ = rand.Read(secret) // never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// storeTime bounds the time to store a file that the gateway itself adds.
const storeTime = time.Minute

// Store stores the data of a result's part, and returns the part with a URL in place of the data. The bytes count
// against the quota of uploads. It fails with CodePayloadTooLarge or CodeRateLimited if there is no room.
func (s *Service) Store(
	ctx context.Context, key registry.Key, owner registry.BlobOwner, call string, p registry.Part,
) (registry.Part, error) {
	p.Size = int64(len(p.Data))
	slot, err := s.Reserve(ctx, key, owner, call, p, storeTime)
	if err != nil {
		return p, err
	}
	secret := strings.TrimPrefix(slot.URL, registry.PathUpload)
	b, err := s.Find(ctx, secret)
	if err != nil {
		return p, err
	}
	if err := s.Receive(ctx, b, p.MIMEType, p.Size, bytes.NewReader(p.Data)); err != nil {
		return p, err
	}
	p.Data, p.URL = nil, registry.PathBlob+secret
	return p, nil
}

const (
	sweepEvery = time.Minute
	sweepMost  = 1000             // files per sweep
	sweepTime  = 30 * time.Second // per sweep
	sweepGrace = 5 * time.Minute  // for clock differences between pods
)

// objectName returns a new name for a file that is unreadable after end. Names sort by end, so the sweep finds expired
// files, also of a dead pod or an emptied store. Names have no folders, because empty folders would remain.
func objectName(end time.Time) string { return namePrefix(end) + "-" + rand.Text() }

// namePrefix returns the prefix of the names of files with this end.
func namePrefix(end time.Time) string { return fmt.Sprintf("%012d", end.Unix()) }

// sweepUntil removes expired files every sweepEvery until ctx ends.
func (s *Service) sweepUntil(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		if err := s.sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("expired files not removed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sweep removes files that expired more than sweepGrace before now, at most sweepMost. Pods may sweep concurrently. If
// the bucket fails while it lists the files, sweep removes those that it has listed.
func (s *Service) sweep(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	names, failed := s.bucket.before(ctx, namePrefix(now.Add(-sweepGrace)), sweepMost)
	for _, name := range names {
		end, _, ok := strings.Cut(name, "-")
		if _, err := strconv.ParseInt(end, 10, 64); !ok || err != nil { // not created by this package
			continue
		}
		if err := s.bucket.remove(ctx, name); err != nil {
			return err
		}
	}
	return failed
}
