package openclaw

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/ws/node/commands"
)

// The databases of testdata were written by SQLite 3.50 with pages of 1024 bytes, in the schema of OpenClaw 2026.9.6.
// Part of the rows is in the log only, as after a gateway that was killed.

func read(t *testing.T, dir string) Installation {
	t.Helper()
	in, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func (in Installation) node(t *testing.T, name string) Node {
	t.Helper()
	i := slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("there is no node %q among %d", name, len(in.Nodes))
	}
	return in.Nodes[i]
}

func TestReadDatabase(t *testing.T) {
	in := read(t, "testdata/current")
	if len(in.Nodes) != 36 {
		t.Errorf("%d nodes", len(in.Nodes))
	}
	desk := in.node(t, "Desk")
	if got := strings.Join(desk.Tools(), " "); got != "run camera_snap canvas_a2ui_push" || desk.Platform != "linux" ||
		len(desk.TokenDigest) != 64 || len(desk.PublicKey) != 32 {
		t.Errorf("%q: %+v", got, desk)
	}
	in.node(t, "Renamed in the log")
	if n := in.node(t, "Node 5"); len(n.Commands) != 93 || n.Commands[92] != "plugin.command.number.89" {
		t.Errorf("a long row: %+v", n)
	}
	left := strings.Join(in.LeftOut, "\n")
	for _, want := range []string{
		`"Node 1"`, `"Node 2"`, `"Node 3"`, `"Node 4"`, "1 requests to pair", "2 allowed programs " +
			"(/usr/bin/git, ~/bin/*)",
	} {
		if !strings.Contains(left, want) {
			t.Errorf("no %q among what is left out:\n%s", want, left)
		}
	}
	if in.Policy.Run != RunAsk {
		t.Errorf("policy: %+v", in.Policy)
	}
}

func TestReadOldFiles(t *testing.T) {
	in := read(t, "testdata/old")
	if n := in.node(t, "Desk"); strings.Join(n.Tools(), " ") != "run notify" {
		t.Errorf("%+v", n)
	}
	if in.Policy.Run != RunDenied || !slices.Contains(in.Policy.DenyCommands, "location.get") ||
		slices.Contains(in.Policy.DenyCommands, "camera.snap") ||
		!slices.Contains(in.Policy.DenyCommands, "camera.clip") {
		t.Errorf("policy: %+v", in.Policy)
	}
	left := strings.Join(in.LeftOut, "\n")
	for _, want := range []string{"1 nodes without a key", "mode auto", "agents", "channels"} {
		if !strings.Contains(left, want) {
			t.Errorf("no %q among what is left out:\n%s", want, left)
		}
	}
}

func TestPolicyIsValid(t *testing.T) {
	for _, p := range []Policy{
		{}, {Run: RunAsk}, {Run: RunDenied}, {DenyCommands: optional}, read(t, "testdata/old").Policy,
		{DenyCommands: []string{"bad name:\n x", "ok.name"}, Run: RunAsk},
	} {
		if err := policy.Check([]byte(p.YAML())); err != nil {
			t.Errorf("%v:\n%s", err, p.YAML())
		}
	}
}

// A command is denied under the name that its tool has, also if that has characters that names of tools must not have.
func TestDeniedCommandsAreTheToolsOfNodes(t *testing.T) {
	denied := []string{"system.run", "callLog.search", "acme do:it", "canvas.a2ui.pushJSONL"}
	text := Policy{DenyCommands: denied}.YAML()
	tools := commands.New(commands.Node{Commands: denied}, nil, commands.Rules{}).Tools()
	if len(tools) != len(denied) {
		t.Fatalf("%d commands have %d tools", len(denied), len(tools))
	}
	for _, tool := range tools {
		if !strings.Contains(text, `"`+tool.Name+`"`) {
			t.Errorf("%s is not denied:\n%s", tool.Name, text)
		}
	}
}

// copied returns a directory with the files of testdata/current, changed.
func copied(t *testing.T, change func(name string, text []byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/current")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"openclaw.sqlite", "openclaw.sqlite-wal"} {
		path := filepath.Join(dir, "state", name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, change(name, text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadIgnoresWhatWasNotCommitted(t *testing.T) {
	dir := copied(t, func(name string, text []byte) []byte {
		if strings.HasSuffix(name, "-wal") {
			text[len(text)-1] ^= 1 // of the last page: its transaction does not count
		}
		return text
	})
	in := read(t, dir)
	in.node(t, "Renamed in the log")
	if in.Policy.Run != RunUnset {
		t.Errorf("read a transaction that is not whole: %+v", in.Policy)
	}
}

func TestReadRefusesWhatItDoesNotKnow(t *testing.T) {
	if _, err := Read(t.TempDir()); !errors.Is(err, ErrNothing) {
		t.Errorf("an empty directory: %v", err)
	}
	for what, change := range map[string]func(string, []byte) []byte{
		"no database": func(string, []byte) []byte { return []byte("SQLite format 4") },
		"a short one": func(_ string, text []byte) []byte { return text[:min(len(text), 3000)] },
		"another page size": func(name string, text []byte) []byte {
			if name == "openclaw.sqlite" {
				text[16] = 3
			}
			return text
		},
		"a table of another version": func(_ string, text []byte) []byte {
			return []byte(strings.ReplaceAll(string(text), "device_pairing_paired", "device_pairing_pairex"))
		},
	} {
		if in, err := Read(copied(t, change)); err == nil || !strings.Contains(err.Error(), "openclaw.sqlite") {
			t.Errorf("%s: %+v, %v", what, in, err)
		}
	}
	for name, text := range map[string]string{
		"openclaw.json": "{nodes: 1}", "devices/paired.json": "[]", "exec-approvals.json": `{"version":2}`,
		"openclaw.json ": `{"tools":{"exec":{"mode":"unknown"}}}`, "devices/paired.json ": `{"a":{"role":"node"}}`,
	} {
		dir, name := t.TempDir(), strings.TrimSpace(name)
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if in, err := Read(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s with %s: %+v, %v", name, text, in, err)
		}
	}
}

func FuzzReadDatabase(f *testing.F) {
	text, err := os.ReadFile("testdata/current/state/openclaw.sqlite")
	if err != nil {
		f.Fatal(err)
	}
	log, err := os.ReadFile("testdata/current/state/openclaw.sqlite-wal")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, log)
	f.Fuzz(func(t *testing.T, text, log []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "x")
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.WriteFile(path+"-wal", log, 0o600)); err != nil {
			t.Fatal(err)
		}
		db, file, err := openDatabase(path)
		if err != nil {
			return
		}
		defer file.Close()
		_, _, _ = db.table(tablePaired)
	})
}

// A gateway that runs, or was killed, has left a lock file or the shared memory of its database. The import warns, and
// reads what is there.
func TestGatewayThatMayRunIsWarnedOf(t *testing.T) {
	unchanged := func(_ string, text []byte) []byte { return text }
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	if in := read(t, copied(t, unchanged)); len(in.Warnings) != 0 {
		t.Errorf("a stopped gateway: %q", in.Warnings)
	}
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := copied(t, unchanged)
	sum := sha256.Sum256([]byte(filepath.Join(dir, "openclaw.json")))
	earlier := filepath.Join(temporary, fmt.Sprintf("openclaw-%d", os.Getuid()),
		fmt.Sprintf("gateway.%x.lock", sum[:4]))
	current := filepath.Join(dir, "tmp", "openclaw-1000", "gateway.state.lock")
	shared := filepath.Join(dir, "state", "openclaw.sqlite-shm")
	put(current, `{"pid":4711,"createdAt":"2026-11-01T00:00:00.000Z"}`)
	put(earlier, "not JSON")
	put(shared, "")
	in := read(t, dir)
	warned := strings.Join(in.Warnings, "\n")
	for _, want := range []string{"(process 4711): its lock file is " + current, "may still run: its lock file is " +
		earlier,
		"there is " + shared} {
		if !strings.Contains(warned, want) {
			t.Errorf("no %q:\n%s", want, warned)
		}
	}
	if len(in.Warnings) != 3 || len(in.Nodes) == 0 {
		t.Errorf("%d nodes, %q", len(in.Nodes), in.Warnings)
	}
}
