// Package files implements the tools read, write and edit for files in the workspace of an agent session.
//
// All access goes through os.Root, opened on the workspace, in this process. This also holds for sessions whose
// programs run in a sandbox, because a container mounts the same folder. A path is first checked as text, then walked
// folder by folder without following links (below). It must lead to a regular file with a single name, owned by the
// workspace's user (edit.go). Files are replaced, never changed in place (edit.go).
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
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/tools/internal/localtool"
	"github.com/farhand/farhand/internal/bytesize"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
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
			return []agent.Tool{s.reader(), s.writer(), s.editor()}
		},
	}
}

// session is the common state of the tools of one agent session.
type session struct {
	cfg       Config
	turns     *turns
	workspace agent.Workspace
}

// fileTool returns a tool whose argument path names a file of the workspace.
func fileTool[In any](
	path func(In) string, run func(context.Context, In, place) (registry.Result, error), spec registry.ToolSpec,
) agent.Tool {
	return localtool.Tool[In]{
		Is: spec,
		Check: func(in In) error {
			_, err := parsePath(path(in))
			return err
		},
		Run: func(ctx context.Context, in In) (res registry.Result, err error) {
			p, err := parsePath(path(in))
			if err == nil {
				res, err = run(ctx, in, p)
			}
			if err != nil {
				return failed(path(in), err)
			}
			return res, nil
		},
	}
}

// open opens the workspace. The caller closes root.
func (s session) open(ctx context.Context) (root *os.Root, w sandbox.Workspace, err error) {
	if s.workspace == nil {
		return nil, w, refuse("There is no workspace here: the tool needs a gateway " +
			"with workspaces.")
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
		r = refusal(fmt.Sprintf("%q cannot be opened: the workspace's user has no permission.", path))
	case noRoom(err):
		r = refusal(fmt.Sprintf("There is no space for %q: the disk or the quota is full. Nothing was changed.",
			path))
	default:
		return registry.Result{}, err
	}
	return localtool.Failed(string(r)), nil
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
		return errors.New("must be a whole number")
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
		return refuse("The workspace is full: its files have %s, and at most %s are allowed. Free space first.",
			bytesize.Format(uint64(used.Bytes)), bytesize.Format(uint64(w.MaxBytes)))
	case w.MaxFiles > 0 && used.Files+files > w.MaxFiles:
		return refuse("The workspace is full: it has %d files and folders, and at most %d are allowed. Remove "+
			"some first.", used.Files, w.MaxFiles)
	}
	if err := used.OverShare(w, size); err != nil {
		return refuse("The workspace takes no more files: %v.", err)
	}
	return nil
}

// walker descends the folders of a path.
type walker struct {
	w      sandbox.Workspace
	root   *os.Root
	create int // maximum number of folders to create; zero: none

	made []string // relative to root, in order of creation
}

// parent opens the folder of a path. It follows no link, not even one that is created meanwhile. The caller closes the
// folder.
func (k *walker) parent(p place) (folder *os.Root, err error) {
	if folder, err = k.root.OpenRoot("."); err != nil {
		return nil, err
	}
	for i, name := range p.folders {
		next, err := k.down(folder, place{p.folders[:i], name})
		_ = folder.Close()
		if err != nil {
			return nil, err
		}
		folder = next
	}
	return folder, nil
}

// down opens a folder inside another. It creates it if needed and permitted.
func (k *walker) down(folder *os.Root, p place) (*os.Root, error) {
	before, err := folder.Lstat(p.name)
	if errors.Is(err, fs.ErrNotExist) && k.create > 0 {
		before, err = k.make(folder, p)
	}
	switch {
	case err != nil:
		return nil, err
	case before.Mode()&fs.ModeSymlink != 0:
		return nil, refuse("%q is a symbolic link. Links are not followed; give the path of its target.", p)
	case !before.IsDir():
		return nil, refuse("%q is not a folder.", p)
	}
	next, err := folder.OpenRoot(p.name)
	if err != nil {
		return nil, raced(err, p)
	}
	opened, err := next.Stat(".")
	switch {
	case err != nil:
	case !os.SameFile(before, opened):
		err = changed(p)
	case !owned(opened, k.w):
		err = foreign(p)
	default:
		return next, nil
	}
	return nil, errors.Join(err, next.Close())
}

// make creates a folder owned by the workspace's user.
func (k *walker) make(folder *os.Root, p place) (fs.FileInfo, error) {
	if len(k.made) == k.create {
		return nil, refuse("%q needs too many new folders: a call creates at most %d.", p, k.create)
	}
	switch err := folder.Mkdir(p.name, 0o700); {
	case errors.Is(err, fs.ErrExist): // it was created concurrently
		info, err := folder.Lstat(p.name)
		return info, raced(err, p)
	case err != nil:
		return nil, err
	}
	k.made = append(k.made, p.String())
	f, err := openFolder(folder, p.name)
	if err != nil {
		return nil, raced(err, p)
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = giveTo(f, k.w)
	}
	return info, err
}

// undo removes the created folders that are empty.
func (k *walker) undo() {
	for _, path := range slices.Backward(k.made) {
		_ = k.root.Remove(path)
	}
}

// raced converts the error of an open after a successful check: the file was replaced by a link, or removed.
func raced(err error, p place) error {
	if err == nil {
		return nil
	}
	code, ofSystem := errors.AsType[syscall.Errno](err)
	if !ofSystem || code == syscall.ELOOP || code == syscall.ENOTDIR || code == syscall.ENOENT {
		return changed(p)
	}
	return err
}

func changed(p place) error {
	return refuse("%q changed during the call. Read it and try again.", p)
}

func foreign(p place) error { return refuse("%q is not owned by the workspace's user.", p) }

const (
	maxPath = 4095 // bytes; the limit of Linux and most other systems
	maxName = 255

	// tempPrefix is the name prefix of temporary files. Callers may not use such names.
	tempPrefix = ".farhand-"
)

// place is a valid path in a workspace.
type place struct {
	folders []string
	name    string
}

// String returns the normalized path.
func (p place) String() string {
	return strings.Join(append(p.folders[:len(p.folders):len(p.folders)], p.name), "/")
}

// parsePath parses and checks a path. It accepts only plain relative paths, because any other form could name a
// different file than the one shown to a person for approval.
func parsePath(path string) (p place, err error) {
	switch {
	case path == "":
		return p, refuse("The path is empty. Give a path relative to the workspace, such as notes/today.md.")
	case len(path) > maxPath:
		return p, refuse("The path has %d bytes; at most %d are allowed.", len(path), maxPath)
	case !utf8.ValidString(path), strings.ContainsFunc(path, unicode.IsControl), textsafe.Hides(path):
		return p, refuse("The path has invisible characters, such as controls. Remove them.")
	case strings.Contains(path, `\`):
		return p, refuse(`The path has a backslash. Separate folders with "/".`)
	case path[0] == '/':
		return p, refuse("The path %q is absolute. Give it relative to the workspace, such as notes/today.md.", path)
	case path == "~" || strings.HasPrefix(path, "~/"):
		return p, refuse("There is no home folder here. Give a path relative to the workspace, such as notes/today.md.")
	case strings.HasSuffix(path, "/"):
		return p, refuse("The path %q is that of a folder. Give that of a file.", path)
	}
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "" || name == ".":
		case name == "..":
			return p, refuse("The path %q has \"..\". Write it without.", path)
		case len(name) > maxName:
			return p, refuse("The path has a name of %d bytes; at most %d are allowed.", len(name), maxName)
		case len(name) >= len(tempPrefix) && strings.EqualFold(name[:len(tempPrefix)], tempPrefix):
			return p, refuse("Names that begin with %q are reserved for the gateway.", tempPrefix)
		default:
			p.folders = append(p.folders, name)
		}
	}
	last := len(p.folders) - 1
	if last < 0 || strings.HasSuffix(path, "/.") {
		return p, refuse("The path %q is that of a folder. Give that of a file.", path)
	}
	p.folders, p.name = p.folders[:last], p.folders[last]
	return p, nil
}
