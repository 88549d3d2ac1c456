package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/tools/internal/answer"
	"github.com/farhand/farhand/registry"
)

// defaultMaxFiles is the maximum number of files and folders that one call creates, unless policy sets a limit.
const defaultMaxFiles = 100

// writer is the tool write.
type writer struct{ session }

type writeArgs struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

type writeAnswer struct {
	Path    string   `json:"path"`
	Bytes   int      `json:"bytes"`
	Folders []string `json:"folders"` // newly created folders
}

// Spec implements agent.Tool.
func (writer) Spec() registry.ToolSpec {
	no, yes := false, true
	return registry.ToolSpec{
		Name: "write",
		Description: "Write content to a file of the workspace: creates it, and the folders it is in, or overwrites " +
			"what was there.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"Path to the file to write, relative to the workspace"},` +
			`"content":{"type":"string","description":"Content to write to the file"}},` +
			`"required":["path","content"],"additionalProperties":false}`),
		Annotations: &registry.Annotations{ReadOnlyHint: &no, DestructiveHint: &yes, IdempotentHint: &yes},
	}
}

// Validate implements agent.ArgsValidator.
func (writer) Validate(_ context.Context, args json.RawMessage) error {
	var in writeArgs
	if err := json.Unmarshal(args, &in); err != nil {
		return err
	}
	_, err := parsePath(in.Path)
	return err
}

// Execute implements agent.Tool.
func (t writer) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	var in writeArgs
	if err := json.Unmarshal(args, &in); err != nil {
		return registry.Result{}, err
	}
	said, err := t.write(ctx, in)
	if err != nil {
		return failed(in.Path, err)
	}
	text := fmt.Sprintf("Wrote %d bytes to %s.", said.Bytes, said.Path)
	if len(said.Folders) > 0 {
		text += " Made the folders " + strings.Join(said.Folders, ", ") + "."
	}
	return answer.With(text, said)
}

func (t writer) write(ctx context.Context, in writeArgs) (said writeAnswer, err error) {
	p, err := parsePath(in.Path)
	if err != nil {
		return said, err
	}
	if most := t.maxBytes(ctx); int64(len(in.Content)) > most {
		return said, tooLarge(p, int64(len(in.Content)), most)
	}
	root, w, err := t.open(ctx)
	if err != nil {
		return said, err
	}
	defer root.Close() //nolint:errcheck // what was written was closed before
	done, err := t.turns.acquire(ctx, w.ID, p)
	if err != nil {
		return said, err
	}
	defer done()
	k := &walker{w: w, root: root, create: cmp.Or(policy.ResourcesOf(ctx).MaxFiles, defaultMaxFiles) - 1}
	folder, err := k.parent(p)
	if err == nil {
		err = errors.Join(writeIn(ctx, folder, p, w, in.Content), folder.Close())
	}
	if err != nil {
		k.undo()
		return said, err
	}
	return writeAnswer{Path: p.String(), Bytes: len(in.Content), Folders: append([]string{}, k.made...)}, nil
}

// writeIn writes a file in a folder.
func writeIn(ctx context.Context, folder *os.Root, p place, w sandbox.Workspace, content string) error {
	was, err := regular(folder, p, w)
	if errors.Is(err, fs.ErrNotExist) {
		was, err = nil, nil
	}
	if err != nil {
		return err
	}
	return replace(ctx, folder, p, w, []byte(content), was)
}

// openRegular opens a regular file for reading. It does not open other files; if one is put in its place meanwhile, it
// is opened without blocking, and closed again.
func openRegular(folder *os.Root, p place, w sandbox.Workspace) (*os.File, fs.FileInfo, error) {
	before, err := regular(folder, p, w)
	if err != nil {
		return nil, nil, err
	}
	f, err := folder.OpenFile(p.name, readFlags, 0)
	if err != nil {
		return nil, nil, raced(err, p)
	}
	opened, err := f.Stat()
	if err == nil {
		err = checkRegular(opened, p, w)
	}
	if err == nil && !os.SameFile(before, opened) {
		err = changed(p)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, opened, nil
}

// regular checks a file without opening it.
func regular(folder *os.Root, p place, w sandbox.Workspace) (fs.FileInfo, error) {
	info, err := folder.Lstat(p.name)
	if err == nil {
		err = checkRegular(info, p, w)
	}
	return info, err
}

// checkRegular returns an error unless the file is regular, has a single name, and is owned by the workspace's user or
// this process.
func checkRegular(info fs.FileInfo, p place, w sandbox.Workspace) error {
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return refuse("%q is a symbolic link. Links are not followed; give the path it leads to.", p)
	case mode.IsDir():
		return refuse("%q is a folder. Give the path of a file.", p)
	case !mode.IsRegular():
		return refuse("%q is no regular file, but a device, a pipe or a socket.", p)
	case names(info) != 1:
		return refuse("%q is a file with several names (hard links), one of which may be outside. Copy it first.", p)
	case !owned(info, w):
		return foreign(p)
	}
	return nil
}
