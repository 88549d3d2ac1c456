package workspace_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/internal/testkit"
)

// What a program hides from who looks through its folders counts: files that it has open and that have no name, and
// those in folders that it renames all the time.
func TestHiddenFilesCount(t *testing.T) {
	for name, script := range map[string]string{
		"without a name": `exec 3>a 4>b; rm a b; head -c 1500000 /dev/zero >&3; head -c 1500000 /dev/zero >&4; ` +
			`exec sleep 600`,
		"renamed": `mkdir a; head -c 1500000 /dev/zero >a/f; head -c 1500000 /dev/zero >a/g; ` +
			`while :; do mv a b; mv b a; done`,
	} {
		t.Run(name, func(t *testing.T) {
			w, space := small(t)
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Limit)
			defer cancel()
			_, err := w.Limited(programs{}).Run(ctx, space, sandbox.Command{Args: []string{"/bin/sh", "-c", script}})
			if !errors.Is(err, sandbox.ErrFull) || !strings.Contains(err.Error(), "2048 KiB") {
				t.Error(err)
			}
			if n := sandbox.Nameless(space); n != 0 {
				t.Errorf("%d bytes without a name are left", n)
			}
		})
	}
}

// programs is an engine that runs real programs, as the user of the workspace.
type programs struct{ sandbox.Engine }

func (programs) Run(ctx context.Context, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.Dir, io.Discard, os.Stderr
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.UID), Gid: uint32(w.GID)}}
	}
	if err := cmd.Run(); ctx.Err() == nil {
		return sandbox.Exit{}, err
	}
	return sandbox.Exit{}, context.Cause(ctx)
}
