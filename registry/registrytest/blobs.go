package registrytest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// blob returns a blob of a tenant of its own.
func (f *fixture) blob(name, session string, size int64) registry.Blob {
	return registry.Blob{
		Digest: f.id + name, Object: "o/" + name, Tenant: f.tenant, SessionID: session, CallID: "c" + name,
		MIMEType: "video/mp4", Name: "clip.mp4", Size: size,
	}
}

func (f *fixture) wantBlobs(err error, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%v, want %v", err, want)
	}
}

var blobTests = []subtest{
	{name: "a blob is open, then taken, then filled", run: func(f *fixture) {
		b := f.blob("a", "s1", 7)
		f.must(f.store.ReserveBlob(f.ctx, b, 1000, time.Minute))
		f.wantBlobs(f.store.FillBlob(f.ctx, b.Digest, time.Minute), registry.ErrNoBlob)
		for _, state := range []registry.BlobState{registry.BlobOpen, registry.BlobTaken, registry.BlobFilled} {
			b.State = state
			if got, err := f.store.ReadBlob(f.ctx, b.Digest); err != nil || got != b {
				f.Errorf("%+v, %v; want %+v", got, err, b)
			}
			switch state {
			case registry.BlobOpen:
				got, err := f.store.TakeBlob(f.ctx, b.Digest)
				f.must(err)
				if b.State = registry.BlobTaken; got != b {
					f.Errorf("took %+v", got)
				}
			case registry.BlobTaken:
				f.must(f.store.FillBlob(f.ctx, b.Digest, time.Minute))
			}
			f.wantBlobs(errOf(f.store.TakeBlob(f.ctx, b.Digest)), registry.ErrNoBlob)
		}
		f.must(f.store.DropBlob(f.ctx, b.Digest))
		f.must(f.store.DropBlob(f.ctx, b.Digest))
		f.wantBlobs(errOf(f.store.ReadBlob(f.ctx, b.Digest)), registry.ErrNoBlob)
	}},
	{name: "the blobs of a session go together", run: func(f *fixture) {
		gone, stays := []registry.Blob{f.blob("a", "s 1", 7), f.blob("b", "s 1", 7)}, f.blob("c", "s", 7)
		for _, b := range append(gone, stays) {
			f.must(f.store.ReserveBlob(f.ctx, b, 1000, time.Minute))
		}
		f.must(f.store.DropBlobsOf(f.ctx, registry.Key{Tenant: f.tenant + "x", Session: "s 1"}, time.Minute))
		f.must(f.store.DropBlobsOf(f.ctx, f.key("s 1"), time.Minute))
		f.must(f.store.DropBlobsOf(f.ctx, f.key("s 1"), time.Minute))
		for _, b := range gone {
			f.wantBlobs(errOf(f.store.ReadBlob(f.ctx, b.Digest)), registry.ErrNoBlob)
			f.wantBlobs(errOf(f.store.TakeBlob(f.ctx, b.Digest)), registry.ErrNoBlob)
		}
		f.must(errOf(f.store.ReadBlob(f.ctx, stays.Digest)))
	}},
	{name: "blobs of an earlier generation stay hidden, and later ones can be read", run: func(f *fixture) {
		upload, slot := f.blob("a", "s 1", 7), f.blob("b", "s 1", 7)
		for _, b := range []registry.Blob{upload, slot} {
			f.must(f.store.ReserveBlob(f.ctx, b, 1000, time.Minute))
		}
		before, err := f.store.ReadBlob(f.ctx, upload.Digest)
		f.must(err)
		for range 2 {
			f.must(f.store.DropBlobsOf(f.ctx, f.key("s 1"), time.Minute))
			late := before // what was read before the deletion, and is stored after it
			late.Digest, late.Link = f.id+"late", true
			f.must(f.store.ReserveBlob(f.ctx, late, 1000, time.Minute))
			f.wantBlobs(errOf(f.store.ReadBlob(f.ctx, late.Digest)), registry.ErrNoBlob)

			next := f.blob("next", "s 1", 7)
			f.must(f.store.ReserveBlob(f.ctx, next, 1000, time.Minute))
			before, err = f.store.ReadBlob(f.ctx, next.Digest)
			f.must(err)
			link := before
			link.Digest, link.Link = f.id+"link", true
			f.must(f.store.ReserveBlob(f.ctx, link, 1000, time.Minute))
			f.must(errOf(f.store.ReadBlob(f.ctx, link.Digest)))
		}
	}},
	{name: "the blobs of a session that has gone count until they expire", run: func(f *fixture) {
		f.must(f.store.ReserveBlob(f.ctx, f.blob("brief", "s1", 50), 800, briefly))
		f.must(f.store.ReserveBlob(f.ctx, f.blob("taken", "s1", 50), 800, time.Minute))
		f.must(errOf(f.store.TakeBlob(f.ctx, f.id+"taken")))
		f.must(f.store.DropBlobsOf(f.ctx, f.key("s1"), time.Minute))
		f.wantBlobs(f.store.FillBlob(f.ctx, f.id+"taken", time.Minute), registry.ErrNoBlob)
		f.must(f.store.DropBlob(f.ctx, f.id+"taken"))
		f.wantBlobs(f.store.ReserveBlob(f.ctx, f.blob("full", "s1", 51), 800, time.Minute), registry.ErrManyBlobs)
		f.eventually("the brief one counts no longer", func() bool {
			return f.store.ReserveBlob(f.ctx, f.blob("next", "s1", 50), 800, time.Minute) == nil
		})
		f.wantBlobs(f.store.ReserveBlob(f.ctx, f.blob("more", "s1", 1), 800, time.Minute), registry.ErrManyBlobs)
	}},
	{name: "of many who take a blob one does", run: func(f *fixture) {
		b := f.blob("a", "s1", 7)
		f.must(f.store.ReserveBlob(f.ctx, b, 1000, time.Minute))
		var taken atomic.Int32
		together(20, func(int) {
			if _, err := f.store.TakeBlob(f.ctx, b.Digest); err == nil {
				taken.Add(1)
			} else if !errors.Is(err, registry.ErrNoBlob) {
				f.Errorf("take: %v", err)
			}
		})
		if n := taken.Load(); n != 1 {
			f.Errorf("%d took it", n)
		}
	}},
	{name: "tenants and sessions have so many bytes and no more", run: func(f *fixture) {
		const limit = 1600 // for one session 200
		reserve := func(name, session string, size int64) error {
			return f.store.ReserveBlob(f.ctx, f.blob(name, session, size), limit, time.Minute)
		}
		f.must(reserve("a", "s1", 150))
		f.wantBlobs(reserve("b", "s1", 51), registry.ErrManyBlobs)
		f.must(reserve("c", "s1", 50))
		for i := range 7 {
			f.must(reserve(fmt.Sprint(i), fmt.Sprintf("t%d", i), 200))
		}
		f.wantBlobs(reserve("d", "s2", 1), registry.ErrManyBlobs)
		other := f.blob("e", "s1", 150)
		other.Tenant += "x"
		f.must(f.store.ReserveBlob(f.ctx, other, limit, time.Minute))
		f.must(f.store.DropBlob(f.ctx, f.id+"a"))
		f.must(reserve("f", "s1", 100))
		f.wantBlobs(reserve("g", "s1", 100), registry.ErrManyBlobs)
	}},
	{name: "a session has so many blobs and no more", run: func(f *fixture) {
		reserve := func(name, session string) error {
			return f.store.ReserveBlob(f.ctx, f.blob(name, session, 1), 1<<20, time.Minute)
		}
		for i := range registry.MaxBlobs / registry.BlobShare {
			f.must(reserve(fmt.Sprint("greedy", i), "s1"))
		}
		f.wantBlobs(reserve("more", "s1"), registry.ErrManyBlobs)
		f.must(reserve("other", "s2"))
		f.must(f.store.DropBlob(f.ctx, f.id+"greedy0"))
		f.must(reserve("again", "s1"))
	}},
	{name: "the sessions of an owner share a quota", run: func(f *fixture) {
		const limit = 1600 // for one user 800, for one device 200
		ann, lamp := registry.BlobOwner{User: "ann"}, registry.BlobOwner{Device: "lamp"}
		reserve := func(name, session string, owner registry.BlobOwner, size int64) error {
			b := f.blob(name, session, size)
			b.Owner = owner
			return f.store.ReserveBlob(f.ctx, b, limit, time.Minute)
		}
		for i := range 4 {
			f.must(reserve(fmt.Sprint("a", i), fmt.Sprint("s", i), ann, 200))
		}
		f.wantBlobs(reserve("b", "s5", ann, 1), registry.ErrManyBlobs)
		f.must(reserve("c", "s6", lamp, 100))
		f.must(reserve("d", "s7", lamp, 100))
		f.wantBlobs(reserve("e", "s8", lamp, 1), registry.ErrManyBlobs)
		f.must(reserve("f", "s8", registry.BlobOwner{}, 200))
		f.must(f.store.DropBlob(f.ctx, f.id+"c"))
		f.must(reserve("g", "s9", lamp, 100))
		f.must(f.store.DropBlob(f.ctx, f.id+"a0"))
		f.must(reserve("h", "s5", ann, 100))
		phone := registry.BlobOwner{User: "ben", Device: "phone"}
		f.must(reserve("i", "s10", phone, 100))
		f.must(reserve("j", "s11", phone, 100))
		f.wantBlobs(reserve("k", "s12", phone, 1), registry.ErrManyBlobs)
	}},
	{name: "blobs end after their time, and count no longer", run: func(f *fixture) {
		f.must(f.store.ReserveBlob(f.ctx, f.blob("a", "s1", 100), 800, briefly))
		f.must(f.store.ReserveBlob(f.ctx, f.blob("b", "s2", 100), 800, briefly))
		f.must(errOf(f.store.TakeBlob(f.ctx, f.id+"b")))
		f.must(f.store.FillBlob(f.ctx, f.id+"b", time.Minute))
		f.eventually("it has expired", func() bool {
			return errors.Is(errOf(f.store.ReadBlob(f.ctx, f.id+"a")), registry.ErrNoBlob)
		})
		f.must(f.store.ReserveBlob(f.ctx, f.blob("c", "s1", 100), 800, time.Minute))
		f.wantBlobs(f.store.ReserveBlob(f.ctx, f.blob("d", "s2", 1), 800, time.Minute), registry.ErrManyBlobs)
	}},
}
