package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/farhand/farhand/internal/secret"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

const (
	maxFile    = 1 << 20 // bytes of the file
	maxServers = 32
	maxCalls   = 256 // concurrent, of one server
	maxDepth   = 8   // of the file's JSON
	maxConnect = 2 * time.Minute
)

// file is the JSON of a file of servers.
type file struct {
	Servers map[string]json.RawMessage `json:"mcpServers"`
}

// entry is the JSON of one server in the file.
type entry struct {
	Type    string            `json:"type"` // optional: stdio, http or streamable-http
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Dir     string            `json:"cwd"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Private bool              `json:"allow_private"`

	Tools struct {
		Allow []string `json:"allow"`
		Deny  []string `json:"deny"`
	} `json:"tools"`
	TimeoutMS int64 `json:"timeout_ms"`
	ConnectMS int64 `json:"connect_timeout_ms"`
	MaxCalls  int   `json:"max_concurrent"`
	Sandbox   bool  `json:"sandbox"`
	Optional  bool  `json:"optional"`
	Disabled  bool  `json:"disabled"`
}

// Load reads servers from a JSON file, in order of name. ${NAME} in command, args, env, cwd, url and headers is
// replaced by the value of the environment variable, which getenv reads. The error lists all faults, grouped by server,
// and contains no values.
func Load(name string, getenv func(string) (string, bool)) ([]Server, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("longer than %d bytes", maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	servers, err := parse(text, getenv)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return servers, nil
}

// parse parses the text of a file.
func parse(text []byte, getenv func(string) (string, bool)) ([]Server, error) {
	switch p := strictjson.Check(text, maxDepth); p.Fault {
	case 0:
	case strictjson.NameTwice:
		return nil, fmt.Errorf("%s is there twice", p.Path)
	default:
		return nil, errors.New("must be a JSON object, nested no deeper than servers are")
	}
	var f file
	if err := decode(text, &f); err != nil {
		return nil, err
	}
	if len(f.Servers) == 0 || len(f.Servers) > maxServers {
		return nil, fmt.Errorf("mcpServers: must have 1 to %d servers", maxServers)
	}
	var servers []Server
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(f.Servers)) {
		var e entry
		err := decode(f.Servers[name], &e)
		s := Server{Name: name}
		if err == nil {
			s, err = e.server(name, getenv)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("server %.40q: %w", name, err))
		} else if !e.Disabled {
			servers = append(servers, s)
		}
	}
	return servers, errors.Join(errs...)
}

// decode decodes JSON into a struct and rejects unknown members. Its errors name members and contain no values.
func decode(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("%s: must be of the type %s, not a %s", wrong.Field, wrong.Type, wrong.Value)
	}
	return err
}

// server converts an entry to a Server. Its error lists all faults.
func (e entry) server(name string, getenv func(string) (string, bool)) (Server, error) {
	v := variables{getenv: getenv}
	s := Server{
		Name: name, Sandbox: e.Sandbox, Optional: e.Optional, Allow: e.Tools.Allow, Deny: e.Tools.Deny,
		MaxCalls: e.MaxCalls, Dir: v.expand("cwd", e.Dir), URL: v.expand("url", e.URL), Private: e.Private,
		Timeout: time.Duration(e.TimeoutMS) * time.Millisecond, Connect: time.Duration(e.ConnectMS) * time.Millisecond,
	}
	if e.Command != "" {
		s.Command = []string{v.expand("command", e.Command)}
		for _, arg := range e.Args {
			s.Command = append(s.Command, v.expand("args", arg))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.Env)) {
		if key == "" || strings.ContainsAny(key, "=\x00") {
			v.wrong("env: a name is no name of a variable")
		}
		s.Env = append(s.Env, key+"="+v.expand("env", e.Env[key]))
	}
	for key, value := range e.Headers {
		value = v.expand("headers", value)
		if !httpguts.ValidHeaderFieldName(key) || !httpguts.ValidHeaderFieldValue(value) {
			v.wrong("headers: %.40q and its value are no header", key)
		}
		if s.Headers == nil {
			s.Headers = make(map[string]secret.Text)
		}
		s.Headers[key] = secret.Text(value)
	}
	s.secrets = v.found
	e.check(&s, &v)
	return s.withDefaults(), errors.Join(v.errs...)
}

// check records the faults of an entry.
func (e entry) check(s *Server, v *variables) {
	if !serverName.MatchString(s.Name) || strings.Contains(s.Name, "--") {
		v.wrong("its name must be 1 to 24 small letters, digits and single - between them")
	}
	stdio := e.Type == "" || e.Type == "stdio"
	web := e.Type == "" || e.Type == "http" || e.Type == "streamable-http"
	switch {
	case (s.Command == nil) == (s.URL == ""):
		v.wrong("it must have either command or url")
	case s.Command != nil && (!stdio || s.Headers != nil):
		v.wrong("a command is of the type stdio, and has no headers")
	case s.URL != "" && !web:
		v.wrong("type: a url is of the type http; the older transport sse is not spoken here")
	case s.URL != "" && (e.Args != nil || e.Env != nil || e.Dir != "" || e.Sandbox):
		v.wrong("args, env, cwd and sandbox belong to a command, not to a url")
	case s.URL != "":
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			v.wrong("url: must be http:// or https://, a host and a path; credentials belong into headers")
		}
	case s.Sandbox && s.Dir != "" && !filepath.IsLocal(s.Dir):
		v.wrong("cwd: in the sandbox it must be a folder below the workspace")
	case !s.Sandbox && s.Dir != "" && !filepath.IsAbs(s.Dir):
		v.wrong("cwd: must be an absolute path")
	}
	for _, glob := range slices.Concat(s.Allow, s.Deny) {
		if _, err := path.Match(glob, ""); err != nil {
			v.wrong("tools: %q is no glob", glob)
		}
	}
	for _, n := range []struct {
		field       string
		value, most int64
	}{
		{"timeout_ms", e.TimeoutMS, registry.MaxToolTimeout.Milliseconds()},
		{"connect_timeout_ms", e.ConnectMS, maxConnect.Milliseconds()},
		{"max_concurrent", int64(e.MaxCalls), maxCalls},
	} {
		if n.value < 0 || n.value > n.most {
			v.wrong("%s: must be between 0 and %d", n.field, n.most)
		}
	}
}

// variables replaces variables by their values, and collects the faults of an entry.
type variables struct {
	getenv func(string) (string, bool)
	found  []string // values
	errs   []error
}

func (v *variables) wrong(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

// reference matches a variable in a value.
var reference = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// expand returns the value of a field with its variables replaced.
func (v *variables) expand(field, value string) string {
	return reference.ReplaceAllStringFunc(value, func(ref string) string {
		found, ok := v.getenv(ref[2 : len(ref)-1])
		if !ok {
			v.wrong("%s: the variable %s is not set", field, ref)
		}
		if found != "" {
			v.found = append(v.found, found)
		}
		return found
	})
}
