package statefile_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/memory"
)

// lanes write at the same time, each to data of its own.
const lanes = 4

var day = registry.UsageDay(time.Unix(1_800_000_000, 0))

func laneSpace(lane int) documents.Space {
	return documents.Space{Tenant: "t", Kind: "things", Owner: fmt.Sprint(lane)}
}

func laneKey(lane int) registry.Key {
	return registry.Key{Tenant: "t", Session: fmt.Sprint("lane-", lane)}
}

func laneTenant(lane int) string { return fmt.Sprint("tenant-", lane) }

// text returns a text of its number, whose end differs from that of any other. Some are longer than many pages.
func text(lane, n int) []byte {
	size := 1 << (4 + (n*7+lane)%12)
	return fmt.Appendf(bytes.Repeat(fmt.Appendf(nil, "%d.", n), size/len(fmt.Sprintf("%d.", n))+1), "end %d", n)
}

// writeStep makes the n-th change of a lane: one of each kind. First: unless a process that was killed has made it.
func writeStep(ctx context.Context, m *memory.Store, turn registry.Turn, lane, n int, first bool) (err error) {
	put := func(id string) documents.Step { return documents.Put(id, text(lane, n), time.Hour) }
	_, err = documents.Commit(ctx, m.Documents(), laneSpace(lane), put("a"), put("b"), put(fmt.Sprint("only-", n)),
		documents.Delete(fmt.Sprint("only-", n-1)))
	var messages []json.RawMessage
	var lines, calls int
	if first && err == nil {
		messages, lines, calls, err = written(ctx, m, lane)
	}
	if err == nil && len(messages) < n {
		_, err = m.AppendMessages(ctx, turn, json.RawMessage(fmt.Sprint(n)))
	}
	if err == nil && lines < 2*n {
		line := registry.AuditEntry{Tenant: laneTenant(lane), Action: fmt.Sprint(n)}
		err = m.AppendAudit(ctx, []registry.AuditEntry{line, line})
	}
	if err == nil && calls < n {
		err = m.AddUsage(ctx, []registry.UsageRow{
			{Tenant: laneTenant(lane), Day: day, Tool: "a", Usage: registry.Usage{Calls: 1}},
		})
	}
	return err
}

// written returns what there is of a lane: messages, lines of the audit log, and calls.
func written(ctx context.Context, m *memory.Store, lane int) (messages []json.RawMessage, lines, calls int, err error) {
	stored, err := m.Conversation(ctx, laneKey(lane))
	if err != nil {
		return nil, 0, 0, err
	}
	log, _, err := m.ReadAudit(ctx, registry.AuditQuery{Tenant: laneTenant(lane), Limit: 10_000})
	if err != nil {
		return nil, 0, 0, err
	}
	rows, err := m.ReadUsage(ctx, laneTenant(lane), day)
	for _, row := range rows {
		calls += int(row.Calls)
	}
	return stored.Messages, len(log), calls, err
}

// writeUntilKilled goes on where the file ends, and prints each lane and number that was acknowledged.
func writeUntilKilled(dir string) error {
	m, err := open(dir)
	if err != nil {
		return err
	}
	ctx, errs := context.Background(), make(chan error, lanes)
	var out sync.Mutex
	for lane := range lanes {
		go func() {
			turn, err := m.BeginTurn(ctx, laneKey(lane), time.Hour)
			_, _, n, failed := written(ctx, m, lane) // usage is written last
			for first := true; err == nil && failed == nil; first = false {
				n++
				if err = writeStep(ctx, m, turn, lane, n, first); err == nil {
					out.Lock()
					fmt.Println(lane, n)
					out.Unlock()
				}
			}
			errs <- err
		}()
	}
	return <-errs
}

// TestKilledAHundredTimes: a process is killed while it writes. What it was acknowledged is there, what was not is
// there as a whole or not at all, and the next process goes on with the same file.
func TestKilledAHundredTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acknowledged, total := [lanes]int{}, 0
	for round := range 100 {
		child := exec.Command(os.Args[0], dir)
		child.Env = append(os.Environ(), childVariable+"=writer")
		var failure bytes.Buffer
		child.Stderr = &failure
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		stuck := time.AfterFunc(testkit.Limit, func() { _ = child.Process.Kill() })
		lines, left := bufio.NewScanner(out), 1+rand.IntN(12)
		for lines.Scan() { // also what it printed before it was killed
			var lane, n int
			if _, err := fmt.Sscan(lines.Text(), &lane, &n); err != nil {
				t.Fatalf("round %d: %q: %v", round, lines.Text(), err)
			}
			acknowledged[lane], total = n, total+1
			if left--; left == 0 {
				_ = child.Process.Kill()
			}
		}
		_ = child.Wait()
		if !stuck.Stop() || failure.Len() > 0 {
			t.Fatalf("round %d: %s", round, failure.String())
		}
		reopened(t, dir, func(m *memory.Store) {
			for lane, n := range acknowledged {
				acknowledged[lane] = checkLane(t, m, lane, n)
			}
		})
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("%d steps were acknowledged, of four writes each", total)
}

// checkLane checks what the file has of a lane of which n steps were acknowledged. The next may be there in part, but
// each of its writes is whole. It returns how many steps are there.
func checkLane(t *testing.T, m *memory.Store, lane, n int) int {
	t.Helper()
	ctx := t.Context()
	has := func(what string, got int) {
		if got < n || got > n+1 {
			t.Errorf("lane %d: %d were acknowledged, the file has %d of %s", lane, n, got, what)
		}
	}
	messages, lines, calls, err := written(ctx, m, lane)
	if err != nil || lines%2 != 0 {
		t.Fatalf("lane %d: %d lines of audit, %v", lane, lines, err)
	}
	has("messages", len(messages))
	has("audit", lines/2)
	has("usage", calls)
	for i, message := range messages {
		if string(message) != fmt.Sprint(i+1) {
			t.Errorf("lane %d: message %d is %s", lane, i+1, message)
		}
	}
	checkDocuments(t, m, lane, n)
	return max(n, calls)
}

func checkDocuments(t *testing.T, m *memory.Store, lane, n int) {
	t.Helper()
	ids := []string{"a", "b"}
	for i := n - 1; i <= n+2; i++ {
		ids = append(ids, fmt.Sprint("only-", i))
	}
	found, err := m.Documents().Read(t.Context(), laneSpace(lane).Refs(ids...)...)
	if err != nil {
		t.Fatal(err)
	}
	at := n
	if bytes.Equal(found[0].Data, text(lane, n+1)) {
		at++
	}
	if at > 0 && (!bytes.Equal(found[0].Data, text(lane, at)) || !bytes.Equal(found[1].Data, text(lane, at))) {
		t.Errorf("lane %d: after %d, the documents are %.50q and %.50q", lane, n, found[0].Data, found[1].Data)
	}
	for i, d := range found[2:] {
		if number := n - 1 + i; d.Exists() != (number == at && at > 0) {
			t.Errorf("lane %d: at %d, document %d is there: %v", lane, at, number, d.Exists())
		}
	}
}
