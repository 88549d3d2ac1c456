package blobs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file:; that of s3: is in s3.go

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
	bucket *blob.Bucket
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
	bucket, err := openBucket(ctx, cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("open the bucket of files: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Service{cfg: cfg, bucket: bucket, stop: stop}
	s.sweeps.Go(func() { s.sweepUntil(ctx) })
	return s, nil
}

// CheckURL reports why no bucket can have a URL, without making a folder, asking a server, or repeating the URL, which
// may hold a key. Whether a folder may be written, and a server answers, is found out by Open.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || !blob.DefaultURLMux().ValidBucketScheme(u.Scheme) {
		return errors.New("must look like file:///folder or s3://bucket?region=eu-central-1")
	}
	for u.Scheme == "file" && len(u.Path) > 1 { // what is there of the way to the folder must be folders
		if _, err := os.Stat(filepath.FromSlash(u.Path)); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		u.Path = path.Dir(u.Path)
	}
	bucket, err := blob.OpenBucket(context.Background(), u.String())
	if err != nil {
		return errors.New("names no folder that can be made, no bucket, or a parameter that is not known")
	}
	return bucket.Close()
}

// Probe reports why files cannot be kept in a bucket. A folder is made.
func Probe(ctx context.Context, url string) error {
	bucket, err := openBucket(ctx, url)
	if err != nil {
		return err
	}
	return bucket.Close()
}

// withOptions adds to the URL of a folder that it is made if need be, that files have nothing beside them, and that
// what is being written stands where the sweep finds it if this process dies.
func withOptions(url string) string {
	if !strings.HasPrefix(url, "file:") {
		return url
	}
	join := "?"
	if strings.Contains(url, "?") {
		join = "&"
	}
	return url + join + "create_dir=1&no_tmp_dir=1&metadata=skip"
}

// Close ends the sweep and closes the bucket.
func (s *Service) Close() error {
	s.stop()
	s.sweeps.Wait()
	return s.bucket.Close()
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
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	w, err := s.bucket.NewWriter(ctx, b.Object,
		&blob.WriterOptions{ContentType: "application/octet-stream", DisableContentTypeDetection: true,
			BufferSize: partBytes, MaxConcurrency: 1}) // as many bytes are held while the bucket is slow
	if err != nil {
		return fmt.Errorf("store an uploaded file: %w", err)
	}
	n, err := io.Copy(w, io.LimitReader(body, b.Size+1))
	if err != nil || n != b.Size {
		abandon() // so that Close keeps nothing
		_ = w.Close()
		if n == b.Size || err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			return registry.Errorf(registry.CodeInvalidRequest, "The upload broke off: %d of %d bytes came.", n, b.Size)
		}
		return fmt.Errorf("store an uploaded file: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("store an uploaded file: %w", err)
	}
	return nil
}

// discardTime bounds the removal of a file whose upload failed.
const discardTime = 5 * time.Second

// discard removes a blob whose upload failed. What cannot be removed now the sweep removes.
func (s *Service) discard(b registry.Blob) {
	ctx, cancel := context.WithTimeout(context.Background(), discardTime)
	defer cancel()
	_ = s.bucket.Delete(ctx, b.Object)
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
	r, err := s.bucket.NewReader(ctx, b.Object, nil)
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
