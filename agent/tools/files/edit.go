package files

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/tools/internal/localtool"
	"github.com/farhand/farhand/registry"
)

const (
	maxEdits     = 100
	maxDiff      = 64 << 10 // bytes of the returned diff
	maxDiffLines = 200_000  // of a file with a diff: each line costs more memory than its text
)

type editArgs struct {
	Path  string `json:"path"`
	Edits []edit `json:"edits"`
}

// edit replaces one passage of a file.
type edit struct {
	Old string `json:"old"`
	New string `json:"new"`
}

type editAnswer struct {
	Path  string `json:"path"`
	Edits int    `json:"edits"`
	Bytes int    `json:"bytes"` // size of the file after the edits
	Diff  string `json:"diff"`
}

// editor returns the tool edit.
func (s session) editor() agent.Tool {
	return fileTool(func(in editArgs) string { return in.Path }, s.edit, registry.ToolSpec{
		Name: "edit",
		Description: "Edit a file of the workspace: replaces each old text, which must occur exactly once in the " +
			"current file, with the new one. Makes all edits or none. Returns a unified diff.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"Path to the file to edit, relative to the workspace"},` +
			`"edits":{"type":"array","minItems":1,"maxItems":100,"description":"Replacements that do not overlap",` +
			`"items":{"type":"object","properties":{` +
			`"old":{"type":"string","minLength":1,"description":"Text to replace, with enough context to be ` +
			`unique"},"new":{"type":"string","description":"Text to put in its place"}},` +
			`"required":["old","new"],"additionalProperties":false}}},` +
			`"required":["path","edits"],"additionalProperties":false}`),
		Annotations: &registry.Annotations{ReadOnlyHint: new(false), DestructiveHint: new(true)},
	})
}

func (s session) edit(ctx context.Context, in editArgs, p place) (res registry.Result, err error) {
	if len(in.Edits) == 0 || len(in.Edits) > maxEdits {
		return res, refuse("Give 1 to %d edits.", maxEdits)
	}
	root, w, err := s.open(ctx)
	if err != nil {
		return res, err
	}
	defer root.Close() //nolint:errcheck // what was written was closed before
	done, err := s.turns.acquire(ctx, w.ID, p)
	if err != nil {
		return res, err
	}
	defer done()
	folder, err := (&walker{w: w, root: root}).parent(p)
	if err != nil {
		return res, err
	}
	defer folder.Close() //nolint:errcheck // what was written was closed before
	f, was, err := openRegular(folder, p, w)
	if err != nil {
		return res, err
	}
	most := min(s.maxBytes(ctx), maxEdited)
	before, err := textOf(f, p, most)
	if err = errors.Join(err, f.Close()); err != nil {
		return res, err
	}
	after, diff, err := apply(ctx, p, before, in.Edits)
	if err != nil {
		return res, err
	}
	if int64(len(after)) > most {
		return res, tooLarge(p, int64(len(after)), most)
	}
	if err := replace(ctx, folder, p, w, []byte(after), was); err != nil {
		return res, err
	}
	return localtool.Result(diff, editAnswer{Path: p.String(), Edits: len(in.Edits), Bytes: len(after), Diff: diff})
}

// textOf reads a whole text file, of at most most bytes.
func textOf(f *os.File, p place, most int64) (string, error) {
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return "", err
	case int64(len(text)) > most:
		return "", tooLarge(p, int64(len(text)), most)
	case !utf8.Valid(text) || strings.IndexByte(string(text), 0) >= 0:
		return "", refuse("%q is a binary file; only text can be edited.", p)
	}
	return string(text), nil
}

// apply returns the text with all edits applied, and the diff. Each edit refers to the original text.
func apply(ctx context.Context, p place, text string, edits []edit) (after, diff string, err error) {
	crlf := strings.Contains(text, "\r\n") && strings.Count(text, "\n") == strings.Count(text, "\r\n")
	found := make([]udiff.Edit, len(edits))
	for i, e := range edits {
		if ctx.Err() != nil {
			return "", "", context.Cause(ctx)
		}
		if crlf {
			e.Old, e.New = withCRLF(e.Old), withCRLF(e.New)
		}
		if found[i], err = e.find(i+1, text); err != nil {
			return "", "", err
		}
	}
	udiff.SortEdits(found)
	for i := 1; i < len(found); i++ {
		if found[i].Start < found[i-1].End {
			return "", "", refuse("Two edits overlap. Combine them, or use shorter old texts.")
		}
	}
	if after, err = udiff.Apply(text, found); err != nil {
		return "", "", err
	}
	diff, err = diffOf(p, text, found)
	return after, diff, err
}

// withCRLF converts the line ends of a text to CRLF. The model may have seen plain line feeds of such a file.
func withCRLF(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
}

// find finds the single place that an edit replaces.
func (e edit) find(number int, text string) (udiff.Edit, error) {
	if e.Old == "" {
		return udiff.Edit{}, refuse("Edit %d: old is empty. Give the text to replace.", number)
	}
	if e.Old == e.New {
		return udiff.Edit{}, refuse("Edit %d: old and new are the same.", number)
	}
	at := strings.Index(text, e.Old)
	switch {
	case at < 0:
		return udiff.Edit{}, refuse("Edit %d: its old text does not occur in the file. Read the file and copy the "+
			"text exactly, with all spaces. Nothing was changed.", number)
	case strings.Contains(text[at+1:], e.Old):
		return udiff.Edit{}, refuse("Edit %d: its old text occurs more than once in the file. Include more of "+
			"the text around it. Nothing was changed.", number)
	}
	return udiff.Edit{Start: at, End: at + len(e.Old), New: e.New}, nil
}

// diffOf returns a unified diff, truncated to maxDiff.
func diffOf(p place, text string, edits []udiff.Edit) (string, error) {
	if lines := strings.Count(text, "\n"); lines > maxDiffLines {
		return fmt.Sprintf("[%d edits made; a file of %d lines is too long for a diff]", len(edits), lines), nil
	}
	diff, err := udiff.ToUnified("a/"+p.String(), "b/"+p.String(), text, edits, udiff.DefaultContextLines)
	if err != nil || len(diff) <= maxDiff {
		return diff, err
	}
	kept := diff[:strings.LastIndexByte(diff[:maxDiff], '\n')+1]
	return strings.ToValidUTF8(kept, "") + fmt.Sprintf("[%d more bytes of the diff were cut]", len(diff)-len(kept)), nil
}

const (
	// staleAfter is the age at which a temporary file is abandoned: its writer was killed.
	staleAfter = 5 * time.Minute
	// maxSwept limits how many names of a folder are checked for such files.
	maxSwept = 4096
)

// replace atomically replaces a file by one with this content. was is the current file, or nil. Concurrent readers see
// the old or the new file, also after a crash.
func replace(
	ctx context.Context, folder *os.Root, p place, w sandbox.Workspace, content []byte, was fs.FileInfo,
) (err error) {
	sweep(folder)
	if err := checkSpace(ctx, w, int64(len(content)), was); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if was != nil {
		mode = was.Mode().Perm()
	}
	temp := tempPrefix + strings.ToLower(rand.Text()) + ".tmp"
	if err := fill(folder, temp, w, content, mode); err != nil {
		return errors.Join(err, removed(folder, temp))
	}
	if err = context.Cause(ctx); err == nil {
		err = unchanged(folder, p, was)
	}
	if err == nil {
		err = folder.Rename(temp, p.name)
	}
	if err != nil {
		return errors.Join(err, removed(folder, temp))
	}
	return nil
}

// fill writes a new file and syncs it to disk.
func fill(folder *os.Root, name string, w sandbox.Workspace, content []byte, mode fs.FileMode) error {
	f, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = giveTo(f, w)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func removed(folder *os.Root, name string) error {
	if err := folder.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unchanged returns an error if the file has changed since was was read.
func unchanged(folder *os.Root, p place, was fs.FileInfo) error {
	now, err := folder.Lstat(p.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if was != nil {
			return changed(p)
		}
		return nil
	case err != nil:
		return err
	case was == nil, !os.SameFile(was, now), !was.ModTime().Equal(now.ModTime()), was.Size() != now.Size():
		return changed(p)
	}
	return nil
}

// sweep removes temporary files in a folder that a killed pod has left.
func sweep(folder *os.Root) {
	f, err := folder.Open(".")
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // it was only read
	entries, _ := f.ReadDir(maxSwept)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) || !e.Type().IsRegular() {
			continue
		}
		if info, err := folder.Lstat(e.Name()); err == nil && time.Since(info.ModTime()) > staleAfter {
			_ = folder.Remove(e.Name())
		}
	}
}

// defaultMaxFiles is the maximum number of files and folders that one call creates, unless policy sets a limit.
const defaultMaxFiles = 100

type writeArgs struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

type writeAnswer struct {
	Path    string   `json:"path"`
	Bytes   int      `json:"bytes"`
	Folders []string `json:"folders"` // newly created folders
}

// writer returns the tool write.
func (s session) writer() agent.Tool {
	return fileTool(func(in writeArgs) string { return in.Path }, s.write, registry.ToolSpec{
		Name: "write",
		Description: "Write content to a file of the workspace: creates the file and its folders, or overwrites " +
			"the file.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"Path to the file to write, relative to the workspace"},` +
			`"content":{"type":"string","description":"Content to write to the file"}},` +
			`"required":["path","content"],"additionalProperties":false}`),
		Annotations: &registry.Annotations{
			ReadOnlyHint: new(false), DestructiveHint: new(true), IdempotentHint: new(true),
		},
	})
}

func (s session) write(ctx context.Context, in writeArgs, p place) (res registry.Result, err error) {
	if most := s.maxBytes(ctx); int64(len(in.Content)) > most {
		return res, tooLarge(p, int64(len(in.Content)), most)
	}
	root, w, err := s.open(ctx)
	if err != nil {
		return res, err
	}
	defer root.Close() //nolint:errcheck // what was written was closed before
	done, err := s.turns.acquire(ctx, w.ID, p)
	if err != nil {
		return res, err
	}
	defer done()
	k := &walker{w: w, root: root, create: cmp.Or(policy.ResourcesOf(ctx).MaxFiles, defaultMaxFiles) - 1}
	folder, err := k.parent(p)
	if err == nil {
		err = errors.Join(writeIn(ctx, folder, p, w, in.Content), folder.Close())
	}
	if err != nil {
		k.undo()
		return res, err
	}
	text := fmt.Sprintf("Wrote %d bytes to %s.", len(in.Content), p)
	if len(k.made) > 0 {
		text += " Created the folders " + strings.Join(k.made, ", ") + "."
	}
	return localtool.Result(text,
		writeAnswer{Path: p.String(), Bytes: len(in.Content), Folders: append([]string{}, k.made...)})
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
		return refuse("%q is a symbolic link. Links are not followed; give the path of its target.", p)
	case mode.IsDir():
		return refuse("%q is a folder. Give the path of a file.", p)
	case !mode.IsRegular():
		return refuse("%q is not a regular file but a device, a pipe or a socket.", p)
	case names(info) != 1:
		return refuse("%q has several names (hard links); some may be outside the workspace. Copy it first.", p)
	case !owned(info, w):
		return foreign(p)
	}
	return nil
}
