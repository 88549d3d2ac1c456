// Package files implements the tools read, write and edit for files in the workspace of an agent session.
//
// All access goes through os.Root, opened on the workspace, in this process. This also holds for sessions whose
// programs run in a sandbox, because a container mounts the same folder. A path is first checked as text, then walked
// folder by folder without following links (folder.go). It must lead to a regular file with a single name, owned by the
// workspace's user (write.go). Files are replaced, never changed in place (edit.go).
package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"math"
	"os"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/tools/internal/answer"
	"github.com/farhand/farhand/internal/bytesize"
	"github.com/farhand/farhand/registry"
)

// DefaultMaxBytes is the maximum size of a file, in bytes, unless policy sets a limit.
const DefaultMaxBytes = 10 << 20

// maxEdited is the maximum size of a file for edit, in bytes, regardless of policy: edit holds whole files in memory.
const maxEdited = 16 << 20

// Config configures the tools.
type Config struct {
	MaxBytes int64 // maximum size of a file, unless policy sets a limit; default: DefaultMaxBytes
}

// Registration returns the tools read, write and edit, for agent.NewLocalTools.
func Registration(cfg Config) agent.Registration {
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	turns := newTurns()
	return agent.Registration{
		Names: []string{"read", "write", "edit"}, State: agent.WorkspaceState(),
		Make: func(sc agent.SessionContext) []agent.Tool {
			s := session{cfg: cfg, turns: turns, workspace: sc.Workspace}
			return []agent.Tool{reader{s}, writer{s}, editor{s}}
		},
	}
}

// session is the common state of the tools of one agent session.
type session struct {
	cfg       Config
	turns     *turns
	workspace agent.Workspace
}

// open opens the workspace. The caller closes root.
func (s session) open(ctx context.Context) (root *os.Root, w sandbox.Workspace, err error) {
	if s.workspace == nil {
		return nil, w, refuse("There is no workspace here: the tool works in conversations and calls of a gateway " +
			"that keeps workspaces.")
	}
	if w, err = s.workspace.Open(ctx); err != nil {
		return nil, w, err
	}
	root, err = os.OpenRoot(w.Dir)
	return root, w, err
}

// maxBytes returns the maximum size of a file, in bytes.
func (s session) maxBytes(ctx context.Context) int64 {
	return cmp.Or(policy.ResourcesOf(ctx).MaxBytes, s.cfg.MaxBytes)
}

// refusal is an error for the model to act on: the tool failed, but the gateway works.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// failed converts an error for the caller: to a failed result if it concerns the file, otherwise it returns the error.
func failed(path string, err error) (registry.Result, error) {
	r, said := errors.AsType[refusal](err)
	_, known := errors.AsType[*registry.Error](err)
	switch {
	case said:
	case known:
		return registry.Result{}, err
	case errors.Is(err, fs.ErrNotExist):
		r = refusal(fmt.Sprintf("There is no file %q in the workspace.", path))
	case errors.Is(err, fs.ErrPermission):
		r = refusal(fmt.Sprintf("%q cannot be opened: the workspace's own user may not.", path))
	case noRoom(err):
		r = refusal(fmt.Sprintf("There is no room left for %q: the disk or the quota is full. Nothing was changed.",
			path))
	default:
		return registry.Result{}, err
	}
	return answer.Failed(string(r)), nil
}

// whole is an integer. Like JSON schemas, it accepts 3.0 as 3.
type whole int64

// UnmarshalJSON implements json.Unmarshaler.
func (w *whole) UnmarshalJSON(text []byte) error {
	var f float64
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	if f != math.Trunc(f) || math.Abs(f) > maxWhole {
		return errors.New("a whole number must stand here")
	}
	*w = whole(f)
	return nil
}

const maxWhole = 1e9

// turns serializes changes of the same file in this process, because a model may request several concurrently.
// Different files may share a turn. There are only four turns, because an edit of the largest file takes about fifty
// megabytes of memory.
type turns struct {
	seed maphash.Seed
	free [4]chan struct{} // capacity 1 each
}

func newTurns() *turns {
	t := &turns{seed: maphash.MakeSeed()}
	for i := range t.free {
		t.free[i] = make(chan struct{}, 1)
	}
	return t
}

// acquire waits for the turn of a file, until ctx ends. The caller calls done after the change.
func (t *turns) acquire(ctx context.Context, workspace string, p place) (done func(), err error) {
	place := t.free[maphash.String(t.seed, workspace+"/"+p.String())%uint64(len(t.free))]
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// checkSpace returns an error if the workspace has no room for a file of this size. was is the file that it replaces,
// or nil for a new file.
func checkSpace(ctx context.Context, w sandbox.Workspace, size int64, was fs.FileInfo) error {
	files := 1
	if was != nil {
		size, files = size-was.Size(), 0
	}
	if w.MaxBytes == 0 && w.MaxFiles == 0 || size <= 0 && files == 0 {
		return nil
	}
	used, err := sandbox.Measure(w, ctx.Done())
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case used.Unseen != nil:
		return refuse("The workspace takes no more files: %v.", used.Full(w))
	case w.MaxBytes > 0 && used.Bytes+size > w.MaxBytes:
		return refuse("The workspace is full: its files have %s, and at most %s are allowed. Make room first.",
			bytesize.Format(uint64(used.Bytes)), bytesize.Format(uint64(w.MaxBytes)))
	case w.MaxFiles > 0 && used.Files+files > w.MaxFiles:
		return refuse("The workspace is full: it has %d files and folders, and at most %d are allowed. Make "+
			"room first.", used.Files, w.MaxFiles)
	}
	if err := used.OverShare(w, size); err != nil {
		return refuse("The workspace takes no more files: %v.", err)
	}
	return nil
}
