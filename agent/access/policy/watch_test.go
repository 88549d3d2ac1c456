package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/internal/testkit"
)

const (
	denyA = "version: 1\ncalls: [{deny: a}]\n"
	denyB = "version: 1\ncalls: [{deny: b}]\n"
)

// write replaces a file as editors do.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func allowed(p *policy.Policy, tool string) bool { return p.Decide(named(tool)).Allowed }

func TestABadFileKeepsThePolicy(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), "policy.yaml"), new(bytes.Buffer)
	write(t, path, denyA)
	p, f, err := policy.Open(path, policy.Options{}, time.Hour, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	digest := p.Digest()
	var noted []string
	f.NoteWith(func(digest string, err error) {
		if digest != p.Digest() {
			t.Errorf("the digest %s is noted, not %s", digest, p.Digest())
		}
		noted = append(noted, fmt.Sprint(err == nil))
	})
	defer func() {
		if got := strings.Join(noted, " "); !strings.HasPrefix(got, "true false") {
			t.Errorf("noted %q: what was in force, and what was refused", got)
		}
	}()
	if allowed(p, "a") || !allowed(p, "b") {
		t.Fatal("the file is not in force")
	}
	write(t, path, denyB)
	f.Reload()
	if !allowed(p, "a") || allowed(p, "b") || p.Digest() == digest || f.Status() != (policy.Status{Reloads: 1}) {
		t.Fatalf("the new file is not in force: %+v", f.Status())
	}
	for range 3 {
		write(t, path, "version: 1\ncalls:\n  - dney: a\n")
		f.Reload()
	}
	var problems policy.Problems
	if s := f.Status(); !errors.As(s.Err, &problems) || problems[0].Line != 3 || problems[0].Column != 5 ||
		s.Refused != 1 {
		t.Fatalf("a bad file: %+v", s)
	}
	if !allowed(p, "a") || allowed(p, "b") {
		t.Error("a bad file changed the policy")
	}
	if n := strings.Count(log.String(), "policy file not reloaded"); n != 1 {
		t.Errorf("it was logged %d times: %s", n, log)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.Reload()
	}
	if s := f.Status(); !errors.Is(s.Err, os.ErrNotExist) || s.Refused != 2 || allowed(p, "b") {
		t.Errorf("a missing file: %+v", s)
	}
	write(t, path, denyA)
	f.Reload()
	if s := f.Status(); s.Err != nil || allowed(p, "a") {
		t.Errorf("a good file after it: %+v", s)
	}
}

// Kubernetes mounts a ConfigMap as a symbolic link to a directory, and turns the link to another one.
func TestTurnedSymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	for version, text := range map[string]string{"..1": denyA, "..2": denyB} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "policy.yaml"), text)
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name+".new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", "..data")
	link(filepath.Join("..data", "policy.yaml"), "policy.yaml")
	p, f, err := policy.Open(filepath.Join(dir, "policy.yaml"), policy.Options{}, time.Millisecond,
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	noted := make(chan error, 10)
	f.NoteWith(func(_ string, err error) { noted <- err })
	link("..2", "..data")
	select {
	case err := <-noted:
		if err != nil || !allowed(p, "a") || allowed(p, "b") {
			t.Errorf("%v: another policy is in force", err)
		}
	case <-time.After(testkit.Limit):
		t.Fatal("the turned link is not followed")
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"bad": "version: 2", "empty": "", "large": "#" + strings.Repeat("x",
		policy.MaxFile)} {
		path := filepath.Join(dir, name)
		write(t, path, text)
		if _, _, err := policy.Open(path, policy.Options{}, time.Hour, nil); err == nil ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := policy.Open(filepath.Join(dir, "none"), policy.Options{}, time.Hour, nil); err == nil {
		t.Error("a file that is not there is taken")
	}
}
