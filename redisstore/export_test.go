package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// fillForExport writes some of everything that an export has, and sessions, which it has not.
func fillForExport(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	heartbeat(t, s, "p")
	putTools(t, s, claim(t, s, "connected", "p"), spec(t, "camera", "x"))
	for i := range 20 {
		name := fmt.Sprint(i)
		must[registry.Credential](t)(s.CreateCredential(ctx, registry.Credential{
			ID: "key" + name, Tenant: tenant, Digest: fmt.Sprintf("%064d", i), Kind: registry.CredentialKey,
		}))
		key := registry.Key{Tenant: tenant, Session: "s\x00" + name} // names may hold any bytes
		turn := must[registry.Turn](t)(s.BeginTurn(ctx, key, time.Minute))
		must[int](t)(s.AppendMessages(ctx, turn, json.RawMessage(`"\ud800"`), json.RawMessage("\"\xff\"")))
		if err := s.SaveDraft(ctx, turn, json.RawMessage(`"half"`)); err != nil {
			t.Fatal(err)
		}
	}
	for from := 0; from < 1500; from += 300 { // more members than a record has
		steps := make([]documents.Step, 300)
		for i := range steps {
			steps[i] = documents.Join("many", fmt.Sprint(from+i), time.Hour, 0)
		}
		space := documents.Space{Tenant: tenant, Kind: "grants"}
		must[documents.Written](t)(documents.Commit(ctx, s.Documents(), space, steps...))
	}
	appendAudit(t, s, 2000)
	err := s.AddUsage(ctx, []registry.UsageRow{{Tenant: tenant, Day: "2026-01-01", User: "u", Tool: "t"}})
	if err != nil {
		t.Fatal(err)
	}
	must[registry.CredentialChange](t)(s.AppendChange(ctx, registry.CredentialChange{
		Tenant: tenant, Kind: registry.RememberedKinds()[0], ID: "u", Revoked: true,
	}))
}

func appendAudit(t *testing.T, s *Store, n int) {
	t.Helper()
	lines := make([]registry.AuditEntry, n)
	for i := range lines {
		lines[i] = registry.AuditEntry{Tenant: tenant, Pod: "p", Action: "test"}
	}
	for i := range lines { // each an entry of its own
		if i%10 == 0 {
			if err := s.AppendAudit(context.Background(), lines[i:min(i+10, n)]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func auditLines(t *testing.T, s *Store) (n int) {
	t.Helper()
	for before := ""; ; {
		page, next, err := s.ReadAudit(context.Background(),
			registry.AuditQuery{Tenant: tenant, Before: before, Limit: 500})
		if err != nil {
			t.Fatal(err)
		}
		if n += len(page); next == "" {
			return n
		}
		before = next
	}
}

func flush(t *testing.T, c *redisconn.Conn) {
	t.Helper()
	err := c.EachMaster(context.Background(), func(ctx context.Context, server redis.Cmdable) error {
		return server.FlushAll(ctx).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// contents returns what an export has of each key: its life, and its items in order of their text.
func contents(t *testing.T, file []byte) map[string]string {
	t.Helper()
	items := make(map[string][]string)
	err := readExport(bytes.NewReader(file), func(r exportRecord, _ exportedKeys) error {
		name := fmt.Sprintf("%q until %d", r.Key, r.Expires)
		for _, item := range r.Items {
			items[name] = append(items[name], fmt.Sprintf("%q", item))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for name, texts := range items {
		slices.Sort(texts)
		all[name] = strings.Join(texts, " ")
	}
	return all
}

func export(t *testing.T, c *Conn) []byte {
	t.Helper()
	file, _ := exportCounted(t, c)
	return file
}

func exportCounted(t *testing.T, c *Conn) ([]byte, Exported) {
	t.Helper()
	var file bytes.Buffer
	counts, err := c.Export(t.Context(), &file)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range exported {
		if counts[form.what] == 0 {
			t.Errorf("no %s in the export: %v", form.what, counts)
		}
	}
	return file.Bytes(), counts
}

func importAll(t *testing.T, c *Conn, file []byte, overwrite bool) Imported {
	t.Helper()
	if err := CheckExport(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	done, err := c.Import(t.Context(), bytes.NewReader(file), overwrite)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// TestAnEmptiedRedisIsRestored: an import writes every exported key as it was, with its life, and once only.
func TestAnEmptiedRedisIsRestored(t *testing.T) {
	for name, url := range map[string]string{"single": redistest.Single(t), "cluster": redistest.Cluster(t).URL} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, Options{URL: url})
			s := c.Store()
			fillForExport(t, s)
			file, counts := exportCounted(t, c)
			flush(t, s.conn)
			done := importAll(t, c, file, false)
			if !maps.Equal(done.Written, counts) || len(done.Same)+len(done.Kept)+len(done.Expired) > 0 {
				t.Errorf("exported %v, imported %+v", counts, done)
			}
			if before, after := contents(t, file), contents(t, export(t, c)); !maps.Equal(before, after) {
				for name := range before {
					if before[name] != after[name] {
						t.Errorf("%s differs: %.200s, was %.200s", name, after[name], before[name])
					}
				}
				t.Errorf("%d keys of %d", len(after), len(before))
			}
			if n := auditLines(t, s); n != 2000 {
				t.Errorf("%d audit lines", n)
			}
			if again := importAll(t, c, file, false); len(again.Written)+len(again.Kept) > 0 {
				t.Errorf("imported again: %+v", again)
			}
		})
	}
}

// TestAnImportAddsToAFleetThatRuns: what came after the loss stays, also beside what is restored.
func TestAnImportAddsToAFleetThatRuns(t *testing.T) {
	c := dial(t, Options{URL: redistest.Single(t)})
	s, ctx := c.Store(), t.Context()
	fillForExport(t, s)
	file := export(t, c)
	flush(t, s.conn)
	appendAudit(t, s, 700)
	must[registry.Credential](t)(s.CreateCredential(ctx, registry.Credential{
		ID: "new", Tenant: tenant, Digest: strings.Repeat("f", 64), Kind: registry.CredentialKey,
	}))
	key := registry.Key{Tenant: tenant, Session: "s\x001"}
	turn := must[registry.Turn](t)(s.BeginTurn(ctx, key, time.Minute))
	must[int](t)(s.AppendMessages(ctx, turn, json.RawMessage(`"after the loss"`)))

	done := importAll(t, c, file, false)
	if done.Kept["conversations"] != 2 || len(done.Kept) != 1 { // its messages, and what is known of it
		t.Errorf("kept %v", done.Kept)
	}
	if n := auditLines(t, s); n != 2700 {
		t.Errorf("%d audit lines", n)
	}
	size := must[*redisconn.Command](t)(s.conn.Do(ctx, "HGET", auditKeys(tenant)[1], "lines"))
	if n := size.Int(); n < 2600 || n > 2800 {
		t.Errorf("%d lines are counted", n)
	}
	all, _, err := s.Credentials(ctx, registry.CredentialQuery{Tenant: tenant, Limit: 100})
	if err != nil || len(all) != 21 {
		t.Errorf("%d credentials, %v", len(all), err)
	}
	if found := must[registry.Conversation](t)(s.Conversation(ctx, key)); len(found.Messages) != 1 {
		t.Errorf("%d messages", len(found.Messages))
	}
	importAll(t, c, file, true)
	if found := must[registry.Conversation](t)(s.Conversation(ctx, key)); len(found.Messages) != 2 {
		t.Errorf("%d messages are there after overwriting", len(found.Messages))
	}
}

// TestOnlyAWholeExportIsImported: each cut is found by the check, before anything is written.
func TestOnlyAWholeExportIsImported(t *testing.T) {
	c := dial(t, Options{URL: redistest.Single(t)})
	fillForExport(t, c.Store())
	file := export(t, c)
	lines := bytes.SplitAfter(file, []byte("\n"))
	without := func(i int) []byte { return bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil) }
	for name, text := range map[string][]byte{
		"empty": nil, "another file": []byte(`{"a":1}`), "half": file[:len(file)/2], "no end": file[:len(file)-20],
		"a line less": without(3), "more": append(bytes.Clone(file), "{}"...),
		"another key": bytes.Replace(file, []byte(`{"key":"fh:`), []byte(`{"key":"xx:`), 1),
		"a newer one": bytes.Replace(file, []byte(`"version":1`), []byte(`"version":99`), 1),
	} {
		if err := CheckExport(bytes.NewReader(text)); err == nil {
			t.Errorf("%s is taken for an export", name)
		} else if name == "a newer one" && !strings.Contains(err.Error(), "a newer release made") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A scan of Redis may return a key twice. An import could not add the entries of a stream again.
func TestAStreamIsExportedOnce(t *testing.T) {
	c := dial(t, Options{URL: redistest.Single(t)})
	appendAudit(t, c.Store(), 20)
	var file bytes.Buffer
	x := newExporter(c.conn, &file)
	for range 2 {
		if err := x.write(t.Context(), auditKeys(tenant)[:1]); err != nil {
			t.Fatal(err)
		}
	}
	if x.counts["audit"] != 1 || x.records != 1 {
		t.Errorf("%v, in %d records", x.counts, x.records)
	}
}
