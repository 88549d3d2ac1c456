package desktop

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/ws/client"
)

const (
	maxListed  = 1000      // entries of a folder
	maxText    = 256 << 10 // bytes of a text as an output
	maxWritten = 256 << 10 // characters
	noFolder   = "no folder is shared: set --files"
)

type filed struct{ Path, Text string }

// place returns a path below the shared folder. os.Root keeps links from leaving it.
func (f filed) place() (string, error) {
	name := filepath.FromSlash(path.Clean(cmp.Or(f.Path, ".")))
	if !filepath.IsLocal(name) {
		return "", errors.New("the path must be relative, and stay in the shared folder")
	}
	return name, nil
}

// shared returns a way to use the shared folder.
func (d *Desktop) shared(use func(ctx context.Context, call client.Call, name string, args filed) (any, error)) way {
	if d.folder == nil {
		return lacks(noFolder)
	}
	return by(d.cfg.Folder, func(ctx context.Context, call client.Call, args filed) (any, error) {
		name, err := args.place()
		if err != nil {
			return nil, err
		}
		return use(ctx, call, name, args)
	})
}

// entry is a file or a folder in a list.
type entry struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"` // file, folder, link or other
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
}

type listing struct {
	Entries []entry `json:"entries"`
	Cut     bool    `json:"cut"` // there are more
}

func (d *Desktop) fileListWay(context.Context) way {
	return d.shared(func(_ context.Context, _ client.Call, name string, _ filed) (any, error) {
		folder, err := d.folder.OpenFile(name, os.O_RDONLY|noWait, 0)
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		infos, err := folder.Readdir(maxListed + 1)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		l := listing{Entries: []entry{}, Cut: len(infos) > maxListed}
		for _, info := range infos[:min(len(infos), maxListed)] {
			l.Entries = append(l.Entries, entry{info.Name(), kind(info.Mode()), info.Size(), info.ModTime().UTC()})
		}
		slices.SortFunc(l.Entries, func(a, b entry) int { return cmp.Compare(a.Name, b.Name) })
		return l, nil
	})
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeSymlink != 0:
		return "link"
	}
	return "other"
}

func (d *Desktop) fileReadWay(context.Context) way {
	return d.shared(func(ctx context.Context, call client.Call, name string, _ filed) (any, error) {
		file, err := d.folder.OpenFile(name, os.O_RDONLY|noWait, 0)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		info, err := file.Stat()
		switch {
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s is not a file", name)
		case info.Size() > maxMedia:
			return nil, fmt.Errorf("%s has more than %d bytes", name, maxMedia)
		}
		return read(ctx, call, name, file, info.Size())
	})
}

// read returns a file as the result of a call: a text as its output, other content as a part. A large file goes to the
// gateway as it is read.
func read(ctx context.Context, call client.Call, name string, file io.Reader, size int64) (any, error) {
	content := client.Part{Type: client.PartFile, MIMEType: mimeOf(name), Name: filepath.Base(name)}
	if strings.HasPrefix(content.MIMEType, "image/") {
		content.Type = client.PartImage // models see it
	}
	if size > maxInline {
		content, err := call.Upload(ctx, content, size, file)
		if err != nil {
			return nil, err
		}
		return client.Result{Output: fmt.Sprintf("A file of %d bytes.", size), Parts: []client.Part{content}}, nil
	}
	data, err := io.ReadAll(io.LimitReader(file, maxInline))
	if err != nil {
		return nil, err
	}
	if len(data) <= maxText && utf8.Valid(data) {
		return string(data), nil
	}
	content.Data = data
	return client.Result{Output: fmt.Sprintf("A file of %d bytes.", len(data)), Parts: []client.Part{content}}, nil
}

// mimeOf returns the type of a file by its name, without parameters.
func mimeOf(name string) string {
	kind, _, err := mime.ParseMediaType(mime.TypeByExtension(filepath.Ext(name)))
	if err != nil {
		return "application/octet-stream"
	}
	return kind
}

func (d *Desktop) fileWriteWay(context.Context) way {
	return d.shared(func(ctx context.Context, _ client.Call, name string, args filed) (any, error) {
		question := fmt.Sprintf("May an agent write this file in the folder that you share?\n%s (%d bytes)",
			oneLine(strconv.Quote(name)), len(args.Text))
		if _, err := d.folder.Lstat(name); err == nil {
			question += "\nIt replaces the file that is there."
		}
		if err := d.permit(ctx, "file_write", question, true); err != nil {
			return nil, err
		}
		if err := d.replace(name, args.Text); err != nil {
			return nil, err
		}
		return map[string]int{"bytes": len(args.Text)}, nil
	})
}

// replace puts a text in place of a file. Its readers see the former text or the new one. It keeps the file's
// permissions; a new file is this user's only.
func (d *Desktop) replace(name, text string) (err error) {
	mode := fs.FileMode(0o600)
	if info, err := d.folder.Lstat(name); err == nil {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a file", name)
		}
		mode = info.Mode().Perm()
	}
	folder := filepath.Dir(name)
	if err := d.folder.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	fresh := filepath.Join(folder, ".farhand-"+rand.Text())
	file, err := d.folder.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, strings.NewReader(text))
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err == nil {
		err = d.folder.Rename(fresh, name)
	}
	if err != nil {
		return errors.Join(err, d.folder.Remove(fresh))
	}
	return nil
}
