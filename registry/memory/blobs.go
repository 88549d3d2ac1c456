package memory

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// blobs are those of all tenants.
type blobs struct {
	mu  sync.Mutex
	all expiring[string, *storedBlob] // by digest
}

type storedBlob struct {
	life
	registry.Blob
	dropped bool // it only counts
}

// live returns a blob that is there, or nil. The caller holds the lock.
func (s *blobs) live(digest string, now time.Time) *storedBlob {
	if b := s.all.get(digest, now); b != nil && !b.dropped {
		return b
	}
	return nil
}

// ReserveBlob implements registry.BlobStore.
func (m *Store) ReserveBlob(_ context.Context, b registry.Blob, limit int64, ttl time.Duration) error {
	s, now := &m.blobs, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.purge(now)
	count, own, tenant, session := 0, 0, b.Size, b.Size
	for _, other := range s.all {
		if other.Tenant != b.Tenant {
			continue
		}
		count, tenant = count+1, tenant+other.Size
		if other.SessionID == b.SessionID {
			own, session = own+1, session+other.Size
		}
	}
	if count >= registry.MaxBlobs || own >= registry.MaxBlobs/registry.BlobShare || tenant > limit ||
		session > limit/registry.BlobShare {
		return registry.ErrManyBlobs
	}
	b.State = registry.BlobOpen
	s.all[b.Digest] = &storedBlob{life: life{now.Add(ttl)}, Blob: b}
	return nil
}

// TakeBlob implements registry.BlobStore.
func (m *Store) TakeBlob(_ context.Context, digest string) (registry.Blob, error) {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.live(digest, m.opts.Now())
	if b == nil || b.State != registry.BlobOpen {
		return registry.Blob{}, registry.ErrNoBlob
	}
	b.State = registry.BlobTaken
	return b.Blob, nil
}

// FillBlob implements registry.BlobStore.
func (m *Store) FillBlob(_ context.Context, digest string, ttl time.Duration) error {
	s, now := &m.blobs, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.live(digest, now)
	if b == nil || b.State != registry.BlobTaken {
		return registry.ErrNoBlob
	}
	b.State, b.life = registry.BlobFilled, life{now.Add(ttl)}
	return nil
}

// ReadBlob implements registry.BlobStore.
func (m *Store) ReadBlob(_ context.Context, digest string) (registry.Blob, error) {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.live(digest, m.opts.Now()); b != nil {
		return b.Blob, nil
	}
	return registry.Blob{}, registry.ErrNoBlob
}

// DropBlob implements registry.BlobStore.
func (m *Store) DropBlob(_ context.Context, digest string) error {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live(digest, m.opts.Now()) != nil {
		delete(s.all, digest)
	}
	return nil
}

// DropBlobsOf implements registry.BlobStore.
func (m *Store) DropBlobsOf(_ context.Context, key registry.Key) error {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.all {
		b.dropped = b.dropped || b.Tenant == key.Tenant && b.SessionID == key.Session
	}
	return nil
}
