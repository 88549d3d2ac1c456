// Package blobs keeps files of results that are too large to travel in them. A device asks for a slot while its call
// runs, uploads the file to an address that works once, and names the slot in its result; whoever reads the result gets
// an address that works until it expires. The bytes are in a bucket (a folder, or S3), what is known of them in the
// registry's store.
package blobs

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
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

// Config says where files are kept, and how many.
type Config struct {
	URL         string // of the bucket: file:///folder or s3://bucket?region=…; required
	Store       registry.BlobStore
	Life        time.Duration // of an uploaded file; default DefaultLife
	MaxUpload   int64         // bytes of one file; default DefaultMaxUpload
	TenantBytes int64         // of all files of a tenant that are kept; default DefaultTenantBytes
	Log         *slog.Logger  // default: discard
}

// Service keeps files. It is safe for concurrent use, and must be closed.
type Service struct {
	cfg    Config
	bucket bucket
	stop   context.CancelFunc
	sweeps sync.WaitGroup
}

// Open opens the bucket, and begins to remove what has expired in it.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Life <= 0 {
		cfg.Life = DefaultLife
	}
	if cfg.MaxUpload <= 0 {
		cfg.MaxUpload = DefaultMaxUpload
	}
	if cfg.TenantBytes <= 0 {
		cfg.TenantBytes = DefaultTenantBytes
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	bucket, err := openBucket(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("open the bucket of files: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Service{cfg: cfg, bucket: bucket, stop: stop}
	s.sweeps.Go(func() { s.sweepUntil(ctx) })
	return s, nil
}

// Close ends the sweep and closes the bucket.
func (s *Service) Close() error {
	s.stop()
	s.sweeps.Wait()
	return s.bucket.close()
}

// Reserve makes a slot for a file of a running call, which is there until the call's time is up.
func (s *Service) Reserve(
	ctx context.Context, key registry.Key, call string, p registry.Part, left time.Duration,
) (registry.UploadSlot, error) {
	if field, must := p.Check(); field != "" {
		return registry.UploadSlot{}, registry.Errorf(registry.CodeInvalidRequest, "%s: %s.", field, must)
	}
	if p.Size < 1 || p.Size > s.cfg.MaxUpload {
		return registry.UploadSlot{}, registry.Errorf(registry.CodePayloadTooLarge,
			"size: must be from 1 to %d bytes (FARHAND_MAX_UPLOAD).", s.cfg.MaxUpload)
	}
	secret := newSecret()
	b := registry.Blob{
		Digest: digest(secret), Object: objectName(time.Now().Add(left + s.cfg.Life)), Tenant: key.Tenant,
		SessionID: key.Session, CallID: call, MIMEType: p.MIMEType, Name: p.Name, Size: p.Size,
	}
	if err := s.cfg.Store.ReserveBlob(ctx, b, s.cfg.TenantBytes, left); err != nil {
		return registry.UploadSlot{}, err
	}
	return registry.UploadSlot{URL: registry.PathUpload + secret, Size: p.Size, Expires: left}, nil
}

// Find returns the slot, or the file, that a secret names.
func (s *Service) Find(ctx context.Context, secret string) (registry.Blob, error) {
	return s.cfg.Store.ReadBlob(ctx, digest(secret))
}

// Receive stores the file of a slot. Only the first upload of a slot is read; one that fails uses the slot up.
func (s *Service) Receive(ctx context.Context, b registry.Blob, mimeType string, size int64, body io.Reader) error {
	switch {
	case b.State != registry.BlobOpen:
		return registry.ErrNoBlob
	case size != b.Size:
		return registry.Errorf(registry.CodeInvalidRequest, "Content-Length must be %d, as was asked for.", b.Size)
	case mimeType != b.MIMEType:
		return registry.Errorf(registry.CodeInvalidRequest, "Content-Type must be %s, as was asked for.", b.MIMEType)
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

// write stores the bytes of a blob, all or none.
func (s *Service) write(ctx context.Context, b registry.Blob, body io.Reader) error {
	upload := &upload{body: body, left: b.Size}
	err := s.bucket.put(ctx, b.Object, b.Size, upload)
	switch {
	case upload.broke:
		return registry.Errorf(registry.CodeInvalidRequest, "The upload broke off: %d of %d bytes came.",
			b.Size-upload.left, b.Size)
	case err != nil:
		return fmt.Errorf("store an uploaded file: %w", err)
	}
	return nil
}

// upload is a body that fails unless it has as many bytes as it should, before the last of them are stored.
type upload struct {
	body  io.Reader
	left  int64 // bytes that are still to come
	broke bool  // fewer came, or more
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	if u.left == 0 {
		return 0, io.EOF
	}
	n, err := u.body.Read(p[:min(int64(len(p)), u.left)])
	if u.left -= int64(n); u.left == 0 {
		err = u.end()
	}
	switch {
	case err == io.EOF && u.left > 0, errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrDeadlineExceeded):
		u.broke = true
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

// end returns EOF if the body has no more bytes.
func (u *upload) end() error {
	var more [1]byte
	n, err := io.ReadFull(u.body, more[:])
	if n > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// discardTime bounds the removal of a file whose upload failed.
const discardTime = 5 * time.Second

// discard removes a blob whose upload failed. What cannot be removed now the sweep removes.
func (s *Service) discard(b registry.Blob) {
	ctx, cancel := context.WithTimeout(context.Background(), discardTime)
	defer cancel()
	_ = s.bucket.remove(ctx, b.Object)
	if err := s.cfg.Store.DropBlob(ctx, b.Digest); err != nil {
		s.cfg.Log.Warn("slot of a failed upload not given back", "call", b.CallID, "error", err)
	}
}

// Link returns a part of the result of a call with the address where the file can be read. The part names the slot that
// it was uploaded to. CodeInvalidResult if the slot is of another call, or not filled, or the part says something else
// of the file than was asked for.
func (s *Service) Link(ctx context.Context, key registry.Key, call string, p registry.Part) (registry.Part, error) {
	secret, ok := strings.CutPrefix(p.URL, registry.PathUpload)
	if !ok {
		return p, registry.Errorf(registry.CodeInvalidResult, "url: must be the one of an upload_slot.")
	}
	b, err := s.cfg.Store.ReadBlob(ctx, digest(secret))
	if errors.Is(err, registry.ErrNoBlob) {
		return p, registry.Errorf(registry.CodeInvalidResult, "url: the slot has expired, or was never there.")
	}
	if err != nil {
		return p, err
	}
	switch {
	case b.Tenant != key.Tenant || b.SessionID != key.Session || b.CallID != call:
		return p, registry.Errorf(registry.CodeInvalidResult, "url: the slot has expired, or was never there.")
	case b.State != registry.BlobFilled:
		return p, registry.Errorf(registry.CodeInvalidResult, "url: nothing was uploaded to the slot.")
	case b.MIMEType != p.MIMEType:
		return p, registry.Errorf(registry.CodeInvalidResult, "mime_type: must be %s, as was asked for.", b.MIMEType)
	}
	p.URL, p.Size = registry.PathBlob+secret, b.Size
	return p, nil
}

// Open returns the bytes of a file that was uploaded. The caller closes the reader.
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

// keepTime is how long the gateway has to store a file of its own.
const keepTime = time.Minute

// Keep stores the data of a part of the result of a call, and returns the part with the address where it can be read in
// its place. Its bytes count as those of an uploaded file. CodePayloadTooLarge and CodeRateLimited if there is no room.
func (s *Service) Keep(ctx context.Context, key registry.Key, call string, p registry.Part) (registry.Part, error) {
	p.Size = int64(len(p.Data))
	slot, err := s.Reserve(ctx, key, call, p, keepTime)
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
	sweepMost  = 1000             // files that one sweep removes
	sweepTime  = 30 * time.Second // of one sweep
	sweepGrace = 5 * time.Minute  // clocks of pods disagree

)

// objectName returns a name for a file that nobody reads after its end. Names sort by that end, so the sweep finds what
// has expired at the beginning of the bucket, also what was left behind by a pod that died, or by a store that was
// emptied. They have no folders, which would stay behind.
func objectName(end time.Time) string { return namePrefix(end) + "-" + rand.Text() }

// namePrefix begins the names of files that end at a time.
func namePrefix(end time.Time) string { return fmt.Sprintf("%012d", end.Unix()) }

// sweepUntil removes what has expired until ctx ends.
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

// sweep removes the files that have expired by now, in bounded steps. Several pods may sweep at once.
func (s *Service) sweep(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	names, err := s.bucket.before(ctx, namePrefix(now.Add(-sweepGrace)), sweepMost)
	if err != nil {
		return err
	}
	for _, name := range names {
		end, _, ok := strings.Cut(name, "-")
		if _, err := strconv.ParseInt(end, 10, 64); !ok || err != nil { // not one of ours
			continue
		}
		if err := s.bucket.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
