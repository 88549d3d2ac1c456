package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/pause"
)

// DefaultInterval is how often a policy file is read.
const DefaultInterval = time.Second

// File keeps a Policy up to date with its file. It polls the file instead of watching it. Polling works on any file
// system, also for a symbolic link that Kubernetes points to another directory. It is safe for concurrent use.
type File struct {
	path   string
	policy *Policy
	log    *slog.Logger
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	noted  func(digest string, err error)
	text   []byte // the last text read, valid or not
	status Status
}

// Status is the state of a policy file.
type Status struct {
	Err     error // why the current file is not in force; nil if it is
	Reloads int   // files put in force since the start
	Refused int   // files rejected since the start
}

// Open returns the policy of a file, and a File that keeps it up to date until Close. Open fails if the file is
// unreadable or invalid. Later, such a file leaves the policy unchanged and is logged once. o.File is ignored.
func Open(path string, o Options, interval time.Duration, log *slog.Logger) (*Policy, *File, error) {
	text, err := ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	o.File = text
	p, err := New(o)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &File{path: path, policy: p, log: log, stop: stop, text: text}
	f.done.Go(func() {
		for pause.For(ctx, interval) == nil {
			f.Reload()
		}
	})
	return p, f, nil
}

// ReadFile reads a policy file, at most MaxFile+1 bytes of it: New rejects longer files.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) == 0 { // also while it is being written
		return nil, errors.New(path + ": the file is empty")
	}
	return text, nil
}

// Reload reads the file now.
func (f *File) Reload() {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := ReadFile(f.path)
	switch {
	case err != nil:
		f.refuseLocked(nil, err)
		return
	case bytes.Equal(text, f.text):
		return
	}
	if err := f.policy.Replace(text); err != nil {
		f.refuseLocked(text, fmt.Errorf("%s: %w", f.path, err))
		return
	}
	f.text, f.status.Err = text, nil
	f.status.Reloads++
	f.noteLocked(nil)
	f.log.Info("policy file reloaded", "file", f.path, "digest", f.policy.Digest())
}

// refuseLocked records why a file is not in force. text is nil if the file cannot be read.
func (f *File) refuseLocked(text []byte, err error) {
	again := text == nil && f.text == nil && f.status.Err != nil && f.status.Err.Error() == err.Error()
	f.text, f.status.Err = text, err
	if again {
		return
	}
	f.status.Refused++
	f.noteLocked(err)
	f.log.Error("policy file not reloaded; the previous policy stays in force", "file", f.path, "error", err)
}

// NoteWith sets a callback for each further file: with the digest if it is put in force, with the error if it is
// rejected. note must not call the File.
func (f *File) NoteWith(note func(digest string, err error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noted = note
}

func (f *File) noteLocked(err error) {
	if f.noted != nil {
		f.noted(f.policy.Digest(), err)
	}
}

// Status returns the state of the file.
func (f *File) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Close stops reading the file. The policy stays unchanged.
func (f *File) Close() {
	f.stop()
	f.done.Wait()
}
