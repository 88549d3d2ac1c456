// Package hooks calls an operator's HTTP service before tool calls, after them, or both. No Go code is needed. The
// service lets a call pass, changes its arguments or its result, or stops it.
//
// Requests are signed according to Standard Webhooks (standardwebhooks.com). Answers are parsed strictly: an answer
// that is not fully understood is a failure. Each hook sets what a failure means. By default, the call is stopped, or
// its result withheld.
package hooks

import (
	"bytes"
	"cmp"
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
	"github.com/farhand/farhand/internal/webhook"
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

// Config configures one hook. Name, URL, Secret and one of Before, After and Approvals are required.
type Config struct {
	Name   string      // for errors and logs: lower-case letters, digits and '-'
	URL    string      // https, or http if private addresses are allowed
	Secret secret.Text // signing key: whsec_ and 24 to 64 random bytes in Base64

	Before bool // ask before the tool runs
	After  bool // ask after it ran

	// Approvals sends the service a message when a person must approve a call. Its answers decide nothing, so it
	// excludes Before and After.
	Approvals bool

	Tools []string // globs of tool names, which also match look-alikes; empty: all tools

	// Timeout bounds one question, including its time in queue. Default 2 s, maximum 10 s. It is part of the call's own
	// timeout.
	Timeout time.Duration

	FailOpen     bool // calls and results pass unchanged if the hook gives no usable answer
	AllowPrivate bool // allow URLs of this machine and of private networks, and http without TLS
	Concurrent   int  // maximum of concurrent questions, 64 by default and 1024 at most; further ones wait
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// withDefaults sets missing values to their defaults.
func (c Config) withDefaults() Config {
	c.Timeout, c.Concurrent = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.Concurrent, DefaultConcurrent)
	return c
}

// Check returns all configuration errors.
func (c Config) Check() error {
	c = c.withDefaults()
	var errs []error
	wrong := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(namePattern.MatchString(c.Name), "name: must be 1 to 32 lower-case letters, digits and '-'; it is %.40q",
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

// checkURL finds errors early that would fail every call. Host names are resolved and checked when connecting.
func (c Config) checkURL() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("url: must be an https URL, for example https://hooks.example.com/farhand")
	case u.User != nil || u.Fragment != "":
		return errors.New("url: must have neither a user nor a fragment; the signature identifies the gateway")
	case u.Scheme == "http" && !c.AllowPrivate:
		return errors.New("url: must be https; http needs a private network and allow_private: true")
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil
	}
	if err := (publicnet.Guard{AllowPrivate: c.AllowPrivate}).Check(addr); err != nil {
		if publicnet.KindOf(addr) == publicnet.Private {
			return fmt.Errorf("url: %s is a private address; allow it with allow_private: true", addr)
		}
		return fmt.Errorf("url: the address %s is not allowed for hooks", addr)
	}
	return nil
}

func (c Config) checkSecret() error {
	if _, err := webhook.NewSigner(string(c.Secret)); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	return nil
}

// maxFile bounds the file of hooks in bytes, maxHooks the number of hooks. Hooks are asked one after another.
const (
	maxFile  = 1 << 20
	maxHooks = 16
)

// inWords replaces Go type names in the YAML library's errors.
var inWords = strings.NewReplacer(
	"not found in type hooks.entry", "is not a field of a hook",
	"not found in type hooks.file", "is not a field of a hook file",
	"[]hooks.entry", "a list of hooks", "hooks.entry", "a hook", "hooks.file", "a hook file",
	"secret.Text", "a text", "[]string", "a list of texts",
)

// file is the format of a file of hooks.
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

// Load reads hooks from a YAML file, in the order in which they are asked before a call. The error has all mistakes, by
// line or hook name, and no secrets.
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

// readFile reads a file of at most maxFile bytes.
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

// parse parses the text of a file. Relative paths in it start at dir.
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
			err = errors.New("name: another hook has this name")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("hook %d (%.40q): %w", i+1, e.Name, err))
		}
		seen[c.Name] = true
		hooks = append(hooks, c)
	}
	return hooks, errors.Join(errs...)
}

// config returns the Config of an entry.
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
			c.Concurrent = -1 // rejected by Check; zero would mean the default
		}
	}
	if err := c.readSecret(e.SecretFile, dir); err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(append(errs, c.Check())...)
}

// readSecret reads the secret from its own file, if there is one.
func (c *Config) readSecret(path, dir string) error {
	switch {
	case path == "":
		return nil
	case c.Secret != "":
		return errors.New("secret, secret_file: set only one")
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
