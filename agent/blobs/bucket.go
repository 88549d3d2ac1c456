package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// bucket keeps files by name. Names have no folders. It is safe for concurrent use.
type bucket interface {
	// put stores the bytes of body, all or none. size is how many there are.
	put(ctx context.Context, name string, size int64, body io.Reader) error
	// get opens a file. The caller closes it.
	get(ctx context.Context, name string) (io.ReadCloser, error)
	// remove removes a file. It is no error if there is none.
	remove(ctx context.Context, name string) error
	// before returns up to most names that sort before end.
	before(ctx context.Context, end string, most int) ([]string, error)
	close() error
}

// openBucket opens the bucket of a URL. A folder is made if it is not there; an S3 server is not asked.
func openBucket(raw string) (bucket, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errForm
	}
	switch u.Scheme {
	case "file":
		return openFolder(u)
	case "s3":
		return openS3(u)
	}
	return nil, errForm
}

var errForm = errors.New("must look like file:///folder or s3://bucket?region=eu-central-1")

// CheckURL reports why no bucket can have a URL, without making a folder, asking a server, or repeating the URL, which
// may hold a key. Whether a folder may be written, and a server answers, is found out by Open.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return errForm
	}
	switch u.Scheme {
	case "file":
		return checkFolder(u)
	case "s3":
		_, err := openS3(u)
		return err
	}
	return errForm
}

// Probe reports why files cannot be kept in a bucket. A folder is made.
func Probe(ctx context.Context, raw string) error {
	b, err := openBucket(raw)
	if err != nil {
		return err
	}
	_, err = b.before(ctx, "", 1)
	return errors.Join(err, b.close())
}

// folder is a bucket in the file system. What is being written has another name, which the sweep finds too if this
// process dies.
type folder struct{ root *os.Root }

// unfinished ends the names of files that are being written.
const unfinished = ".tmp"

// folderPath returns the path of a folder's URL.
func folderPath(u *url.URL) (string, error) {
	if u.Host != "" && u.Host != "." && u.Host != "localhost" || u.Path == "" {
		return "", errForm
	}
	for name := range u.Query() {
		if !slices.Contains([]string{"create_dir", "no_tmp_dir", "metadata"}, name) { // which are what it does anyway
			return "", fmt.Errorf("the parameter %q of a folder is not known", name)
		}
	}
	if u.Host == "." {
		return filepath.FromSlash("." + u.Path), nil
	}
	return filepath.FromSlash(u.Path), nil
}

// checkFolder reports why there can be no folder: what is there of the way to it must be folders.
func checkFolder(u *url.URL) error {
	dir, err := folderPath(u)
	if err != nil {
		return err
	}
	for dir = filepath.ToSlash(dir); ; dir = path.Dir(dir) {
		info, err := os.Stat(filepath.FromSlash(dir))
		switch {
		case err == nil && info.IsDir():
			return nil
		case !errors.Is(err, fs.ErrNotExist) || path.Dir(dir) == dir:
			return errors.New("names no folder that can be made")
		}
	}
}

func openFolder(u *url.URL) (bucket, error) {
	dir, err := folderPath(u)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return folder{root}, nil
}

func (f folder) put(_ context.Context, name string, _ int64, body io.Reader) (err error) {
	file, err := f.root.OpenFile(name+unfinished, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.root.Remove(name + unfinished)
		}
	}()
	_, err = io.Copy(file, body)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return f.root.Rename(name+unfinished, name)
}

func (f folder) get(_ context.Context, name string) (io.ReadCloser, error) { return f.root.Open(name) }

func (f folder) remove(_ context.Context, name string) error {
	if err := f.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// entriesAtATime is how many names of a folder are in memory at a time.
const entriesAtATime = 1024

func (f folder) before(ctx context.Context, end string, most int) (names []string, err error) {
	dir, err := f.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for ctx.Err() == nil {
		entries, err := dir.ReadDir(entriesAtATime)
		for _, e := range entries {
			if e.Name() < end && !e.IsDir() {
				if names = append(names, e.Name()); len(names) == most {
					return names, nil
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, context.Cause(ctx)
}

func (f folder) close() error { return f.root.Close() }
