package files_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/tools/files"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a workspace, and the tools of its agent session.
type bench struct {
	testing.TB
	dir   string // the workspace
	made  agent.Registration
	w     sandbox.Workspace
	rules policy.Resources
	check *schema.Validator
}

// Open implements agent.Workspace.
func (b *bench) Open(context.Context) (sandbox.Workspace, error) { return b.w, nil }

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{TB: t, check: schema.NewValidator(), dir: filepath.Join(tempDir(t), "workspace")}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b.w = sandbox.Workspace{ID: "w1", Dir: b.dir, UID: os.Getuid(), GID: os.Getgid()}
	b.made = files.Registration(files.Config{})
	return b
}

// tempDir returns a folder in memory if it can: tests write hundreds of files, each of which is to reach the disk.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "farhand-files-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// tool returns a tool of the session.
func (b *bench) tool(name string, sc agent.SessionContext) agent.Tool {
	b.Helper()
	tools := b.made.Make(sc)
	return tools[slices.IndexFunc(tools, func(t agent.Tool) bool { return t.Spec().Name == name })]
}

// decided is a context with what policy says of a call.
type decided struct {
	context.Context
	decision *policy.Decision
}

func (d decided) Value(key any) any {
	if v := d.decision.Value(key); v != nil {
		return v
	}
	return d.Context.Value(key)
}

// run calls a tool as the invoker does, after checking the arguments against its schema.
func (b *bench) run(name string, args any) registry.Result {
	b.Helper()
	res, err := b.try(name, args)
	if err != nil {
		b.Fatalf("%s %v: %v", name, args, err)
	}
	return res
}

func (b *bench) try(name string, args any) (registry.Result, error) {
	b.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		b.Fatal(err)
	}
	tool := b.tool(name, agent.SessionContext{Workspace: b})
	if err := b.check.Validate(b.Context(), share.Owner{}, tool.Spec(), text, time.Time{}); err != nil {
		return registry.Result{}, err
	}
	return tool.Execute(decided{b.Context(), &policy.Decision{Resources: b.rules}}, text)
}

type object = map[string]any

func (b *bench) put(name, content string) {
	b.Helper()
	path := filepath.Join(b.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content),
		0o600)); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) get(name string) string {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// entries returns the names of all that is in the workspace, with / behind those of folders.
func (b *bench) entries() (names []string) {
	b.Helper()
	err := filepath.WalkDir(b.dir, func(path string, e os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(b.dir, path); rel != "." {
			if e.IsDir() {
				rel += "/"
			}
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return names
}

// said decodes the structured result.
func said(t testing.TB, res registry.Result) object {
	t.Helper()
	var o object
	if err := json.Unmarshal(res.Structured.Raw(), &o); err != nil {
		t.Fatalf("%+v: %v", res, err)
	}
	return o
}

// wantFailed checks that a tool said why it did nothing.
func wantFailed(t testing.TB, res registry.Result, why string) {
	t.Helper()
	if res.Success || res.Output != res.Error || !strings.Contains(res.Error, why) {
		t.Errorf("got %+v, want a failure that says %q", res, why)
	}
}

func TestToolsWithoutAWorkspace(t *testing.T) {
	b := newBench(t)
	for name, args := range map[string]string{
		"read": `{"path":"a"}`, "write": `{"path":"a","content":""}`,
		"edit": `{"path":"a","edits":[{"old":"a","new":"b"}]}`,
	} {
		res, err := b.tool(name, agent.SessionContext{}).Execute(t.Context(), []byte(args))
		if err != nil {
			t.Fatal(err)
		}
		wantFailed(t, res, "no workspace")
	}
}

// brokenWorkspace cannot be opened.
type brokenWorkspace struct{ err error }

func (w brokenWorkspace) Open(context.Context) (sandbox.Workspace, error) {
	return sandbox.Workspace{}, w.err
}

func TestAWorkspaceThatCannotBeOpened(t *testing.T) {
	b := newBench(t)
	full := &registry.Error{Code: registry.CodeBusy, Message: "no room", Cause: os.ErrNotExist}
	for _, why := range []error{full, errors.New("the disk is gone")} {
		tool := b.tool("read", agent.SessionContext{Workspace: brokenWorkspace{why}})
		if res, err := tool.Execute(t.Context(), []byte(`{"path":"a"}`)); !errors.Is(err, why) {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

func TestRead(t *testing.T) {
	b := newBench(t)
	b.put("poem.txt", "one\ntwo\nthree\nfour\n")
	b.put("open.txt", "one\ntwo")
	b.put("empty.txt", "")
	b.put("feeds.txt", "\n\n")
	for name, tt := range map[string]struct {
		args            object
		content, output string
		total, returned float64
	}{
		"whole": {object{"path": "poem.txt"}, "one\ntwo\nthree\nfour\n", "one\ntwo\nthree\nfour\n", 4, 4},
		"limit": {object{"path": "poem.txt", "limit": 2}, "one\ntwo\n",
			"one\ntwo\n[lines 1 to 2 of 4; read on with offset 2]", 4, 2},
		"offset": {object{"path": "poem.txt", "offset": 3.0}, "four\n", "four\n[lines 4 to 4 of 4]", 4, 1},
		"both": {object{"path": "poem.txt", "offset": 1, "limit": 1}, "two\n",
			"two\n[lines 2 to 2 of 4; read on with offset 2]", 4, 1},
		"zero": {object{"path": "poem.txt", "offset": 0, "limit": 0}, "one\ntwo\nthree\nfour\n",
			"one\ntwo\nthree\nfour\n", 4, 4},
		"no end":   {object{"path": "open.txt"}, "one\ntwo", "one\ntwo", 2, 2},
		"last":     {object{"path": "open.txt", "offset": 1}, "two", "two\n[lines 2 to 2 of 2]", 2, 1},
		"empty":    {object{"path": "empty.txt"}, "", "[the file is empty]", 0, 0},
		"no words": {object{"path": "feeds.txt"}, "\n\n", "\n\n", 2, 2},
		"dots": {object{"path": "./poem.txt", "limit": 100}, "one\ntwo\nthree\nfour\n", "one\ntwo\nthree\nfour\n",
			4, 4},
	} {
		res := b.run("read", tt.args)
		o := said(t, res)
		if !res.Success || res.Output != tt.output || o["content"] != tt.content || o["total_lines"] != tt.total ||
			o["returned_lines"] != tt.returned {
			t.Errorf("%s: %q, %v", name, res.Output, o)
		}
	}
	wantFailed(t, b.run("read", object{"path": "poem.txt", "offset": 4}), "has only 4 lines")
	wantFailed(t, b.run("read", object{"path": "nothing.txt"}), "no file")
	wantFailed(t, b.run("read", object{"path": "nothing/at/all.txt"}), "no file")
	wantFailed(t, b.run("read", object{"path": "poem.txt/below"}), "is not a folder")
	for _, args := range []object{
		{"path": "poem.txt", "limit": 1.5}, {"path": "poem.txt", "offset": -1}, {"limit": 1}, {"path": 1},
		{"path": "poem.txt", "lines": 1}, {"path": "poem.txt", "limit": 1e12},
	} {
		if _, err := b.try("read", args); !errors.Is(err, registry.CodeInvalidArguments) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestReadIsBounded(t *testing.T) {
	b := newBench(t)
	line := strings.Repeat("é", 100) + "\n"
	b.put("long.txt", strings.Repeat(line, 5000))
	res := b.run("read", object{"path": "long.txt"})
	o := said(t, res)
	content := o["content"].(string)
	if len(content) > 128<<10 || len(content)%len(line) != 0 || o["total_lines"] != 5000.0 || o["truncated"] != true ||
		!strings.HasSuffix(res.Output, fmt.Sprintf("read on with offset %v]", o["returned_lines"])) {
		t.Errorf("%d bytes, %v of %v lines", len(content), o["returned_lines"], o["total_lines"])
	}
	rest := said(t, b.run("read", object{"path": "long.txt", "offset": o["returned_lines"], "limit": 1}))
	if rest["content"] != line || rest["truncated"] != false {
		t.Errorf("read on: %v", rest)
	}

	b.put("one.txt", "x"+strings.Repeat("é", 100_000)+"\nsecond\n")
	res = b.run("read", object{"path": "one.txt"})
	if o := said(t, res); len(o["content"].(string)) != 128<<10-1 || o["total_lines"] != 2.0 ||
		!strings.Contains(res.Output, "which is too long") {
		t.Errorf("%d bytes: %v lines", len(o["content"].(string)), o["total_lines"])
	}

	b.rules.MaxBytes = 1 << 20
	if err := os.Truncate(filepath.Join(b.dir, "one.txt"), 10<<30); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, b.run("read", object{"path": "one.txt"}), "10 GiB; at most 1.0 MiB")
	wantFailed(t, b.run("edit", object{"path": "one.txt", "edits": []object{{"old": "a", "new": "b"}}}),
		"at most 1.0 MiB")
}

// A file of control characters, each six bytes in JSON, still has a structured result.
func TestReadOfManyEscapes(t *testing.T) {
	b := newBench(t)
	b.put("bells.txt", strings.Repeat("\x07", 1<<20))
	res := b.run("read", object{"path": "bells.txt"})
	if n := res.Structured.Len(); n == 0 || n > agent.MaxLocalOutput {
		t.Errorf("%d bytes", n)
	}
}

func TestReadOfBinaries(t *testing.T) {
	b := newBench(t)
	png := "\x89PNG\r\n\x1a\n" + strings.Repeat("\x00", 100)
	b.put("zero.bin", "text\x00text")
	b.put("late.bin", strings.Repeat("text\n", 4000)+"\xff\xfe")
	b.put("latin.txt", "caf\xe9\n")
	b.put("dot.png", png)
	b.put("big.png", png+strings.Repeat("x", registry.MaxInlinePart))
	for name, want := range map[string]string{
		"zero.bin": "application/octet-stream", "late.bin": "application/octet-stream",
		"latin.txt": "application/octet-stream", "dot.png": "image/png", "big.png": "image/png",
	} {
		res := b.run("read", object{"path": name})
		o := said(t, res)
		if !res.Success || o["binary"] != true || o["mime_type"] != want || o["bytes"] != float64(len(b.get(name))) ||
			o["content"] != nil || len(res.Output) > 200 || !strings.Contains(res.Output, want) {
			t.Errorf("%s: %q, %v", name, res.Output, o)
		}
		if shown := len(res.Parts) == 1; shown != (name == "dot.png") {
			t.Errorf("%s: %d parts", name, len(res.Parts))
		}
	}
	part := b.run("read", object{"path": "dot.png"}).Parts[0]
	if part.Type != registry.PartImage || part.MIMEType != "image/png" || part.Name != "dot.png" ||
		string(part.Data) != png || part.Size != int64(len(png)) {
		t.Errorf("%+v", part)
	}
}

func TestWrite(t *testing.T) {
	b := newBench(t)
	res := b.run("write", object{"path": "notes.md", "content": "hé\n"})
	if o := said(t, res); !res.Success || o["path"] != "notes.md" || o["bytes"] != 4.0 ||
		len(o["folders"].([]any)) != 0 ||
		res.Output != "Wrote 4 bytes to notes.md." || b.get("notes.md") != "hé\n" {
		t.Errorf("%+v", res)
	}
	res = b.run("write", object{"path": "a//b/./c.txt", "content": "x"})
	if o := said(t, res); fmt.Sprint(o["folders"]) != "[a a/b]" || o["path"] != "a/b/c.txt" ||
		b.get("a/b/c.txt") != "x" {
		t.Errorf("%+v", res)
	}
	res = b.run("write", object{"path": "a/d.txt", "content": ""})
	if o := said(t, res); fmt.Sprint(o["folders"]) != "[]" || b.get("a/d.txt") != "" {
		t.Errorf("%+v", res)
	}
	if err := os.Chmod(filepath.Join(b.dir, "notes.md"), os.ModeSetuid|0o750); err != nil {
		t.Fatal(err)
	}
	b.run("write", object{"path": "notes.md", "content": "new"})
	for path, mode := range map[string]os.FileMode{
		"notes.md": 0o750, "a/b/c.txt": 0o600, "a": os.ModeDir | 0o700, "a/b": os.ModeDir | 0o700,
	} {
		if info, err := os.Stat(filepath.Join(b.dir, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
	}
	want := []string{"a/", "a/b/", "a/b/c.txt", "a/d.txt", "notes.md"}
	if got := b.entries(); !slices.Equal(got, want) || b.get("notes.md") != "new" {
		t.Errorf("%q", got)
	}
}

func TestWriteIsBounded(t *testing.T) {
	b := newBench(t)
	b.rules = policy.Resources{MaxBytes: 10, MaxFiles: 3}
	wantFailed(t, b.run("write", object{"path": "big", "content": "12345678901"}), "11 B; at most 10 B")
	wantFailed(t, b.run("write", object{"path": "a/b/c/d", "content": ""}), "at most 2")
	b.rules.MaxFiles = 1
	wantFailed(t, b.run("write", object{"path": "a/b", "content": ""}), "no file")
	if got := b.entries(); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	if res := b.run("write", object{"path": "b", "content": "1234567890"}); !res.Success {
		t.Errorf("%+v", res)
	}
	wantFailed(t, b.run("edit", object{"path": "b", "edits": []object{{"old": "1", "new": "11"}}}), "at most 10 B")
	b.rules = policy.Resources{}
	wantFailed(t, b.run("write", object{"path": "big", "content": strings.Repeat("x", 10<<20+1)}), "at most 10 MiB")
}

func TestEdit(t *testing.T) {
	b := newBench(t)
	b.put("main.go", "package main\n\nfunc main() {\n\tprintln(1)\n}\n")
	res := b.run("edit", object{"path": "main.go", "edits": []object{
		{"old": "println(1)", "new": "println(2)"}, {"old": "package main\n", "new": "// Said.\npackage main\n"},
	}})
	diff := "--- a/main.go\n+++ b/main.go\n@@ -1,5 +1,6 @@\n-package main\n+// Said.\n+package main\n \n func main() " +
		"{\n-\tprintln(1)\n+\tprintln(2)\n }\n"
	if o := said(t, res); !res.Success || o["diff"] != diff || res.Output != diff || o["edits"] != 2.0 ||
		b.get("main.go") != "// Said.\npackage main\n\nfunc main() {\n\tprintln(2)\n}\n" {
		t.Errorf("%q\n%q", res.Output, b.get("main.go"))
	}
}

func TestEditsThatAreRefused(t *testing.T) {
	b := newBench(t)
	text := "aaa\nbcd\naaa\nxyz\n"
	b.put("t", text)
	b.put("bin", "a\x00b")
	b.put("latin", "caf\xe9 one")
	for name, tt := range map[string]struct {
		path  string
		edits []object
		why   string
	}{
		"not there":      {"t", []object{{"old": "q", "new": "r"}}, "Edit 1: its old text does not occur"},
		"twice":          {"t", []object{{"old": "aaa\n", "new": "r"}}, "more than once"},
		"overlaps":       {"t", []object{{"old": "aa", "new": "r"}}, "more than once"},
		"second":         {"t", []object{{"old": "bcd", "new": "r"}, {"old": "r", "new": "s"}}, "Edit 2: its old"},
		"same place":     {"t", []object{{"old": "bcd", "new": "r"}, {"old": "bcd", "new": "s"}}, "overlap"},
		"one in another": {"t", []object{{"old": "bcd\na", "new": "r"}, {"old": "cd", "new": "s"}}, "overlap"},
		"nothing":        {"t", []object{{"old": "xyz", "new": "xyz"}}, "the same"},
		"binary":         {"bin", []object{{"old": "a", "new": "b"}}, "binary"},
		"no UTF-8":       {"latin", []object{{"old": "one", "new": "b"}}, "binary"},
		"no file":        {"u", []object{{"old": "a", "new": "b"}}, "no file"},
		"not in order":   {"t", []object{{"old": "xyz", "new": "bcd"}, {"old": "nowhere", "new": ""}}, "Edit 2"},
	} {
		t.Run(name, func(t *testing.T) {
			wantFailed(t, b.run("edit", object{"path": tt.path, "edits": tt.edits}), tt.why)
		})
	}
	for _, edits := range []any{[]object{}, []object{{"old": "", "new": "a"}}, []object{{"old": "bcd"}}, "bcd",
		slices.Repeat([]object{{"old": "bcd", "new": "a"}}, 101)} {
		if _, err := b.try("edit", object{"path": "t", "edits": edits}); !errors.Is(err,
			registry.CodeInvalidArguments) {
			t.Errorf("%v: %v", edits, err)
		}
	}
	if got := b.entries(); b.get("t") != text || !slices.Equal(got, []string{"bin", "latin", "t"}) {
		t.Errorf("%q, %q", b.get("t"), got)
	}
}

// Ends of lines, and of the file, stay as they are.
func TestEditKeepsEnds(t *testing.T) {
	b := newBench(t)
	for name, tt := range map[string]struct{ text, old, new, want string }{
		"CRLF":           {"a\r\nb\r\nc\r\n", "a\nb", "a\nx\ny", "a\r\nx\r\ny\r\nc\r\n"},
		"CRLF as it is":  {"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\nc\r\n"},
		"mixed":          {"a\r\nb\nc", "b\n", "x\n", "a\r\nx\nc"},
		"no last feed":   {"a\nb", "b", "c", "a\nc"},
		"BOM":            {"\ufeffa\n", "a", "b", "\ufeffb\n"},
		"deletes":        {"a\nb\n", "a\n", "", "b\n"},
		"to the last":    {"a", "a", "", ""},
		"feed from none": {"a", "a", "a\n", "a\n"},
	} {
		b.put("t", tt.text)
		res := b.run("edit", object{"path": "t", "edits": []object{{"old": tt.old, "new": tt.new}}})
		if got := b.get("t"); !res.Success || got != tt.want {
			t.Errorf("%s: %q, %+v", name, got, res)
		}
	}
}

func TestDiffsAreBounded(t *testing.T) {
	b := newBench(t)
	b.put("t", "begin\nend\n")
	res := b.run("edit", object{"path": "t", "edits": []object{
		{"old": "begin\n", "new": "begin\n" + strings.Repeat("é line\n", 20_000)}}})
	if o := said(t, res); !res.Success || len(o["diff"].(string)) > 65<<10 || !strings.HasSuffix(res.Output,
		"were cut]") {
		t.Errorf("%d bytes, …%s", len(res.Output), res.Output[max(0, len(res.Output)-100):])
	}
	b.put("t", "begin\n"+strings.Repeat("\n", 300_000))
	res = b.run("edit", object{"path": "t", "edits": []object{{"old": "begin", "new": "end"}}})
	if !res.Success || res.Output != "[1 edits made; a file of 300001 lines is too long for a diff]" ||
		!strings.HasPrefix(b.get("t"), "end\n") {
		t.Errorf("%+v", res)
	}
}

// startLine is a workspace that opens for nobody before all are there.
type startLine struct {
	*bench
	here sync.WaitGroup
}

func (s *startLine) Open(ctx context.Context) (sandbox.Workspace, error) {
	s.here.Done()
	s.here.Wait()
	return s.bench.Open(ctx)
}

// All edits of one file at once are made, whatever their order.
func TestEditsTakeTurns(t *testing.T) {
	b := newBench(t)
	const edits = 20
	var text strings.Builder
	for i := range edits {
		fmt.Fprintf(&text, "<%d>\n", i)
	}
	long := strings.Repeat("not edited\n", 100_000)
	b.put("t", text.String()+long)
	line := &startLine{bench: b}
	line.here.Add(edits)
	tool := b.tool("edit", agent.SessionContext{Workspace: line})
	var all sync.WaitGroup
	for i := range edits {
		all.Go(func() {
			args := fmt.Appendf(nil, `{"path":"t","edits":[{"old":"<%d>","new":"x"}]}`, i)
			res, err := tool.Execute(t.Context(), args)
			if err != nil || !res.Success {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	all.Wait()
	if got := b.get("t"); got != strings.Repeat("x\n", edits)+long {
		t.Errorf("%.100q", got)
	}
}

func TestCancelledCallsChangeNothing(t *testing.T) {
	b := newBench(t)
	b.put("t", "a")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("hung up")
	cancel(why)
	for name, args := range map[string]string{
		"write": `{"path":"t","content":"b"}`, "edit": `{"path":"t","edits":[{"old":"a","new":"b"}]}`,
		"read": `{"path":"t"}`,
	} {
		_, err := b.tool(name, agent.SessionContext{Workspace: b}).Execute(ctx, []byte(args))
		if !errors.Is(err, why) && name != "read" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := b.entries(); b.get("t") != "a" || len(got) != 1 {
		t.Errorf("%q, %q", b.get("t"), got)
	}
}
