package mcptest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"
)

// TestConformance has the suite of the MCP project judge the server, in both revisions, over a balancer that sends each
// request to another pod. What exceptions_test.go lists must fail, and nothing else may.
func TestConformance(t *testing.T) {
	t.Parallel()
	// A page that has its own name point at the gateway must be refused, which needs to know the gateway's name.
	f := startFleet(t, "FARHAND_ALLOWED_HOSTS=localhost", "FARHAND_POLICY_FILE="+askingPolicy(t))
	connectSuiteDevice(t, f.pods[1].url)
	var table []row
	for _, revision := range revisions {
		table = append(table, f.judge(t, revision)...)
	}
	checkExceptions(t, table)
	checkTable(t, table)
}

// askingPolicy is a policy by which somebody has to approve the calls that the suite wants to be asked about, also if
// an approver makes them.
func askingPolicy(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	const rules = "version: 1\ntools:\n  - {id: asked, names: test_input_required_result_*, approval: always}\n"
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
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
