// Package blobs keeps the attributes of result files as documents of a store. Every store uses it to implement
// registry.BlobStore.
//
// All blobs are in one space, because the secret of a blob does not tell its tenant. A blob counts against the quotas
// of its tenant, session, user and device while it is in their indexes, where its member has its size.
//
// The last erasure of a session is a document in the space of its tenant. The blobs of the session have its revision as
// their generation. Blobs of other generations are older, and count as deleted.
//
// Imports: only registry and registry/documents, of the packages of this module.
package blobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// store implements registry.BlobStore.
type store struct{ docs documents.Store }

// New returns a store of blobs on documents.
func New(docs documents.Store) registry.BlobStore { return store{docs} }

func blobs() documents.Space { return documents.Space{Kind: "blobs"} }

// erasure names the document of a session's last erasure. It has a digest, because what stands for the session of a
// user's uploads names the user, and the document outlives an erased user.
func erasure(key registry.Key) documents.Ref {
	sum := sha256.Sum256([]byte(key.Session))
	return documents.Space{Tenant: key.Tenant, Kind: "blobs"}.Ref("erased." + hex.EncodeToString(sum[:]))
}

// generation returns the generation of a session's new blobs. It costs one round trip.
func (s store) generation(ctx context.Context, key registry.Key) (string, error) {
	found, err := s.docs.Read(ctx, erasure(key))
	if err != nil {
		return "", err
	}
	return found[0].Revision, nil
}

// blob is a stored blob.
type blob struct {
	registry.Blob
	State registry.BlobState `json:"state"`
}

// sessionIndex names the index of a session's blobs. No tenant's name has a slash.
func sessionIndex(tenant, session string) string { return "session." + tenant + "/" + session }

// quota is an index of blobs, which may have a part of the tenant's quotas.
type quota struct {
	index string
	share int64 // divisor of the tenant's quotas
}

// quotas returns the quotas of the blob's tenant, session, user and device. An index names neither of the last two.
func (b blob) quotas() []quota {
	all := []quota{{"tenant." + b.Tenant, 1}, {sessionIndex(b.Tenant, b.SessionID), registry.BlobShare}}
	add := func(kind, name string, share int64) {
		if name != "" {
			sum := sha256.Sum256([]byte(name))
			all = append(all, quota{kind + b.Tenant + "/" + hex.EncodeToString(sum[:16]), share})
		}
	}
	add("user.", b.Owner.User, registry.BlobUserShare)
	add("device.", b.Owner.Device, registry.BlobShare)
	return all
}

func (b blob) member() string { return documents.Weighed(b.weight(), b.Digest) }

func (b blob) session() registry.Key { return registry.Key{Tenant: b.Tenant, Session: b.SessionID} }

// weight is how many bytes of the quotas the blob takes.
func (b blob) weight() int64 {
	if b.Link {
		return 0
	}
	return b.Size
}

// put returns the steps that store a blob, and have it count, for life; zero: for as long as before.
func (b blob) put(life time.Duration) []documents.Step {
	steps := []documents.Step{documents.PutJSON(b.Digest, b, life)}
	for _, q := range b.quotas() {
		if life > 0 {
			steps = append(steps, documents.Join(q.index, b.member(), life, 0))
		}
	}
	return steps
}

// ReserveBlob implements registry.BlobStore.
func (s store) ReserveBlob(ctx context.Context, b registry.Blob, limit int64, life time.Duration) error {
	stored := blob{Blob: b, State: cmp.Or(b.State, registry.BlobOpen)}
	if !b.Link {
		var err error
		if stored.Generation, err = s.generation(ctx, stored.session()); err != nil {
			return err
		}
	}
	steps := stored.put(life)
	for _, q := range stored.quotas() {
		steps = append(steps, documents.AtMost(registry.MaxBlobs/q.share-1, documents.Term{Index: q.index, Weight: 1}),
			documents.AtMost(limit/q.share-stored.weight(), documents.Term{Index: q.index}))
	}
	done, err := documents.Commit(ctx, s.docs, blobs(), steps...)
	if err == nil && done.Refused > 0 {
		return registry.ErrManyBlobs
	}
	return err
}

// whole returns the blob with its state.
func (b blob) whole() registry.Blob {
	b.Blob.State = b.State
	return b.Blob
}

// move moves a blob from one state to another. A life of zero keeps its expiry.
func (s store) move(
	ctx context.Context, digest string, from, to registry.BlobState, life time.Duration,
) (b blob, err error) {
	change := func(current blob, _ documents.Document) ([]documents.Step, error) {
		b = current
		if b.State != from {
			return nil, registry.ErrNoBlob
		}
		b.State = to
		return b.put(life), nil
	}
	err = documents.ChangeOne(ctx, s.docs, blobs(), digest, registry.ErrNoBlob, change)
	return b, err
}

// TakeBlob implements registry.BlobStore.
func (s store) TakeBlob(ctx context.Context, digest string) (registry.Blob, error) {
	b, err := s.move(ctx, digest, registry.BlobOpen, registry.BlobTaken, 0)
	return b.whole(), err
}

// FillBlob implements registry.BlobStore.
func (s store) FillBlob(ctx context.Context, digest string, life time.Duration) error {
	_, err := s.move(ctx, digest, registry.BlobTaken, registry.BlobFilled, life)
	return err
}

// ReadBlob implements registry.BlobStore. It takes two round trips: the blob names its session, and the generation of
// the session is read after it.
func (s store) ReadBlob(ctx context.Context, digest string) (registry.Blob, error) {
	found, err := s.docs.Read(ctx, blobs().Ref(digest))
	if err != nil {
		return registry.Blob{}, err
	}
	b, err := documents.Decode[blob](found[0], registry.ErrNoBlob)
	if err != nil {
		return registry.Blob{}, err
	}
	switch generation, err := s.generation(ctx, b.session()); {
	case err != nil:
		return registry.Blob{}, err
	case generation != "" && generation != b.Generation:
		return registry.Blob{}, registry.ErrNoBlob
	}
	return b.whole(), nil
}

// DropBlob implements registry.BlobStore.
func (s store) DropBlob(ctx context.Context, digest string) error {
	change := func(b blob, _ documents.Document) ([]documents.Step, error) {
		steps := []documents.Step{documents.Delete(digest)}
		for _, q := range b.quotas() {
			steps = append(steps, documents.Leave(q.index, b.member()))
		}
		return steps, nil
	}
	err := documents.ChangeOne(ctx, s.docs, blobs(), digest, registry.ErrNoBlob, change)
	if errors.Is(err, registry.ErrNoBlob) {
		return nil
	}
	return err
}

// DropBlobsOf implements registry.BlobStore. The indexes still count the blobs.
func (s store) DropBlobsOf(ctx context.Context, key registry.Key, life time.Duration) error {
	erased := erasure(key)
	begin := documents.Write{Space: erased.Space, Steps: []documents.Step{documents.Put(erased.ID, nil, life)}}
	lists, err := s.docs.Members(ctx, documents.Query{
		Space: blobs(), Index: sessionIndex(key.Tenant, key.Session), Limit: registry.MaxBlobs,
	})
	if err != nil {
		return err
	}
	var steps []documents.Step
	for _, member := range lists[0] {
		_, digest, _ := strings.Cut(member, " ")
		steps = append(steps, documents.Delete(digest))
	}
	writes := []documents.Write{begin, {Space: blobs(), Steps: steps}}
	if len(steps) == 0 {
		writes = writes[:1]
	}
	_, err = s.docs.Write(ctx, writes...)
	return err
}
