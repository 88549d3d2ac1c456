package statefile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/memory/statefile"
)

// TestOneOwner: a file belongs to one store at a time. The error names the other one and what to do, and a killed owner
// does not keep it.
func TestOneOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "folder")
	first, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = statefile.Open(dir)
	var inUse *statefile.InUseError
	host, _ := os.Hostname()
	if !errors.As(err, &inUse) || inUse.PID != os.Getpid() || inUse.Host != host {
		t.Errorf("second owner: %v", err)
	} else if text := err.Error(); !strings.Contains(text, first.Path()) || !strings.Contains(text, "Stop it") {
		t.Errorf("the error says %q", text)
	}
	if s, err := statefile.Look(dir); err != nil || s.InUseBy == nil || s.Size == 0 || s.Path != first.Path() {
		t.Errorf("status of a file in use: %+v, %v", s, err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(first.Path()+".owner", []byte(`{"pid":1,"host":"killed"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := statefile.Look(dir); err != nil || s.InUseBy != nil {
		t.Errorf("status of a free file: %+v, %v", s, err)
	}
	second, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// TestOnlyForTheUser: others can neither read nor replace the file.
func TestOnlyForTheUser(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	if s, err := statefile.Look(dir); err != nil || s.Size != 0 {
		t.Errorf("status without a file: %+v, %v", s, err)
	}
	f, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, f.Path(): 0o600, f.Path() + ".owner": 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.Path(), 0o640); err != nil {
		t.Fatal(err)
	}
	if s, err := statefile.Look(dir); err != nil || s.Exposed == nil || !strings.Contains(s.Exposed.Error(), "chmod") {
		t.Errorf("status of an open file: %v, %v", s.Exposed, err)
	}
	if f, err = statefile.Open(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(f.Path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("an opened file: %v, %v", info.Mode(), err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if s, err := statefile.Look(dir); err != nil || s.Exposed == nil {
		t.Error("a folder that others can write to is not noticed")
	}
}

// changeFile runs f on a closed file.
func changeFile(t *testing.T, path string, f func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(f), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedFiles: of a newer release, damaged, or of another program. They stay as they are.
func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	setFormat := func(format string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			changeFile(t, path, func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte(format))
			})
		}
	}
	for name, test := range map[string]struct {
		spoil func(t *testing.T, path string)
		says  string
	}{
		"newer release": {setFormat("2"), "newer release, in format 2"},
		"no format":     {setFormat("x"), "damaged"},
		"cut": {func(t *testing.T, path string) {
			must(t, os.Truncate(path, 3*int64(os.Getpagesize())))
		}, "damaged"},
		"another program": {func(t *testing.T, path string) {
			must(t, os.WriteFile(path, bytes.Repeat([]byte("no "), 9000), 0o600))
		}, "not a state file"},
		"another database": {emptyDatabase, "not a state file"},
		"missing bucket": {func(t *testing.T, path string) {
			changeFile(t, path, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("audit")) })
		}, "damaged"},
		"malformed record": {func(t *testing.T, path string) {
			changeFile(t, path, func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte("documents")).Put([]byte("x"), []byte("y"))
			})
		}, "documents record"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, statefile.Name)
			reopened(t, dir, func(m *memory.Store) {
				_, err := documents.Commit(t.Context(), m.Documents(), documents.Space{Kind: "x"},
					documents.Put("a", bytes.Repeat([]byte("x"), 100<<10), time.Hour))
				must(t, err)
			})
			test.spoil(t, path)
			before, err := os.ReadFile(path)
			must(t, err)
			m, err := open(dir)
			if err == nil {
				must(t, m.Close(t.Context()))
			}
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file was changed, %v", err)
			}
		})
	}
}

func emptyDatabase(t *testing.T, path string) {
	must(t, os.Remove(path))
	changeFile(t, path, func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("other"))
		return err
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFileIsBounded: what is replaced, dropped and erased makes room for what comes. The file stays near what it holds.
func TestFileIsBounded(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	f, err := statefile.Open(dir)
	must(t, err)
	m, err := memory.Open(memory.Options{Limits: registry.Limits{AuditCap: 5000, HistoryCap: 50}}, f)
	must(t, err)
	size := func() int64 {
		info, err := os.Stat(f.Path())
		must(t, err)
		return info.Size() >> 10
	}
	var first int64
	for round := range 40 {
		lines := make([]registry.AuditEntry, 500)
		for i := range lines {
			lines[i] = registry.AuditEntry{Tenant: "t", Action: "call", Reason: strings.Repeat("r", 200)}
		}
		must(t, m.AppendAudit(ctx, lines))
		for i := range 10 {
			key := registry.Key{Tenant: "t", Session: fmt.Sprint(round, i)}
			turn, err := m.BeginTurn(ctx, key, time.Hour)
			must(t, err)
			messages := make([]json.RawMessage, 100)
			for i := range messages {
				messages[i] = fmt.Appendf(nil, "%q", strings.Repeat("m", 300))
			}
			_, err = m.AppendMessages(ctx, turn, messages...)
			must(t, err)
			if round >= 5 {
				_, err := m.EraseConversation(ctx, registry.Key{Tenant: "t", Session: fmt.Sprint(round-5, i)})
				must(t, err)
			}
		}
		if round == 15 { // all is full
			first = size()
		}
	}
	last := size()
	t.Logf("5,000 lines and 50 conversations of 50 messages: %d KiB after 16 rounds, %d KiB after 40", first, last)
	if last > first*3/2 {
		t.Errorf("the file grew from %d to %d KiB", first, last)
	}
	must(t, m.Close(context.Background()))
}
