package commands_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

const (
	page       = "../../../docs/openclaw-commands.md"
	tableBegin = "<!-- The table is generated from the code by `make docs`. -->\n"
	tableEnd   = "<!-- The end of the table. -->\n"
)

// The page of commands has what the catalogue says.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for its table", page)
	}
	want := before + tableBegin + "\n" + table(t) + "\n" + tableEnd + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is not what the code says; run make docs", page)
	}
}

// table returns the table of all known commands, by the names of their tools.
func table(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| OpenClaw | tool | arguments | level | effect |\n| --- | --- | --- | --- | --- |\n")
	tools := everything("iOS").Tools()
	for _, tool := range tools {
		var spec registry.ToolSpec
		if err := json.Unmarshal(tool.Definition, &spec); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", tool.Command, tool.Name, arguments(t, spec),
			levelText(spec), effectText(spec))
	}
	return b.String()
}

// arguments lists the arguments of a tool. Brackets mark optional ones.
func arguments(t *testing.T, spec registry.ToolSpec) string {
	t.Helper()
	var schema struct {
		Properties           map[string]json.RawMessage
		Required             []string
		AdditionalProperties *bool
	}
	if err := json.Unmarshal(spec.Parameters, &schema); err != nil {
		t.Fatal(err)
	}
	var names, optional []string
	for name := range schema.Properties {
		if slices.Contains(schema.Required, name) {
			names = append(names, name)
		} else {
			optional = append(optional, "["+name+"]")
		}
	}
	slices.Sort(names)
	slices.Sort(optional)
	names = append(names, optional...)
	if schema.AdditionalProperties == nil {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

func levelText(spec registry.ToolSpec) string {
	if spec.SecurityLevel == "" {
		return "safe"
	}
	return string(spec.SecurityLevel)
}

func effectText(spec registry.ToolSpec) string {
	text := string(spec.Effects.Class)
	if spec.Annotations.Has("destructiveHint") {
		text = "destructive"
	}
	if spec.Effects.NeedsForeground {
		text += ", app open"
	}
	return text
}
