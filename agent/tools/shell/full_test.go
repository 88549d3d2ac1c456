package shell_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/registry"
)

// newBounded is a bench whose workspace holds 4 MiB in 100 files.
func newBounded(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	if err := os.Chmod(b.dir, 0o711); err != nil { // programs of another user pass through it
		t.Fatal(err)
	}
	all, err := workspace.New(workspace.Config{
		Dir: filepath.Join(b.dir, "all"), MaxBytes: 4 << 20, MaxFiles: 100, MinFree: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Close)
	if b.w, err = all.Find(agent.SessionID{Tenant: "t"}, registry.Place{}).Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.cfg.Host = all.Limited(b.cfg.Host)
	return b
}

// What a command hides in long paths is found, the answer names the limit, and the next command can remove it but write
// nothing. No answer is an error of the gateway.
func TestFullWorkspaceThroughTheTool(t *testing.T) {
	b := newBounded(t)
	long := strings.Repeat("d", 250)
	res := b.run("exec", object{"timeout": 60, "command": "i=0; while [ $i -lt 20 ]; do mkdir " + long + "; cd " +
		long + "; i=$((i+1)); done; head -c 3000000 /dev/zero >a; head -c 3000000 /dev/zero >b; sleep 50"})
	if res.Success || !strings.Contains(res.Error, "the workspace is full") ||
		!strings.Contains(res.Error, "4096 KiB") {
		t.Fatalf("%+v", res)
	}
	res = b.run("exec", object{"command": "echo more >new; ls"})
	if !strings.Contains(res.Output, "the workspace is full") || strings.Contains(res.Output, "more") {
		t.Errorf("%+v", res)
	}
	if res = b.run("exec", object{"command": "rm -rf *"}); !res.Success {
		t.Errorf("%+v", res)
	}
	if res = b.run("exec", object{"command": "echo more >new; cat new"}); !res.Success || res.Output != "more\n" {
		t.Errorf("%+v", res)
	}
}
