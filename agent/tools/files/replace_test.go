package files_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
)

// TestReadersSeeWholeFiles: whoever reads a file while it is written reads the old one or the new one.
func TestReadersSeeWholeFiles(t *testing.T) {
	b := newBench(t)
	texts := []string{strings.Repeat("a", 50_000), strings.Repeat("b", 60_000)}
	b.put("t", texts[0])
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan string, 1)
	go func() {
		defer close(read)
		for ctx.Err() == nil {
			text, err := os.ReadFile(filepath.Join(b.dir, "t"))
			if err != nil || !slices.Contains(texts, string(text)) {
				read <- string(text)
				return
			}
		}
	}()
	for i := range 40 {
		b.run("write", object{"path": "t", "content": texts[i%2]})
	}
	cancel()
	if text, bad := <-read; bad {
		t.Errorf("read %d bytes: %.20q", len(text), text)
	}
}

// TestWritersThatAreKilled: what a process that was killed had begun is gone after the next write, and never seen.
func TestWritersThatAreKilled(t *testing.T) {
	if dir := os.Getenv("FARHAND_TEST_WRITE_IN"); dir != "" {
		writeForever(t, dir)
	}
	b := newBench(t)
	text := strings.Repeat("a", 1<<20)
	b.put("t", text)
	began := 0
	for range 4 {
		began += killed(t, b)
	}
	if got := b.get("t"); got != text {
		t.Errorf("%d bytes", len(got))
	}
	t.Logf("%d of 4 left a file that was being written", began)
	b.put(".farhand-young.tmp", "being written by another pod")
	if err := os.Mkdir(filepath.Join(b.dir, ".farhand-folder.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range b.entries() {
		if strings.HasPrefix(name, ".farhand-") && !strings.HasPrefix(name, ".farhand-young") {
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(filepath.Join(b.dir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.run("write", object{"path": "u", "content": ""})
	want := []string{".farhand-folder.tmp/", ".farhand-young.tmp", "t", "u"}
	if got := b.entries(); !slices.Equal(got, want) {
		t.Errorf("left: %q", got)
	}
}

// writeForever writes the same file until somebody kills the process.
func writeForever(t *testing.T, dir string) {
	b := newBench(t)
	b.dir = dir
	b.w = sandbox.Workspace{ID: "w1", Dir: dir, UID: os.Getuid(), GID: os.Getgid()}
	text := strings.Repeat("a", 1<<20)
	for {
		b.run("write", object{"path": "t", "content": text})
	}
}

// killed starts a process that writes, kills it as soon as something of it is seen, and returns how many files it left.
func killed(t *testing.T, b *bench) (left int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestWritersThatAreKilled$")
	cmd.Env = append(os.Environ(), "FARHAND_TEST_WRITE_IN="+b.dir)
	before := len(b.entries())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for len(b.entries()) == before && time.Now().Before(deadline) { // the file comes and goes within milliseconds
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return len(b.entries()) - before
}

// TestFullDisk: nothing is left of what does not fit, and what was there stays.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	if err := syscall.Mount("tmpfs", b.dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Skipf("no disk can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(b.dir, 0); err != nil {
			t.Error(err)
		}
	})
	b.put("t", "old")
	for range 3 {
		wantFailed(t, b.run("write", object{"path": "a/t", "content": strings.Repeat("x", 2<<20)}), "no space for")
		wantFailed(t, b.run("write", object{"path": "t", "content": strings.Repeat("x", 2<<20)}), "no space for")
		wantFailed(t, b.run("edit", object{"path": "t",
			"edits": []object{{"old": "old", "new": strings.Repeat("x", 2<<20)}}}), "no space for")
	}
	if got := b.entries(); b.get("t") != "old" || !slices.Equal(got, []string{"t"}) {
		t.Errorf("%q, %q", b.get("t"), got)
	}
}

// TestFullWorkspace: what has no room is refused, and what takes less than before is not.
func TestFullWorkspace(t *testing.T) {
	b := newBench(t)
	b.put("big", strings.Repeat("x", 80<<10))
	b.w.MaxBytes = 100 << 10
	wantFailed(t, b.run("write", object{"path": "a/b", "content": strings.Repeat("x", 40<<10)}), "workspace is full")
	wantFailed(t, b.run("edit", object{"path": "big",
		"edits": []object{{"old": b.get("big"), "new": strings.Repeat("y", 140<<10)}}}), "workspace is full")
	if res := b.run("write", object{"path": "big", "content": strings.Repeat("z", 70<<10)}); !res.Success {
		t.Errorf("%+v", res)
	}
	b.w.MaxBytes, b.w.MaxFiles = 0, len(b.entries())+1 // and the workspace itself
	wantFailed(t, b.run("write", object{"path": "new", "content": ""}), "workspace is full: it has 2 files")
	if res := b.run("write", object{"path": "big", "content": "larger" + b.get("big")}); !res.Success {
		t.Errorf("%+v", res)
	}
	if got := b.entries(); !slices.Equal(got, []string{"big"}) {
		t.Errorf("left: %q", got)
	}
}

// meddler is a context of a call during which somebody else does something: whenever the tool asks whether it ended.
type meddler struct {
	context.Context
	does func()
}

func (m meddler) Err() error {
	m.does()
	return m.Context.Err()
}

// TestChangedMeanwhile: what somebody else has written since the tool looked is not lost.
func TestChangedMeanwhile(t *testing.T) {
	b := newBench(t)
	b.put("t", "one")
	b.w.MaxBytes = 1 << 20
	for name, tt := range map[string]struct {
		tool, args string
		does       func()
		left       string
	}{
		"written": {"edit", `{"path":"t","edits":[{"old":"one","new":"two"}]}`, func() { b.put("t", "else") }, "else"},
		"written whole": {"write", `{"path":"t","content":"longer than before"}`, func() { b.put("t", "other") },
			"other"},
		"new":     {"write", `{"path":"t","content":"two"}`, func() { b.put("t", "else") }, "else"},
		"removed": {"edit", `{"path":"t","edits":[{"old":"one","new":"two"}]}`, func() { b.remove("t") }, ""},
	} {
		b.put("t", "one")
		if name == "new" {
			b.remove("t")
		}
		res, err := b.tool(tt.tool, agent.SessionContext{Workspace: b}).Execute(meddler{t.Context(), tt.does},
			[]byte(tt.args))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantFailed(t, res, "changed during the call")
		if got := b.entries(); len(got) > 1 || tt.left != "" && b.get("t") != tt.left {
			t.Errorf("%s: left %q", name, got)
		}
	}
}

func (b *bench) remove(name string) {
	b.Helper()
	if err := os.RemoveAll(filepath.Join(b.dir, name)); err != nil {
		b.Fatal(err)
	}
}

// TestUncountableWorkspace: what cannot be counted takes no more files, and the answer says why.
func TestUncountableWorkspace(t *testing.T) {
	b := newBench(t)
	b.w.MaxBytes = 1 << 20
	path := b.dir
	for range 150 {
		path = filepath.Join(path, "d")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, b.run("write", object{"path": "a", "content": "x"}), "nested deeper than 100")
}
