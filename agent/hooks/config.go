// Package hooks has hooks for people who do not write Go: before a call, after it, or both, an operator's own HTTP
// service is asked. It lets the call pass, changes its arguments or its result, or stops it.
//
// Requests are signed by Standard Webhooks (standardwebhooks.com). Answers are read strictly: what is not understood
// whole is a failure. What a failure means is each hook's setting: by default the call is stopped, or its result
// withheld.
package hooks

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/internal/secret"
	"github.com/farhand/farhand/registry"
)

// Defaults and bounds of Config.
const (
	DefaultTimeout    = 2 * time.Second
	MinTimeout        = 10 * time.Millisecond
	MaxTimeout        = 10 * time.Second
	DefaultConcurrent = 64
	MaxConcurrent     = 1024
)

// Lengths of the key in a secret, in bytes, as Standard Webhooks has them.
const (
	minKey = 24
	maxKey = 64
)

// secretPrefix is how Standard Webhooks marks secrets.
const secretPrefix = "whsec_"

// Config is one hook. Name, URL and Secret are required, and so is one of Before, After and Approvals.
type Config struct {
	Name   string      // appears in errors and logs: lower-case letters, digits and '-'
	URL    string      // https, or http if private addresses are allowed
	Secret secret.Text // whsec_ and 24 to 64 random bytes in Base64: the key that requests are signed with

	Before bool // ask before the tool runs
	After  bool // ask when it has run

	// Approvals has the service told that a person must approve a call. Its answers decide nothing, so it is alone:
	// neither Before nor After.
	Approvals bool

	Tools []string // globs of the names of tools that are asked about, and what looks like them; empty: all

	// Timeout bounds one question, waiting for its turn included; 2 s by default, 10 s at most. It is part of the time
	// that the call has.
	Timeout time.Duration

	// FailOpen lets calls pass, and results be read as they are, when the hook gives no answer that can be used.
	FailOpen bool

	// AllowPrivate lets the URL lead to this machine or to private networks, and be without TLS.
	AllowPrivate bool

	// Concurrent is how many questions are asked at once; 64 by default, 1024 at most. Further ones wait.
	Concurrent int
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Concurrent == 0 {
		c.Concurrent = DefaultConcurrent
	}
	return c
}

// Check reports everything that is wrong with the configuration.
func (c Config) Check() error {
	c = c.withDefaults()
	var errs []error
	wrong := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(namePattern.MatchString(c.Name), "name: must be 1 to 32 lower-case letters, digits and '-', not %.40q",
		c.Name)
	wrong((c.Before || c.After) != c.Approvals, "phase: must be before, after, both or approval")
	wrong(c.Timeout >= MinTimeout && c.Timeout <= MaxTimeout, "timeout: must be between %v and %v", MinTimeout,
		MaxTimeout)
	wrong(c.Concurrent >= 1 && c.Concurrent <= MaxConcurrent, "max_concurrent: must be between 1 and %d", MaxConcurrent)
	errs = append(errs, c.checkURL(), c.checkSecret())
	for _, glob := range c.Tools {
		if err := policy.CheckGlob(glob); err != nil {
			errs = append(errs, fmt.Errorf("tools: %s", registry.AsError(err).Message))
		}
	}
	return errors.Join(errs...)
}

// checkURL finds early what would fail with every call. What a name stands for is looked at when it is connected to.
func (c Config) checkURL() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("url: must be an https URL, for example https://hooks.example.com/farhand")
	case u.User != nil || u.Fragment != "":
		return errors.New("url: must have neither a user nor a fragment; the signature says who is asking")
	case u.Scheme == "http" && !c.AllowPrivate:
		return errors.New("url: must be https; http is for private networks, with allow_private: true")
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil
	}
	if err := (publicnet.Guard{AllowPrivate: c.AllowPrivate}).Check(addr); err != nil {
		if publicnet.KindOf(addr) == publicnet.Private {
			return fmt.Errorf("url: %s is an address of a private network; allow_private: true allows that", addr)
		}
		return fmt.Errorf("url: %s is an address that no hook may have", addr)
	}
	return nil
}

func (c Config) checkSecret() error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(c.Secret), secretPrefix))
	if err != nil || !strings.HasPrefix(string(c.Secret), secretPrefix) || len(key) < minKey || len(key) > maxKey {
		return fmt.Errorf("secret: must be %s and %d to %d random bytes in Base64; "+
			"make one with: echo %s$(openssl rand -base64 32)", secretPrefix, minKey, maxKey, secretPrefix)
	}
	return nil
}

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
