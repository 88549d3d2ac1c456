package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "rewrite the documents that are generated from code")

// TestDocsAreGenerated holds the reference documents to the code. `make docs` rewrites them.
func TestDocsAreGenerated(t *testing.T) {
	var config bytes.Buffer
	config.WriteString("# Configuration\n\n" +
		"Generated from the code by `make docs`. `farhand serve` reads these variables at its start. `farhand config`\n" +
		"prints them and checks the environment. " + valueSyntax + "\n\n")
	if err := writeConfigMarkdown(&config); err != nil {
		t.Fatal(err)
	}
	schemas := openAPISchemas(t)
	for path, want := range map[string]string{
		"../../docs/configuration.md":              config.String(),
		"../../docs/cli.md":                        cliReference(),
		"../../docs/operate.md":                    withTable(t, "../../docs/operate.md", metricsTable()),
		"../../docs/scale.md":                      withPlans(t, "../../docs/scale.md"),
		"../../docs/policy.md":                     withTable(t, "../../docs/policy.md", defaultsTable(t)),
		"../../api/openapi/schemas.json":           schemas,
		"../../sdk/typescript/client/src/types.ts": apiTypes(t, schemas),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the code says (%v); run make docs", path, err)
		}
	}
}

// Between these lines of a document stands a table that is generated.
const (
	tableBegin = "<!-- The table is generated from the code by `make docs`. -->\n"
	tableEnd   = "<!-- The end of the table. -->\n"
)

// withTable returns a document with the table as it is now.
func withTable(t *testing.T, path, table string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for its table", path)
	}
	return before + tableBegin + "\n" + table + "\n" + tableEnd + after
}

// planned is a block of a document with a command and what it prints.
var planned = regexp.MustCompile("(?ms)^```\n\\$ farhand (plan [^\n]*)\n.*?^```$")

// withPlans returns a document with what farhand plan prints now.
func withPlans(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return planned.ReplaceAllStringFunc(string(text), func(block string) string {
		line := planned.FindStringSubmatch(block)[1]
		code, out, errOut := command(t, nil, strings.Fields(line)...)
		if code != 0 {
			t.Errorf("farhand %s: %d, %s", line, code, errOut)
		}
		return "```\n$ farhand " + line + "\n" + out + "```"
	})
}

// defaultsTable returns the default rules of the policy, each with its comment.
func defaultsTable(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../agent/access/policy/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	table, comment := "| id | what |\n| --- | --- |\n", []string(nil)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if words, ok := strings.CutPrefix(line, "# "); ok {
			comment = append(comment, words)
			continue
		}
		if id, ok := strings.CutPrefix(line, "- id: "); ok {
			if len(comment) == 0 {
				t.Errorf("the default %s has no comment", id)
			}
			table += fmt.Sprintf("| `%s` | %s |\n", id, strings.Join(comment, " "))
		}
		comment = nil
	}
	return table
}

func cliReference() string {
	var b strings.Builder
	app := application{}
	var r remote
	common := pflag.NewFlagSet("", pflag.ContinueOnError)
	r.flags(common, nil)
	b.WriteString("# Commands\n\nGenerated from the code by `make docs`. Commands that call a gateway take:\n\n" +
		flagTable(common, nil))
	for _, cmd := range commandsBelow(app.rootCommand()) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", cmd.CommandPath(), describe(cmd))
		fmt.Fprintf(&b, "\n```\n%s\n```\n", cmd.UseLine())
		if cmd.Example != "" {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", cmd.Example)
		}
		if flags := flagTable(cmd.LocalFlags(), common); flags != "" {
			b.WriteString("\n" + flags)
		}
		if cmd.LocalFlags().Lookup("server") != nil {
			b.WriteString("\nTakes `--server`, `--token`.\n")
		}
	}
	return b.String()
}

// commandsBelow returns the commands of a command, each before those of its own.
func commandsBelow(parent *cobra.Command) (all []*cobra.Command) {
	for _, cmd := range parent.Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		all = append(append(all, cmd), commandsBelow(cmd)...)
	}
	return all
}

func describe(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

// flagTable returns a table of flags, without those that are the same in common.
func flagTable(flags, common *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		if common != nil {
			if c := common.Lookup(f.Name); c != nil && c.Usage == f.Usage {
				return
			}
		}
		if b.Len() == 0 {
			b.WriteString("| flag | default | meaning |\n| --- | --- | --- |\n")
		}
		def := f.DefValue
		if f.Name == "name" && f.Usage == "display name" && def != "" {
			def = "the host name" // what this machine is called does not belong in a document
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, strings.Trim(def, "[]"), f.Usage)
	})
	return b.String()
}

// documents are those that explain the code: they name tests and files.
func documents(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../docs/decisions/*.md")
	if err != nil || len(all) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	for _, name := range []string{"faults", "security", "architecture", "operate", "embedding", "performance"} {
		all = append(all, "../../docs/"+name+".md")
	}
	return append(all, "../../README.md", "../farhand-bench/README.md")
}

// TestNamedTestsExist: what the documents name as a test is one, and a file they name is there.
func TestNamedTestsExist(t *testing.T) {
	tests, files := make(map[string]bool), make(map[string]bool)
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		files[filepath.Base(path)] = true
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, name := range matches(t, path, `(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w+)\(`) {
			tests[name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range documents(t) {
		for _, name := range matches(t, path, "`((?:Test|Fuzz|Benchmark|Example)[A-Z]\\w*)`") {
			if !tests[name] {
				t.Errorf("%s names the test %s, which does not exist", path, name)
			}
		}
		for _, name := range matches(t, path, "`([\\w./-]+\\.(?:go|lua|json|yaml))`") {
			_, err := os.Stat("../../" + name)
			if bare := !strings.Contains(name, "/"); bare && !files[name] || !bare && err != nil {
				t.Errorf("%s names the file %s, which does not exist", path, name)
			}
		}
	}
}

// TestNamedDeclarationsExist: in the map of architecture.md, a name in brackets behind a file or folder is declared
// there. A file without a folder is in the folder that the row named last.
func TestNamedDeclarationsExist(t *testing.T) {
	doc, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Find things\n")
	section, _, _ = strings.Cut(section, "\n## ")
	place := regexp.MustCompile("`([\\w/-]+(?:\\.go)?)`(?: \\((`[^)]+)\\))?")
	quoted := regexp.MustCompile("`(?:\\w+\\.)?(\\w+)`")
	checked := 0
	for row := range strings.Lines(section) {
		folder := ""
		for _, m := range place.FindAllStringSubmatch(row, -1) {
			path := m[1]
			if strings.Contains(path, "/") {
				folder = filepath.Dir(path)
			} else {
				path = filepath.Join(folder, path)
			}
			for _, name := range quoted.FindAllStringSubmatch(m[2], -1) {
				checked++
				if !declares(t, "../../"+path, name[1]) {
					t.Errorf("architecture.md looks for %s in %s, which does not declare it", name[1], path)
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d names were found", checked)
	}
}

// declares reports whether a file, or a file of a folder, declares a function, variable, type or
// field.
func declares(t *testing.T, path, name string) bool {
	t.Helper()
	files := []string{path}
	if filepath.Ext(path) == "" {
		files, _ = filepath.Glob(path + "/*.go")
	}
	pattern := `(?m)^(?:func (?:\([^)]*\) )?|type |var |\t)(` + name + `)(?:[(\[]|\s+[=\w*\[(])`
	return slices.ContainsFunc(files, func(file string) bool { return len(matches(t, file, pattern)) > 0 })
}

// matches returns what the first group of a pattern matches in a file.
func matches(t *testing.T, path, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
		found = append(found, string(m[1]))
	}
	return found
}

// TestVariablesOfTheDocumentsExist: each FARHAND_ variable that a document, the image or a compose file names is one
// that the program reads.
func TestVariablesOfTheDocumentsExist(t *testing.T) {
	known := map[string]bool{
		"FARHAND_REDIS_ULR": true, // an example of a name with a typing error
	}
	for _, v := range variables() {
		known[v.Name] = true
	}
	for _, root := range []string{
		"../../README.md", "../../CHANGELOG.md", "../../SECURITY.md", "../../CONTRIBUTING.md", "../../Dockerfile",
		"../../docs", "../../deploy", "../../examples", "../../sdk/python/README.md", "../../sdk/kotlin/README.md",
		"../../sdk/typescript/README.md", "../../sdk/typescript/client/README.md",
	} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.Name() == "node_modules":
				return fs.SkipDir
			case d.IsDir():
				return nil
			}
			for _, name := range matches(t, path, `\b(FARHAND_[A-Z][A-Z0-9_]*)`) {
				family := strings.HasSuffix(name, "_") // FARHAND_JWT_… stands for several
				if !known[name] && !family {
					t.Errorf("%s names %s, which the program does not read", path, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
