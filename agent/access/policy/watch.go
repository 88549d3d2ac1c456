package policy

import (
	"log/slog"
	"time"

	"github.com/farhand/farhand/internal/reload"
)

// DefaultInterval is how often a policy file is read.
const DefaultInterval = reload.DefaultInterval

// File keeps a Policy up to date with its file. It is safe for concurrent use.
type File struct {
	*reload.File
	policy *Policy
}

// Status is the state of a policy file.
type Status = reload.Status

// Open returns the policy of a file, and a File that keeps it up to date until Close. Open fails if the file is
// unreadable or invalid. Later, such a file leaves the policy unchanged and is logged once. o.File is ignored.
func Open(path string, o Options, interval time.Duration, log *slog.Logger) (*Policy, *File, error) {
	f := new(File)
	apply := func(text []byte) (err error) {
		if f.policy != nil {
			return f.policy.Replace(text)
		}
		o.File = text
		f.policy, err = New(o)
		return err
	}
	var err error
	f.File, err = reload.Open(reload.Config{
		Path: path, What: "policy file", Max: MaxFile, Interval: interval, Apply: apply, Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	return f.policy, f, nil
}

// ReadFile reads a policy file, at most MaxFile+1 bytes of it: New rejects longer files.
func ReadFile(path string) ([]byte, error) { return reload.Read(path, MaxFile) }

// NoteWith sets a callback for each further file: with the digest if it is put in force, with the error if it is
// rejected. note must not call the File.
func (f *File) NoteWith(note func(digest string, err error)) {
	f.File.NoteWith(func(err error) { note(f.policy.Digest(), err) })
}
