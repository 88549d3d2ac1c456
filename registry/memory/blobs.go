package memory

import (
	"context"
	"maps"
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
}

// ReserveBlob implements registry.BlobStore.
func (m *Store) ReserveBlob(_ context.Context, b registry.Blob, limit int64, ttl time.Duration) error {
	s, now := &m.blobs, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.purge(now)
	count, tenant, session := 0, b.Size, b.Size
	for _, other := range s.all {
		if other.Tenant != b.Tenant {
			continue
		}
		count, tenant = count+1, tenant+other.Size
		if other.SessionID == b.SessionID {
			session += other.Size
		}
	}
	if count >= registry.MaxBlobs || tenant > limit || session > limit/registry.BlobShare {
		return registry.ErrManyBlobs
	}
	b.State = registry.BlobOpen
	s.all[b.Digest] = &storedBlob{life{now.Add(ttl)}, b}
	return nil
}

// TakeBlob implements registry.BlobStore.
func (m *Store) TakeBlob(_ context.Context, digest string) (registry.Blob, error) {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.all.get(digest, m.opts.Now())
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
	b := s.all.get(digest, now)
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
	if b := s.all.get(digest, m.opts.Now()); b != nil {
		return b.Blob, nil
	}
	return registry.Blob{}, registry.ErrNoBlob
}

// DropBlob implements registry.BlobStore.
func (m *Store) DropBlob(_ context.Context, digest string) error {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, digest)
	return nil
}

// DropBlobsOf implements registry.BlobStore.
func (m *Store) DropBlobsOf(_ context.Context, key registry.Key) error {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(_ string, b *storedBlob) bool {
		return b.Tenant == key.Tenant && b.SessionID == key.Session
	})
	return nil
}
