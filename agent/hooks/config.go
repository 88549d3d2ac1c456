package hooks

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

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
