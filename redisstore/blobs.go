package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// ReserveBlob implements registry.BlobStore.
func (s *Store) ReserveBlob(ctx context.Context, b registry.Blob, limit int64, life time.Duration) error {
	body, err := json.Marshal(b)
	if err != nil {
		return registry.AsError(err)
	}
	answer, err := s.conn.Eval(ctx, scriptBlobReserve, blobKeys(b.Tenant, b.Digest),
		body, b.Digest, b.SessionID, b.Size, limit, limit/registry.BlobShare,
		registry.MaxBlobs, registry.MaxBlobs/registry.BlobShare, millis(life))
	if err != nil {
		return redisconn.Unavailable("reserve blob", err)
	}
	if answer.Int() == 0 {
		return registry.ErrManyBlobs
	}
	return nil
}

// TakeBlob implements registry.BlobStore.
func (s *Store) TakeBlob(ctx context.Context, digest string) (registry.Blob, error) {
	b, err := s.ReadBlob(ctx, digest)
	if err != nil {
		return b, err
	}
	b.State = registry.BlobTaken
	return b, s.moveBlob(ctx, b, registry.BlobOpen, 0)
}

// FillBlob implements registry.BlobStore.
func (s *Store) FillBlob(ctx context.Context, digest string, life time.Duration) error {
	b, err := s.ReadBlob(ctx, digest)
	if err != nil {
		return err
	}
	b.State = registry.BlobFilled
	return s.moveBlob(ctx, b, registry.BlobTaken, life)
}

// moveBlob moves a blob from one state to another. A life of zero keeps its expiry.
func (s *Store) moveBlob(ctx context.Context, b registry.Blob, from registry.BlobState, life time.Duration) error {
	ttl := int64(0)
	if life > 0 {
		ttl = millis(life)
	}
	answer, err := s.conn.Eval(ctx, scriptBlobMove, blobKeys(b.Tenant, b.Digest),
		b.Digest, string(from), string(b.State), ttl)
	if err != nil {
		return redisconn.Unavailable("move blob", err)
	}
	if answer.Int() == 0 {
		return registry.ErrNoBlob
	}
	return nil
}

// ReadBlob implements registry.BlobStore.
func (s *Store) ReadBlob(ctx context.Context, digest string) (registry.Blob, error) {
	answer, err := s.conn.Do(ctx, "HGETALL", blobKey(digest))
	if err != nil {
		return registry.Blob{}, redisconn.Unavailable("read blob", err)
	}
	hash := answer.Map()
	if len(hash) == 0 {
		return registry.Blob{}, registry.ErrNoBlob
	}
	var b registry.Blob
	if err := json.Unmarshal([]byte(hash["body"]), &b); err != nil {
		return b, registry.AsError(err)
	}
	b.State = registry.BlobState(hash["state"])
	return b, nil
}

// DropBlob implements registry.BlobStore.
func (s *Store) DropBlob(ctx context.Context, digest string) error {
	b, err := s.ReadBlob(ctx, digest)
	if errors.Is(err, registry.ErrNoBlob) {
		return nil
	}
	if err == nil {
		_, err = s.conn.Eval(ctx, scriptBlobDrop, blobKeys(b.Tenant, digest), digest)
	}
	return redisconn.Unavailable("drop blob", err)
}

// DropBlobsOf implements registry.BlobStore. A tenant has few enough blobs to check them all. What they count for is
// stored separately, and stays.
func (s *Store) DropBlobsOf(ctx context.Context, key registry.Key) error {
	answer, err := s.conn.Do(ctx, "HGETALL", blobKeys(key.Tenant, "")[2])
	if err != nil {
		return redisconn.Unavailable("read blobs", err)
	}
	pipe := s.conn.Pipeline()
	for digest, counted := range answer.Map() {
		if _, session, _ := strings.Cut(counted, " "); session == key.Session {
			pipe.Do("DEL", blobKey(digest))
		}
	}
	return redisconn.Unavailable("drop blobs", pipe.Exec(ctx))
}
