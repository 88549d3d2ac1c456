//go:build unix

package statefile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/memory/statefile"
)

func init() { children["full"] = fillDisk }

var full = documents.Space{Tenant: "t", Kind: "full"}

// limitFiles bounds how long this process may make a file: a write beyond it fails as on a full disk.
func limitFiles(bytes uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = min(bytes, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// fillDisk writes until the file may not grow, and then until it may again. It prints nothing: an error is a failure.
func fillDisk(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	file, err := statefile.Open(dir)
	if err != nil {
		return err
	}
	journal := &countedJournal{Journal: file}
	m, err := memory.Open(memory.Options{}, journal)
	if err != nil {
		return err
	}
	ctx := context.Background()
	put := func(n int) error {
		_, err := documents.Commit(ctx, m.Documents(), full,
			documents.Put("last", fmt.Append(nil, n), time.Hour),
			documents.Put(fmt.Sprint(n), bytes.Repeat([]byte("x"), 8<<10), time.Hour))
		return err
	}
	// what memory has must be what was acknowledged
	check := func(n int) error {
		found, err := m.Documents().Read(ctx, full.Refs("last", fmt.Sprint(n), fmt.Sprint(n+1))...)
		if err != nil || string(found[0].Data) != fmt.Sprint(n) || !found[1].Exists() || found[2].Exists() {
			return fmt.Errorf("after %d: %s, %v, %v, %v", n, found[0].Data, found[1].Exists(), found[2].Exists(), err)
		}
		return nil
	}
	if err := limitFiles(1 << 20); err != nil {
		return err
	}
	n := 0
	for err = nil; err == nil; {
		if err = put(n + 1); err == nil {
			n++
		}
	}
	if !errors.Is(err, registry.CodeStoreUnavailable) || n == 0 {
		return fmt.Errorf("write %d on a full disk: %w", n+1, err)
	}
	if err := check(n); err != nil {
		return err
	}
	for tried := journal.commits.Load(); journal.commits.Load() < tried+3; { // it is tried again and again
		if err := put(n + 1); err == nil {
			return errors.New("a write on a full disk was acknowledged")
		}
		if err := check(n); err != nil {
			return err
		}
		// What a ping writes is small, and may find room within the file.
		if err := m.Ping(ctx); err != nil && !errors.Is(err, registry.CodeStoreUnavailable) {
			return fmt.Errorf("a ping on a full disk: %w", err)
		}
		time.Sleep(poll)
	}
	if err := limitFiles(1 << 30); err != nil {
		return err
	}
	for err = put(n + 1); err != nil; err = put(n + 1) { // until the pause after the last failure is over
		if !errors.Is(err, registry.CodeStoreUnavailable) {
			return fmt.Errorf("with room again: %w", err)
		}
		time.Sleep(poll)
	}
	n++
	if err := m.Ping(ctx); err != nil {
		return err
	}
	for range 50 {
		if err := put(n + 1); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
		n++
	}
	fmt.Println(n)
	return errors.Join(check(n), m.Close(ctx))
}

const poll = 10 * time.Millisecond

// countedJournal counts the commits that are tried.
type countedJournal struct {
	memory.Journal
	commits atomic.Int64
}

func (j *countedJournal) Commit(changes []memory.Record) error {
	j.commits.Add(1)
	return j.Journal.Commit(changes)
}

// TestFullDisk: writes fail, nothing that was acknowledged is lost, and with room they go on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Limit)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], dir)
	child.Env = append(os.Environ(), childVariable+"=full")
	var failure bytes.Buffer
	child.Stderr = &failure
	out, err := child.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, failure.String())
	}
	var n int
	if _, err := fmt.Sscan(string(out), &n); err != nil || n < 51 {
		t.Fatalf("%q: %v", out, err)
	}
	reopened(t, dir, func(m *memory.Store) {
		for i := 1; i <= n; i++ {
			found, err := m.Documents().Read(t.Context(), full.Ref(fmt.Sprint(i)))
			if err != nil || len(found[0].Data) != 8<<10 {
				t.Errorf("document %d of %d: %d bytes, %v", i, n, len(found[0].Data), err)
			}
		}
	})
	info, err := os.Stat(filepath.Join(dir, statefile.Name))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d documents of 8 KiB, a file of %d KiB", n, info.Size()>>10)
}
