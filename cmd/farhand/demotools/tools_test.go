package demotools

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run calls a tool and returns its output as JSON, or its error.
func run(t *testing.T, tools []Tool, name, args string) (string, error) {
	t.Helper()
	for _, tool := range tools {
		if tool.Name != name {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		out, err := tool.Handler(ctx, client.Call{ID: "1", Tool: name, Args: json.RawMessage(args)})
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(b), nil
	}
	t.Fatalf("there is no tool %s", name)
	return "", nil
}

func TestBasicToolsAnswer(t *testing.T) {
	for _, tt := range []struct{ name, args, want string }{
		{"device_info", `{}`, `"hostname":"`},
		{"sensors", `{}`, `"read_at":"`},
		{"sensors", `{"type":"memory"}`, `"memory":{"total_bytes":`},
		{"echo", `{"text":"hällo"}`, `"hällo"`},
		{"sleep", `{"seconds":0.001}`, `"slept 1ms"`},
	} {
		out, err := run(t, Basic(), tt.name, tt.args)
		if err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s %s: %s, %v", tt.name, tt.args, out, err)
		}
	}
	if out, _ := run(t, Basic(), "sensors", `{"type":"load"}`); strings.Contains(out, "memory") {
		t.Errorf("asked for the load alone: %s", out)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := sleep(ctx, struct{ Seconds float64 }{600}); err == nil {
		t.Error("it slept on")
	}
}

func TestChoose(t *testing.T) {
	chosen, err := Choose(Basic(), []string{"echo", "sensors"})
	if err != nil || len(chosen) != 2 || chosen[0].Name != "echo" {
		t.Errorf("%v, %v", chosen, err)
	}
	if _, err := Choose(Basic(), []string{"camera"}); err == nil || !strings.Contains(err.Error(), "device_info") {
		t.Errorf("an unknown tool: %v", err)
	}
	if all, err := Choose(Basic(), nil); err != nil || len(all) != len(Basic()) {
		t.Errorf("no choice: %v, %v", all, err)
	}
}

const cards = "BEGIN:VCARD\nVERSION:4.0\nFN:Ada Lovelace\nORG:Engines;\nTEL:+44 20\nEMAIL:ada@example.com\n" +
	"END:VCARD\nBEGIN:VCARD\nVERSION:4.0\nFN:Grace Hopper\nEMAIL:grace@example.com\nEND:VCARD\n"

func TestContacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my.vcf")
	if err := os.WriteFile(path, []byte(cards), 0o600); err != nil {
		t.Fatal(err)
	}
	contacts, err := Contacts(path)
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		`{"query":"LOVE"}`: `{"contacts":[{"name":"Ada Lovelace","organization":"Engines","phones":["+44 ` +
			`20"],"emails":["ada@example.com"]}],"total":1}`,
		`{"query":"nobody"}`:       `{"contacts":[],"total":0}`,
		`{"query":"","limit":1}`:   `"total":2}`,
		`{"query":"example.com"}`:  `"total":2}`,
		`{"query":" grace@exam "}`: `"total":1}`,
	} {
		out, err := run(t, []Tool{contacts}, "contacts", query)
		if err != nil || !strings.HasSuffix(out, want) {
			t.Errorf("%s: %s, %v", query, out, err)
		}
	}
}

func TestContactsOfWrongFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"missing", "empty", "text"} {
		if _, err := Contacts(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestBatteries(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"BAT0/capacity": "87\n", "BAT0/status": "Discharging\n", "BAT1/capacity": "broken", "AC/online": "1",
	} {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := batteries(dir)
	if len(got) != 1 || got[0] != (batteryReading{Name: "BAT0", Percent: 87, Status: "Discharging"}) {
		t.Errorf("%+v", got)
	}
}
