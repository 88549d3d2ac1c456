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
)

// DefaultInterval is how often a policy file is looked at.
const DefaultInterval = time.Second

// File keeps a Policy as its file is. The file is read again and again, and not watched: that works wherever the file
// is, also as a symbolic link that Kubernetes turns to another directory. It is safe for concurrent use.
type File struct {
	path   string
	policy *Policy
	log    *slog.Logger
	stop   context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	noted  func(digest string, err error)
	text   []byte // as it was read last, good or bad
	status Status
}

// Status says how a policy file fares.
type Status struct {
	Err     error // why the file that is there now is not in force; nil if it is
	Reloads int   // files that were put in force since the start
	Refused int   // files that were not
}

// Open returns the policy of a file, and what keeps it as the file is until Close. An unreadable or bad file is an
// error now; later it leaves the policy as it was, and is logged once. o.File is ignored.
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
	f := &File{path: path, policy: p, log: log, stop: stop, done: make(chan struct{}), text: text}
	go f.watch(ctx, interval)
	return p, f, nil
}

// ReadFile reads a policy file of at most MaxFile bytes.
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

// watch ends with Close.
func (f *File) watch(ctx context.Context, interval time.Duration) {
	defer close(f.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.Reload()
		}
	}
}

// Reload looks at the file now.
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
	f.log.Info("the policy file was read anew", "file", f.path, "digest", f.policy.Digest())
}

// refuseLocked notes why a file is not in force. text is nil for one that cannot be read.
func (f *File) refuseLocked(text []byte, err error) {
	again := text == nil && f.text == nil && f.status.Err != nil && f.status.Err.Error() == err.Error()
	f.text, f.status.Err = text, err
	if again {
		return
	}
	f.status.Refused++
	f.noteLocked(err)
	f.log.Error("the policy file cannot be used; the policy stays as it was", "file", f.path, "error", err)
}

// NoteWith has note called for every file that is put in force from now on, with the digest of the policy, and for
// every one that is not, with the reason. note must not call the File.
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

// Status returns how the file fares.
func (f *File) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Close stops looking at the file. The policy stays as it is.
func (f *File) Close() {
	f.stop()
	<-f.done
}
