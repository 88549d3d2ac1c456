// Package limittest tests the limits of workspaces with real programs. Every engine must pass it.
package limittest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/registry"
)

// limit is how long a program of this package may run. It is not reached unless a limit does not work.
const limit = time.Minute

// overruns are scripts for any POSIX shell. Each takes more than a workspace of 2 MiB and 50 files may hold, most where
// a look through its folders does not see it, and goes on until it is ended.
var overruns = map[string]struct{ script, says string }{
	"bytes": {`i=0; while :; do head -c 1000000 /dev/zero >f$i; i=$((i+1)); done`, "2048 KiB"},
	"files": {`i=0; while :; do : >f$i; i=$((i+1)); done`, "at most 50 are allowed"},
	"a long path": {
		`d=d$(printf %0250d 0); i=0; while [ $i -lt 20 ]; do mkdir $d; cd -P $d; i=$((i+1)); done; ` +
			`i=0; while :; do head -c 1000000 /dev/zero >f$i; i=$((i+1)); done`,
		"2048 KiB",
	},
	"deep folders": {
		`i=0; while [ $i -lt 48 ]; do mkdir d; cd -P d; i=$((i+1)); done; mkdir e; ` +
			`i=0; while :; do : >e/f$i; i=$((i+1)); done`,
		"at most 50 are allowed",
	},
	"deeper than is counted": {
		`i=0; while [ $i -lt 300 ]; do mkdir d; cd -P d; i=$((i+1)); done; exec sleep 600`, "",
	},
	"racing renames": {
		`mkdir a; head -c 1500000 /dev/zero >a/f; head -c 1500000 /dev/zero >a/g; while :; do mv a b; mv b a; done`,
		"2048 KiB",
	},
	"unlinked open files": {
		`exec 3>a 4>b; rm a b; head -c 1500000 /dev/zero >&3; head -c 1500000 /dev/zero >&4; exec sleep 600`,
		"2048 KiB",
	},
	"locked folders": {
		`mkdir d; head -c 1500000 /dev/zero >d/f; head -c 1500000 /dev/zero >d/g; chmod 0 d; exec sleep 600`,
		"2048 KiB",
	},
}

// clean removes all that the scripts leave, by relative paths: a whole one may be too long.
const clean = `chmod 700 d* 2>/dev/null; n=0; while cd -P d* 2>/dev/null; do n=$((n+1)); done; rm -rf e f*; ` +
	`while [ $n -gt 0 ]; do cd -P ..; rmdir d* 2>/dev/null || rm -rf d*; n=$((n-1)); done; rm -rf ./*; true`

// Run tests an engine whose programs have this environment. A program that takes more than its workspace may is ended
// with an error that names the limit, nothing stays that cannot be seen, the next program can make room, and the one
// after it can write again.
func Run(t *testing.T, engine sandbox.Engine, env ...string) {
	for name, o := range overruns {
		t.Run(name, func(t *testing.T) {
			spaces, space := open(t)
			e := ended{t, spaces.Limited(engine), space, env}
			_, _, err := e.run(o.script)
			if !errors.Is(err, sandbox.ErrFull) || !strings.Contains(err.Error(), o.says) {
				t.Errorf("it ended with %v, want the limit %q", err, o.says)
			}
			if n := sandbox.Nameless(space); n != 0 {
				t.Errorf("%d bytes without a name are left", n)
			}
			if _, said, err := e.run(clean); err != nil {
				t.Errorf("a program that makes room: %v: %s", err, said)
			}
			if out, said, err := e.run("head -c 100000 /dev/zero >f && wc -c <f"); err != nil ||
				strings.TrimSpace(out) != "100000" || strings.Contains(said, "full") {
				t.Errorf("afterwards: %q %q, %v", out, said, err)
			}
			if err := engine.Release(t.Context(), space); err != nil {
				t.Error(err)
			}
		})
	}
}

// open returns workspaces that hold 2 MiB in 50 files, and one of them. Programs of other users may pass through the
// folders above it.
func open(t *testing.T) (*workspace.Workspaces, sandbox.Workspace) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "limits")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	w, err := workspace.New(workspace.Config{
		Dir: filepath.Join(dir, "w"), MaxBytes: 2 << 20, MaxFiles: 50, MinFree: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	space, err := w.Find(agent.SessionID{Tenant: "t"}, registry.Place{}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w, space
}

// ended runs programs until they end or are ended.
type ended struct {
	t      *testing.T
	engine sandbox.Engine
	space  sandbox.Workspace
	env    []string
}

func (e ended) run(script string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), limit)
	defer cancel()
	var out, said bytes.Buffer
	_, err = e.engine.Run(ctx, e.space, sandbox.Command{
		Args: []string{"sh", "-c", script}, Env: e.env, Stdout: &out, Stderr: &said,
	})
	return out.String(), said.String(), err
}
