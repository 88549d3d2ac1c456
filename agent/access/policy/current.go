package policy

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/reload"
	"github.com/farhand/farhand/registry"
)

// Current is the text of the rules in force.
type Current struct {
	File     []byte // the text of the policy file; nil: none. It must not be changed
	Digest   string // as Policy.Digest returns it
	Lists    Lists
	Defaults []DefaultRule // in the order of default.yaml
}

// DefaultRule is a rule of default.yaml.
type DefaultRule struct {
	ID    string
	About string // the comment above the rule
	Text  string // the rule in YAML
	State DefaultState
}

// DefaultState says whether a default rule is in force.
type DefaultState string

// The states.
const (
	DefaultInForce  DefaultState = "in_force"
	DefaultReplaced DefaultState = "replaced" // by a rule of the file
	DefaultOff      DefaultState = "off"      // by Options.Unconfirmed
)

// Current returns the text of the rules in force.
func (p *Policy) Current() Current {
	now := p.state.Load()
	written := now.rules.tools[:now.rules.written]
	following := now.rules.tools[now.rules.written:]
	current := Current{File: now.file, Digest: now.digest, Lists: p.options.Lists, Defaults: defaultRules()}
	for i := range current.Defaults {
		d := &current.Defaults[i]
		hasID := func(t toolRule) bool { return t.id == d.ID }
		switch {
		case slices.ContainsFunc(following, hasID):
			d.State = DefaultInForce
		case slices.ContainsFunc(written, hasID):
			d.State = DefaultReplaced
		default:
			d.State = DefaultOff
		}
	}
	return current
}

// defaultRules splits default.yaml, whose rules begin with "  - id: " and have their comment above them.
func defaultRules() (all []DefaultRule) {
	const rule, comment = "  - id: ", "  # "
	var about []string
	for line := range strings.Lines(string(defaults)) {
		switch {
		case strings.HasPrefix(line, comment):
			about = append(about, strings.TrimSpace(line[len(comment):]))
		case strings.HasPrefix(line, rule):
			all = append(all, DefaultRule{
				ID: strings.TrimSpace(line[len(rule):]), About: strings.Join(about, " "), Text: line[2:],
			})
			about = nil
		case len(all) > 0 && strings.TrimSpace(line) != "":
			all[len(all)-1].Text += line[2:]
		}
	}
	return all
}

// Declare returns the annotations that declare effects: read_only, destructive, open_world. No effect: nil.
func Declare(effects []string) (*registry.Annotations, error) {
	if len(effects) == 0 {
		return nil, nil
	}
	yes, a := true, new(registry.Annotations)
	for _, effect := range effects {
		switch effect {
		case "read_only":
			a.ReadOnlyHint = &yes
		case "destructive":
			a.DestructiveHint = &yes
		case "open_world":
			a.OpenWorldHint = &yes
		default:
			return nil, fmt.Errorf("must be read_only, destructive or open_world, not %q", effect)
		}
	}
	return a, nil
}

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
