package audit

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/registrytest"
)

// flaky is a store that may be away.
type flaky struct {
	*memory.Store
	outage registrytest.Outage
}

func (f *flaky) AppendAudit(ctx context.Context, entries []registry.AuditEntry) error {
	if err := f.outage.Err(); err != nil {
		return err
	}
	return f.Store.AppendAudit(ctx, entries)
}

func (f *flaky) read(t *testing.T) []registry.AuditEntry {
	t.Helper()
	var all []registry.AuditEntry
	for q := (registry.AuditQuery{Tenant: "t", Limit: 1 << 20}); ; {
		page, next, err := f.ReadAudit(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, page...); next == "" {
			return all
		}
		q.Before = next
	}
}

func start() (*Log, *flaky) {
	store := &flaky{Store: memory.New(memory.Options{})}
	return New(store, "pod-1", slog.New(slog.DiscardHandler)), store
}

// Lines are written together, with the pod and the time; Close leaves none behind.
func TestLinesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := start()
		for i := range 100 {
			l.Note(registry.AuditEntry{Tenant: "t", Target: strconv.Itoa(i), Args: registry.MustJSON(`{"a":1}`)})
		}
		time.Sleep(2 * gather)
		synctest.Wait()
		got := store.read(t)
		if len(got) != 100 || store.outage.Asked() > 3 {
			t.Fatalf("%d lines in %d writes", len(got), store.outage.Asked())
		}
		if e := got[0]; e.Pod != "pod-1" || e.At.IsZero() || e.Target != "99" || len(e.ArgsDigest) != 64 {
			t.Errorf("%+v", e)
		}
		l.Note(registry.AuditEntry{Tenant: "t", Target: "last"})
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := store.read(t); got[0].Target != "last" {
			t.Errorf("the last line is %+v", got[0])
		}
		l.Note(registry.AuditEntry{Tenant: "t"})
		if n := l.Stats(); n.Dropped != 1 || n.Written != 101 || n.Bytes != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// While the store is away lines wait, within bounds; those that there is no room for are counted, and the others are
// written, in order, when it is back.
func TestLinesWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := start()
		store.outage.Set(true)
		for i := range 3 * maxLines {
			l.Note(registry.AuditEntry{Tenant: "t", Target: strconv.Itoa(i)})
		}
		time.Sleep(10*retryPause + time.Millisecond) // between two tries: lines on their way are in no count
		synctest.Wait()
		n := l.Stats()
		if n.Bytes > maxBytes || n.Waiting > maxLines+batch || n.Waiting < 1000 || n.Waiting+n.Dropped != 3*maxLines {
			t.Errorf("%+v", n)
		}
		store.outage.Set(false)
		time.Sleep(time.Minute)
		got := store.read(t)
		if int64(len(got)) != n.Waiting {
			t.Fatalf("%d lines of %d", len(got), n.Waiting)
		}
		for i, e := range got {
			if e.Target != strconv.Itoa(len(got)-1-i) {
				t.Fatalf("line %d is %s", i, e.Target)
			}
		}
		if err := l.Close(t.Context()); err != nil || l.Stats().Bytes != 0 {
			t.Errorf("%v, %+v", err, l.Stats())
		}
	})
}

// While lines of one tenant wait that fill its share, those of another one find room.
func TestOneTenantDoesNotDropTheLinesOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := start()
		store.outage.Set(true)
		for range 2 * maxLines {
			l.Note(registry.AuditEntry{Tenant: "hostile"})
		}
		dropped := l.Stats().Dropped
		if dropped < maxLines {
			t.Fatalf("of %d lines %d were dropped", 2*maxLines, dropped)
		}
		for range maxLines / 8 {
			l.Note(registry.AuditEntry{Tenant: "other"})
		}
		if n := l.Stats(); n.Dropped != dropped {
			t.Errorf("%d lines of another tenant were dropped", n.Dropped-dropped)
		}
		store.outage.Set(false)
		if err := l.Close(t.Context()); err != nil || len(l.bytesByTenant) != 0 {
			t.Errorf("%v; held for %v", err, l.bytesByTenant)
		}
	})
}

// Close ends with its context although the store is away, and says what was lost.
func TestCloseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := start()
		store.outage.Set(true)
		l.Note(registry.AuditEntry{Tenant: "t"})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		if err := l.Close(ctx); err == nil || time.Since(begin) > 11*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if n := l.Stats(); n.Dropped != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// Long texts are cut, long arguments do not wait in memory.
func TestLongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := start()
		long := string(make([]byte, 10_000))
		text := make([]byte, 0, 20_000)
		text = append(text, `{"a":"`...)
		for range 10_000 {
			text = append(text, 'x')
		}
		text = append(text, `"}`...)
		l.Note(registry.AuditEntry{
			Tenant: "t", Reason: long, Tool: long, Actor: registry.AuditActor{User: long, Roles: make([]string, 100)},
			Args: registry.MustJSON(string(text)),
		})
		if n := l.Stats(); n.Bytes > 2000 {
			t.Errorf("%d bytes wait", n.Bytes)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e := store.read(t)[0]
		if len(e.Reason) > registry.MaxAuditReason || len(e.Tool) > 256 || len(e.Actor.User) > 256 ||
			len(e.Actor.Roles) > 8 || len(e.ArgsDigest) != 64 {
			t.Errorf("a line of %d, %d, %d bytes, %d roles, digest %q", len(e.Reason), len(e.Tool), len(e.Actor.User),
				len(e.Actor.Roles), e.ArgsDigest)
		}
	})
}
