package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/memory"
)

var errDisk = errors.New("the disk is full")

// disk is a journal in memory, whose commits can fail and wait.
type disk struct {
	mu      sync.Mutex
	records map[memory.Kind]map[string]string
	full    bool
	gate    chan struct{} // a commit takes one element first; nil: it does not wait
	commits int
	closed  bool
}

func newDisk() *disk { return &disk{records: make(map[memory.Kind]map[string]string)} }

func (d *disk) Load(each func(memory.Record) error) error {
	for _, kind := range memory.Kinds() {
		for _, key := range slices.Sorted(maps.Keys(d.records[kind])) {
			if err := each(memory.Record{Kind: kind, Key: key, Value: []byte(d.records[kind][key])}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *disk) Commit(changes []memory.Record) error {
	if d.gate != nil {
		<-d.gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return errDisk
	}
	d.commits++
	for _, r := range changes {
		if d.records[r.Kind] == nil {
			d.records[r.Kind] = make(map[string]string)
		}
		if d.records[r.Kind][r.Key] = string(r.Value); r.Value == nil {
			delete(d.records[r.Kind], r.Key)
		}
	}
	return nil
}

func (d *disk) Read(records []memory.Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, r := range records {
		if value, ok := d.records[r.Kind][r.Key]; ok {
			records[i].Value = []byte(value)
		}
	}
	return nil
}

func (d *disk) Close() error {
	d.closed = true
	return nil
}

func (d *disk) fill(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

func openOn(t *testing.T, d *disk) *memory.Store {
	t.Helper()
	m, err := memory.Open(memory.Options{}, d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// writers make one change of each kind. The number makes it different from others.
func writers(m *memory.Store) map[string]func(n int) error {
	ctx, key := context.Background(), registry.Key{Tenant: "t", Session: "s"}
	things := documents.Space{Tenant: "t", Kind: "things", Owner: "o"}
	inTurn := func(f func(registry.Turn) error) error {
		turn, err := m.BeginTurn(ctx, key, time.Minute)
		if err != nil {
			return err
		}
		return errors.Join(f(turn), m.EndTurn(ctx, turn))
	}
	return map[string]func(int) error{
		"documents": func(n int) error {
			_, err := documents.Commit(ctx, m.Documents(), things, documents.Put("a", fmt.Append(nil, n), time.Hour),
				documents.Put(fmt.Sprint("b", n), nil, time.Hour), documents.Join("all", fmt.Sprint(n), time.Hour, 0),
				documents.Delete(fmt.Sprint("b", n-1)), documents.Leave("all", fmt.Sprint(n-1)))
			return err
		},
		"messages": func(n int) error {
			return inTurn(func(turn registry.Turn) error {
				_, err := m.AppendMessages(ctx, turn, json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), json.RawMessage("1"))
				return err
			})
		},
		"truncated": func(n int) error {
			return inTurn(func(turn registry.Turn) error { return m.TruncateMessages(ctx, turn, n) })
		},
		"drafts": func(n int) error {
			return inTurn(func(turn registry.Turn) error { return m.SaveDraft(ctx, turn, fmt.Append(nil, n)) })
		},
		"owners": func(n int) error {
			return inTurn(func(turn registry.Turn) error {
				return m.SetOwner(ctx, turn, registry.Owner{UserID: fmt.Sprint(n)})
			})
		},
		"titles":        func(n int) error { return m.NameConversation(ctx, key, fmt.Sprint(n)) },
		"conversations": func(int) error { _, err := m.EraseConversation(ctx, key); return err },
		"continuations": func(n int) error {
			return m.KeepContinuation(ctx, registry.ContinuationOwner{Tenant: "t"}, "id", fmt.Append(nil, n), time.Hour)
		},
		"audit": func(n int) error {
			return m.AppendAudit(ctx, []registry.AuditEntry{{Tenant: "t", Action: fmt.Sprint(n)}, {Tenant: "u"}})
		},
		"usage": func(n int) error {
			return m.AddUsage(ctx, []registry.UsageRow{
				{Tenant: "t", Day: "2026-01-02", Tool: "a", Usage: registry.Usage{Calls: int64(n)}},
			})
		},
		"revocations": func(n int) error {
			_, err := m.AppendChange(ctx, registry.CredentialChange{
				Tenant: "t", Kind: registry.ChangeUser, ID: fmt.Sprint(n), Revoked: true,
			})
			return err
		},
		"places": func(n int) error {
			_, err := m.ClaimPlace(ctx, registry.PlaceClaim{
				Key: registry.PlaceKey{Tenant: "t", Identity: fmt.Sprint(n)}, Pod: "p", Kind: "browser", Keep: true,
			})
			return err
		},
	}
}

// compare fails if memory and disk differ.
func compare(t *testing.T, after string, m *memory.Store, d *disk) {
	t.Helper()
	kept := m.Kept()
	for _, kind := range memory.Kinds() {
		if kind != "probe" && !maps.Equal(kept[kind], d.records[kind]) {
			t.Errorf("after %s, of %s memory has %q, the disk %q", after, kind, kept[kind], d.records[kind])
		}
	}
}

// TestFailedWritesLeaveNothing: writes fail while the disk is full, each with store_unavailable. Memory then has what
// the journal has, and both go on together.
func TestFailedWritesLeaveNothing(t *testing.T) {
	for name := range writers(nil) {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk()
			m := openOn(t, d)
			write := writers(m)
			n := 2
			for _, other := range slices.Sorted(maps.Keys(write)) {
				if other == "owners" && name == other { // it is set once
					continue
				}
				if err := write[other](n); err != nil {
					t.Fatalf("%s: %v", other, err)
				}
			}
			d.fill(true)
			for range 3 {
				n++
				if err := write[name](n); !errors.Is(err, registry.CodeStoreUnavailable) {
					t.Errorf("%s on a full disk: %v", name, err)
				}
				compare(t, name, m, d)
				if err := m.Ping(t.Context()); err == nil {
					t.Error("the store answers a ping")
				}
				time.Sleep(memory.RetryPause)
			}
			d.fill(false)
			if err := m.Ping(t.Context()); err != nil {
				t.Errorf("after the disk was full: %v", err)
			}
			if err := write[name](n + 1); err != nil {
				t.Errorf("%s after the disk was full: %v", name, err)
			}
			if err := m.Close(t.Context()); err != nil || !d.closed {
				t.Errorf("close: %v", err)
			}
			compare(t, name, m, d)
		})
	}
}

// TestWritersShareACommit: writers that wait at the same time need two commits at most, none is answered before it is
// written, and readers do not wait.
func TestWritersShareACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		m := openOn(t, d)
		d.gate = make(chan struct{})
		space := documents.Space{Tenant: "t", Kind: "things"}
		put := func(i int) {
			_, err := documents.Commit(t.Context(), m.Documents(), space, documents.Put(fmt.Sprint(i), nil, time.Hour))
			if err != nil {
				t.Error(err)
			}
		}
		var all sync.WaitGroup
		answered := make(chan struct{}, 100)
		for i := range 100 {
			all.Go(func() { put(i); answered <- struct{}{} })
		}
		synctest.Wait()
		if found, err := m.Documents().Read(t.Context(), space.Ref("99")); err != nil || !found[0].Exists() {
			t.Errorf("a reader: %v, %v", found, err)
		}
		if len(answered) > 0 || d.commits > 0 {
			t.Errorf("%d were answered before they were written", len(answered))
		}
		close(d.gate)
		all.Wait()
		if d.commits > 2 {
			t.Errorf("%d commits", d.commits)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := documents.Commit(t.Context(), m.Documents(), space, documents.Delete("1")); err == nil {
			t.Error("a closed store was written to")
		}
	})
}

// TestChangesOnAFailedOneFail: a change that was made while another was being written is undone with it.
func TestChangesOnAFailedOneFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		m := openOn(t, d)
		d.gate = make(chan struct{}, 1)
		space := documents.Space{Tenant: "t", Kind: "things"}
		errs := make(chan error, 2)
		put := func(text string) {
			_, err := documents.Commit(t.Context(), m.Documents(), space, documents.Put("a", []byte(text), time.Hour))
			errs <- err
		}
		go put("first")
		synctest.Wait()
		go put("second")
		synctest.Wait()
		d.fill(true)
		d.gate <- struct{}{}
		for range 2 {
			if err := <-errs; !errors.Is(err, registry.CodeStoreUnavailable) {
				t.Errorf("%v", err)
			}
		}
		if found, _ := m.Documents().Read(t.Context(), space.Ref("a")); found[0].Exists() {
			t.Errorf("memory has %s", found[0].Data)
		}
		close(d.gate)
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowDisk: a writer waits at most for some time, and a backlog that is too long rejects changes.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		m := openOn(t, d)
		d.gate = make(chan struct{})
		space := documents.Space{Tenant: "t", Kind: "things"}
		put := func(ctx context.Context, size int) error {
			_, err := documents.Commit(ctx, m.Documents(), space, documents.Put("a", make([]byte, size), time.Hour))
			return err
		}
		began := time.Now()
		if err := put(t.Context(), 0); !errors.Is(err, registry.CodeStoreUnavailable) ||
			time.Since(began) > time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := put(ctx, 65<<20); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		began = time.Now()
		if err := put(t.Context(), 0); !errors.Is(err, registry.CodeStoreUnavailable) || time.Since(began) > 0 {
			t.Errorf("with a full backlog, after %v: %v", time.Since(began), err)
		}
		close(d.gate)
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatExpiresLeavesTheJournal: without anyone asking for it.
func TestWhatExpiresLeavesTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		m := openOn(t, d)
		for name, write := range writers(m) {
			if err := write(1); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		window := registry.Window{Name: "w", Limit: 5, Period: time.Hour}
		if _, _, err := m.Take(t.Context(), "t", []registry.Window{window}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		d.mu.Lock()
		if len(d.records["windows"]) != 1 || len(d.records["audit"]) != 2 {
			t.Errorf("the journal has %q", d.records)
		}
		d.mu.Unlock()
		time.Sleep(100 * 24 * time.Hour)
		d.mu.Lock()
		for kind, records := range d.records {
			if len(records) > 0 {
				t.Errorf("%s: the journal still has %q", kind, records)
			}
		}
		d.mu.Unlock()
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestRateLimitsSurvive: what was charged counts after a restart.
func TestRateLimitsSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		window := registry.Window{Name: "w", Limit: 2, Period: time.Hour}
		for _, blocked := range []bool{false, false, true} {
			m := openOn(t, d)
			wait, _, err := m.Take(t.Context(), "t", []registry.Window{window})
			if err != nil || blocked != (wait > 0) {
				t.Errorf("wait %v, %v; want blocked %v", wait, err, blocked)
			}
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestMalformedRecord: a store does not start with a part of its data.
func TestMalformedRecord(t *testing.T) {
	for _, kind := range memory.Kinds() {
		d := newDisk()
		d.records[kind] = map[string]string{"\x7fnonsense": "nonsense"}
		m, err := memory.Open(memory.Options{}, d)
		if kind == "probe" {
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !d.closed {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestCallsDoNotWaitForTheDisk: with a disk that hangs, calls go on: their records, the loop guard, rate limits,
// sessions, the feed of activity, and the lookup of credentials.
func TestCallsDoNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		m := openOn(t, d)
		d.gate = make(chan struct{})
		var audit sync.WaitGroup
		audit.Go(func() {
			if err := m.AppendAudit(context.Background(), []registry.AuditEntry{{Tenant: "t"}}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		began := time.Now()
		for name, step := range callSteps(m) {
			for i := range 3 {
				if err := step(i); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if waited := time.Since(began); waited > 0 { // the clock stands still while anything can run
			t.Errorf("waited %v", waited)
		}
		if d.commits > 0 {
			t.Errorf("%d commits", d.commits)
		}
		close(d.gate)
		audit.Wait()
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestNothingNewWaitsForWhatIsOld: a write that finds its change made is acknowledged when that change is written.
func TestNothingNewWaitsForWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		m := openOn(t, d)
		space := documents.Space{Tenant: "t", Kind: "things"}
		key := registry.Key{Tenant: "t", Session: "s"}
		turn, err := m.BeginTurn(t.Context(), key, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for name, write := range map[string]func() error{
			"delete": func() error {
				_, err := documents.Commit(t.Context(), m.Documents(), space, documents.Delete("a"))
				return err
			},
			"append": func() error {
				_, err := m.AppendMessages(t.Context(), turn, json.RawMessage("1"))
				return err
			},
		} {
			_, err := documents.Commit(t.Context(), m.Documents(), space, documents.Put("a", nil, time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			d.gate = make(chan struct{})
			answers := make(chan error, 2)
			for range 2 {
				go func() { answers <- write() }()
				synctest.Wait()
			}
			if len(answers) > 0 {
				t.Errorf("%s: acknowledged before it was written", name)
			}
			close(d.gate)
			for range 2 {
				if err := <-answers; err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			synctest.Wait()
			d.gate = nil
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
