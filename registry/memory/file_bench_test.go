package memory_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/memory/statefile"
)

// callSteps are what calls ask of a store, each for the i-th call.
func callSteps(m *memory.Store) map[string]func(i int) error {
	ctx, conversation := context.Background(), registry.Key{Tenant: "t", Session: "s"}
	windows := []registry.Window{{Name: "per minute", Limit: 10_000, Period: time.Minute}}
	record := func(i int) registry.Record {
		return registry.Record{Tenant: "t", CallID: fmt.Sprint("call-", i), Tool: "echo", TimeoutMS: 1000}
	}
	return map[string]func(int) error{
		"record of a durable call": func(i int) error {
			r, _, err := m.CreateCall(ctx, record(i))
			if err == nil {
				_, err = m.MoveCall(ctx, r.Tenant, r.CallID, registry.EventSucceed, registry.Change{Here: true})
			}
			return err
		},
		"loop guard": func(i int) error {
			_, err := m.AppendTrail(ctx, conversation, fmt.Sprint(i), 30)
			return err
		},
		"rate limit": func(int) error {
			_, _, err := m.Take(ctx, "t", windows)
			return err
		},
		"byte budget": func(int) error {
			_, err := m.Spend(ctx, "t", "calls", 1, registry.Budget{Bytes: 1 << 30, Over: time.Minute})
			return err
		},
		"credential": func(int) error {
			_, err := m.Documents().Read(ctx, documents.Space{Kind: "credentials", Owner: "x"}.Ref("credential"))
			return err
		},
	}
}

// counted counts the commits of a journal.
type counted struct {
	memory.Journal
	commits atomic.Int64
}

func (c *counted) Commit(changes []memory.Record) error {
	c.commits.Add(1)
	return c.Journal.Commit(changes)
}

func openCounted(b *testing.B) (*memory.Store, *counted) {
	f, err := statefile.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	c := &counted{Journal: f}
	m, err := memory.Open(memory.Options{}, c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close(context.Background()) })
	return m, c
}

// BenchmarkCallPath makes what calls ask of a store, without and with a file, and counts the commits per step: none,
// but one per second for rate limits.
func BenchmarkCallPath(b *testing.B) {
	for name := range callSteps(memory.New(memory.Options{})) {
		b.Run(name+"/memory", func(b *testing.B) { benchmarkStep(b, callSteps(memory.New(memory.Options{}))[name]) })
		b.Run(name+"/file", func(b *testing.B) {
			m, c := openCounted(b)
			before := c.commits.Load()
			benchmarkStep(b, callSteps(m)[name])
			b.ReportMetric(float64(c.commits.Load()-before)/float64(b.N), "commits/op")
		})
	}
}

func benchmarkStep(b *testing.B, step func(int) error) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := step(i); err != nil && i < 50_000 { // then the store is full of records
			b.Fatal(err)
		}
	}
}

// BenchmarkDurableWrites makes durable writes of one document, by one writer and by many, and counts the commits they
// need.
func BenchmarkDurableWrites(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d_writers", writers), func(b *testing.B) {
			m, c := openCounted(b)
			space := documents.Space{Tenant: "t", Kind: "things"}
			b.SetParallelism(max(1, writers/2))
			var next atomic.Int64
			put := func() error {
				id := fmt.Sprint(next.Add(1) % 1000)
				_, err := documents.Commit(b.Context(), m.Documents(), space,
					documents.Put(id, make([]byte, 300), time.Hour))
				return err
			}
			before := c.commits.Load()
			if writers == 1 {
				for b.Loop() {
					if err := put(); err != nil {
						b.Fatal(err)
					}
				}
			} else {
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						if err := put(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ReportMetric(float64(c.commits.Load()-before)/float64(b.N), "commits/op")
		})
	}
}

// BenchmarkOpen opens a file with 100,000 lines of audit and 10,000 documents.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	m := openStore(b, dir, memory.Options{})
	for range 100 {
		lines := make([]registry.AuditEntry, 1000)
		for i := range lines {
			lines[i] = registry.AuditEntry{Tenant: "t", Action: "call", Tool: "echo", SessionID: "s",
				CallID: "0123456789"}
		}
		steps := make([]documents.Step, 100)
		for i := range steps {
			steps[i] = documents.Put(fmt.Sprint(time.Now().UnixNano(), i), make([]byte, 300), time.Hour)
		}
		if err := m.AppendAudit(b.Context(), lines); err != nil {
			b.Fatal(err)
		}
		if _, err := documents.Commit(b.Context(), m.Documents(), documents.Space{Kind: "x"}, steps...); err != nil {
			b.Fatal(err)
		}
	}
	if err := m.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, statefile.Name))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := openStore(b, dir, memory.Options{}).Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
}
