// Package reload keeps settings up to date with their file.
package reload

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

// DefaultInterval is how often a file is read.
const DefaultInterval = time.Second

// Config says what a File reads and does. All fields are required.
type Config struct {
	Path     string
	What     string // the kind of file, for the log
	Max      int    // bytes; Apply gets at most one more
	Interval time.Duration
	Apply    func(text []byte) error // puts a text in force, or changes nothing and returns why not
	Log      *slog.Logger
}

// File applies a file each time its text changes. It polls the file instead of watching it. Polling works on any file
// system, also for a symbolic link that Kubernetes points to another directory. It is safe for concurrent use.
type File struct {
	cfg  Config
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	noted  func(err error)
	text   []byte // the last text read, valid or not
	status Status
}

// Status is the state of a file.
type Status struct {
	Err     error // why the current file is not in force; nil if it is
	Reloads int   // files put in force since the start
	Refused int   // files rejected since the start
}

// Open applies a file, and further ones until Close. It fails if the file is unreadable or Apply rejects it. Later,
// such a file leaves what is in force unchanged and is logged once.
func Open(cfg Config) (*File, error) {
	text, err := Read(cfg.Path, cfg.Max)
	if err != nil {
		return nil, err
	}
	if err := cfg.Apply(text); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Path, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &File{cfg: cfg, stop: stop, text: text}
	f.done.Go(func() {
		for pause.For(ctx, cfg.Interval) == nil {
			f.Reload()
		}
	})
	return f, nil
}

// Read reads a file, at most most+1 bytes of it.
func Read(path string, most int) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(file, int64(most)+1))
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
	text, err := Read(f.cfg.Path, f.cfg.Max)
	switch {
	case err != nil:
		f.refuseLocked(nil, err)
		return
	case bytes.Equal(text, f.text):
		return
	}
	if err := f.cfg.Apply(text); err != nil {
		f.refuseLocked(text, fmt.Errorf("%s: %w", f.cfg.Path, err))
		return
	}
	f.text, f.status.Err = text, nil
	f.status.Reloads++
	f.noteLocked(nil)
	f.cfg.Log.Info(f.cfg.What+" reloaded", "file", f.cfg.Path)
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
	f.cfg.Log.Error(f.cfg.What+" not reloaded; the previous one stays in force", "file", f.cfg.Path, "error", err)
}

// NoteWith sets a callback for each further file: with nil if it is put in force, with the error if it is rejected.
// note must not call the File.
func (f *File) NoteWith(note func(err error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noted = note
}

func (f *File) noteLocked(err error) {
	if f.noted != nil {
		f.noted(err)
	}
}

// Status returns the state of the file.
func (f *File) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Close stops reading the file. What is in force stays.
func (f *File) Close() {
	f.stop()
	f.done.Wait()
}
