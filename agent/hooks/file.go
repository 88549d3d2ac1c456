package hooks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/farhand/farhand/internal/secret"
)

// maxFile bounds the file of hooks, and maxHooks how many it may have: each is asked in turn.
const (
	maxFile  = 1 << 20
	maxHooks = 16
)

// inWords says what the types of Go are that the library speaks of.
var inWords = strings.NewReplacer(
	"not found in type hooks.entry", "is none of a hook",
	"not found in type hooks.file", "is none of a file of hooks",
	"[]hooks.entry", "a list of hooks", "hooks.entry", "a hook", "hooks.file", "a file of hooks",
	"secret.Text", "a text", "[]string", "a list of texts",
)

// file is what a file of hooks looks like.
type file struct {
	Hooks []entry `yaml:"hooks"`
}

type entry struct {
	Name         string      `yaml:"name"`
	URL          string      `yaml:"url"`
	Secret       secret.Text `yaml:"secret"`
	SecretFile   string      `yaml:"secret_file"`
	Phase        string      `yaml:"phase"`
	Tools        []string    `yaml:"tools"`
	Timeout      string      `yaml:"timeout"`
	OnFailure    string      `yaml:"on_failure"`
	AllowPrivate bool        `yaml:"allow_private"`
	Concurrent   *int        `yaml:"max_concurrent"`
}

// Load reads hooks from a YAML file, in the order in which they are asked before a call. The error says everything that
// is wrong, by line or by the name of the hook, and has no secret in it.
func Load(path string) ([]Config, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	hooks, err := parse(text, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return hooks, nil
}

// readFile reads a file that is not longer than maxFile.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: longer than %d bytes", path, maxFile)
	}
	return text, err
}

// parse reads the text of a file. Relative paths in it begin at dir.
func parse(text []byte, dir string) ([]Config, error) {
	var f file
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithKnownFields(), yaml.WithUniqueKeys())
	if err != nil {
		return nil, err
	}
	if err := loader.Load(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(inWords.Replace(err.Error()))
	}
	if err := loader.Load(&file{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one YAML document")
	}
	if len(f.Hooks) == 0 || len(f.Hooks) > maxHooks {
		return nil, fmt.Errorf("hooks: must be a list of 1 to %d hooks", maxHooks)
	}
	var hooks []Config
	var errs []error
	seen := make(map[string]bool)
	for i, e := range f.Hooks {
		c, err := e.config(dir)
		if err == nil && seen[c.Name] {
			err = errors.New("name: another hook has it")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("hook %d (%.40q): %w", i+1, e.Name, err))
		}
		seen[c.Name] = true
		hooks = append(hooks, c)
	}
	return hooks, errors.Join(errs...)
}

// config returns what an entry means.
func (e entry) config(dir string) (Config, error) {
	c := Config{
		Name: e.Name, URL: e.URL, Secret: e.Secret, Tools: e.Tools, AllowPrivate: e.AllowPrivate,
		Before: e.Phase == "before" || e.Phase == "both", After: e.Phase == "after" || e.Phase == "both",
		FailOpen: e.OnFailure == "pass", Approvals: e.Phase == phaseApproval,
	}
	var errs []error
	if e.OnFailure != "" && e.OnFailure != "pass" && e.OnFailure != "stop" {
		errs = append(errs, errors.New("on_failure: must be stop (the default) or pass"))
	}
	if e.Timeout != "" {
		var err error
		if c.Timeout, err = time.ParseDuration(e.Timeout); err != nil || c.Timeout == 0 {
			errs = append(errs, errors.New("timeout: must be a duration like 2s or 500ms"))
		}
	}
	if e.Concurrent != nil {
		if c.Concurrent = *e.Concurrent; c.Concurrent == 0 {
			c.Concurrent = -1 // which is refused; none would mean the default
		}
	}
	if err := c.readSecret(e.SecretFile, dir); err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(append(errs, c.Check())...)
}

// readSecret takes the secret from its own file if one is named.
func (c *Config) readSecret(path, dir string) error {
	switch {
	case path == "":
		return nil
	case c.Secret != "":
		return errors.New("secret, secret_file: only one of them may be set")
	case !filepath.IsAbs(path):
		path = filepath.Join(dir, path)
	}
	text, err := readFile(path)
	if err != nil {
		return fmt.Errorf("secret_file: %w", err)
	}
	c.Secret = secret.Text(strings.TrimSpace(string(text)))
	return nil
}
