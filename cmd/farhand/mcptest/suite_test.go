package mcptest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestConformance has the suite of the MCP project judge the server, in both revisions, over a balancer that sends each
// request to another pod. What exceptions_test.go lists must fail, and nothing else may.
func TestConformance(t *testing.T) {
	t.Parallel()
	// A page that has its own name point at the gateway must be refused, which needs to know the gateway's name.
	f := startFleet(t, "FARHAND_ALLOWED_HOSTS=localhost")
	connectSuiteDevice(t, f.pods[1].url)
	f.approveAll(t)
	var table []row
	for _, revision := range revisions {
		table = append(table, f.judge(t, revision)...)
	}
	checkExceptions(t, table)
	checkTable(t, table)
}

// approveAll allows what calls ask for until the test ends, as a person does who sits somewhere else.
func (f *fleet) approveAll(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(all.Wait)
	t.Cleanup(cancel)
	all.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			var waiting struct{ Approvals []struct{ ID string } }
			raw := request(t, http.MethodGet, f.pods[2].url+"/api/approvals", rootToken, "", http.StatusOK)
			if err := json.Unmarshal(raw, &waiting); err != nil {
				t.Errorf("approvals: %v", err)
			}
			for _, a := range waiting.Approvals {
				request(t, http.MethodPost, f.pods[2].url+"/api/approvals/"+a.ID, rootToken,
					`{"decision":"allow-once"}`, 0)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
}

// revisions are the requirement sets, in the order of the table.
var revisions = []string{"2026-07-28", "2025-11-25"}

// row is a scenario of one revision.
type row struct {
	revision, scenario string
	scored             bool
	passed, failed     []string // ids of checks, sorted, each once
}

// judge runs one requirement set and returns a row for each scenario.
func (f *fleet) judge(t *testing.T, revision string) []row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, node(t), bin(t, "conformance"), "server", "--url", f.suite+"/mcp/sessions/suite",
		"--requirements", revision, "-o", dir)
	// The suite itself fails for what does not apply, too. What counts is what it wrote about each check.
	out, err := cmd.CombinedOutput()
	if !bytes.Contains(out, []byte("=== SUMMARY ===")) {
		t.Fatalf("the suite, revision %s: %v\n%s", revision, err, out)
	}
	return results(t, revision, dir, out)
}

// resultName is the name of a folder with the result of a scenario.
var resultName = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// results reads what the suite has written.
func results(t *testing.T, revision, dir string, out []byte) (rows []row) {
	t.Helper()
	_, unscored, _ := bytes.Cut(out, []byte("Not scored for "))
	folders, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		name := resultName.FindStringSubmatch(folder.Name())
		if name == nil {
			t.Fatalf("the suite wrote %s", folder.Name())
		}
		r := row{revision: revision, scenario: name[1], scored: !bytes.Contains(unscored, []byte(" "+name[1]+" ("))}
		for _, c := range checksOf(t, filepath.Join(dir, folder.Name(), "checks.json")) {
			switch {
			case c.Status == "FAILURE" || c.Status == "WARNING":
				r.failed = append(r.failed, c.ID)
				t.Logf("%s %s: %s: %s", revision, r.scenario, c.ID, c.ErrorMessage)
			case c.Status == "SUCCESS" && c.ID != "wire-schema-valid":
				r.passed = append(r.passed, c.ID)
			}
		}
		r.passed, r.failed = compact(r.passed), compact(r.failed)
		rows = append(rows, r)
	}
	return rows
}

// check is one statement of the specification, and whether it held.
type check struct{ ID, Status, ErrorMessage string }

func checksOf(t *testing.T, file string) (checks []check) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) { // the scenario itself gave up
		return []check{{ID: "no-result", Status: "FAILURE", ErrorMessage: "the scenario came to no result"}}
	}
	if err == nil {
		err = json.Unmarshal(raw, &checks)
	}
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

func compact(ids []string) []string {
	slices.Sort(ids)
	return slices.Compact(ids)
}
