// Package upstream makes the tools of MCP servers local tools of the gateway. A file lists the servers. A server is
// either a program, which this pod starts and talks to over stdio, or a URL (Streamable HTTP).
//
// Start at Servers, which has one connection to each server. Only calls of a server's own tools wait for it. A slow,
// absent or hostile server costs a bounded part of the pod, and its tools report why they cannot be called. All data
// from a server is bounded before the SDK reads it (gate.go, transport.go). Tool definitions pass the same admission
// as a device's (list.go). Tool results are as untrusted as a device's (tool.go). docs/decisions/0046-upstream.md gives
// the reasons for this design.
package upstream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/internal/secret"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Server is one MCP server of the file. It has either Command or URL.
type Server struct {
	Name string

	// Command is a program and its arguments. Its environment is Env ("name=value" each), plus PATH and HOME unless Env
	// sets them. On the host it runs with the rights of the gateway, in the absolute folder Dir; if Dir is empty, in an
	// empty temporary folder. With Sandbox it runs in the sandbox, and Dir is relative to its workspace.
	Command []string
	Env     []string
	Dir     string
	Sandbox bool

	URL     string
	Headers map[string]secret.Text // of every request
	Private bool                   // its name may resolve to a private address

	Allow, Deny []string      // globs of the server's own tool names; an empty Allow: all
	Timeout     time.Duration // of calls without a timeout; zero: the gateway's default
	Connect     time.Duration // limit for the first answer, and for listing tools; default 15 s
	MaxCalls    int           // concurrent calls of this pod, at most half for one tenant; default 8
	Optional    bool          // if it does not answer, log at info instead of warn

	secrets []string // values of variables in the file; never shown
}

const (
	defaultConnect  = 15 * time.Second
	defaultMaxCalls = 8
)

func (s Server) withDefaults() Server {
	s.Connect = cmp.Or(s.Connect, defaultConnect)
	s.MaxCalls = cmp.Or(s.MaxCalls, defaultMaxCalls)
	return s
}

// permits reports whether Allow and Deny permit a tool of this server.
func (s *Server) permits(tool string) bool {
	flat := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") } // so that * also matches a slash
	matches := func(globs []string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool {
			ok, _ := path.Match(flat(glob), flat(tool))
			return ok
		})
	}
	return (len(s.Allow) == 0 || matches(s.Allow)) && !matches(s.Deny)
}

// Config configures Servers. Admission is required. Programs also need Host, or Sandbox and Workspaces.
type Config struct {
	Servers   []Server
	Admission *agent.Admission // of definitions; its limits apply per server

	Host, Sandbox     sandbox.Engine // run programs; nil: NoHost and NoSandbox give the reason
	NoHost, NoSandbox string
	Workspaces        agent.Workspaces // for programs in the sandbox

	Limits sandbox.Limits // for each program in the sandbox

	Version string       // of the gateway, sent to servers
	Log     *slog.Logger // default: discard

	// Refresh is the interval at which tools are listed without a change notification. This also checks that the server
	// still answers. Default: 5 min.
	Refresh time.Duration

	// Backoff is the delay before the first reconnect. It doubles with each further attempt, up to a minute. Default: 1
	// s.
	Backoff time.Duration

	decoding *share.Pool // bytes of decoded answers
}

const (
	defaultRefresh = 5 * time.Minute
	defaultBackoff = time.Second
	maxBackoff     = time.Minute
)

func (c Config) withDefaults() Config {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Refresh = cmp.Or(c.Refresh, defaultRefresh)
	c.Backoff = cmp.Or(c.Backoff, defaultBackoff)
	c.decoding = newDecoding()
	return c
}

const (
	maxFile    = 1 << 20 // bytes of the file
	maxServers = 32
	maxCalls   = 256 // concurrent, of one server
	maxDepth   = 8   // of the file's JSON
	maxConnect = 2 * time.Minute
)

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
	var servers []Server
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("longer than %d bytes", maxFile)
	}
	if err == nil {
		servers, err = parse(text, getenv)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return servers, nil
}

func parse(text []byte, getenv func(string) (string, bool)) ([]Server, error) {
	switch p := strictjson.Check(text, maxDepth); p.Fault {
	case 0:
	case strictjson.NameTwice:
		return nil, fmt.Errorf("%s appears twice", p.Path)
	default:
		return nil, errors.New("must be a JSON object and not nested deeper than servers need")
	}
	var f struct {
		Servers map[string]json.RawMessage `json:"mcpServers"`
	}
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
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
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
			v.wrong("env: a name is not a valid variable name")
		}
		s.Env = append(s.Env, key+"="+v.expand("env", e.Env[key]))
	}
	for key, value := range e.Headers {
		value = v.expand("headers", value)
		if !httpguts.ValidHeaderFieldName(key) || !httpguts.ValidHeaderFieldValue(value) {
			v.wrong("headers: %.40q is not a valid header, or its value is not", key)
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

func (e entry) check(s *Server, v *variables) {
	if !serverName.MatchString(s.Name) || strings.Contains(s.Name, "--") {
		v.wrong("its name must be 1 to 24 lower-case letters, digits and single - between them")
	}
	stdio := e.Type == "" || e.Type == "stdio"
	web := e.Type == "" || e.Type == "http" || e.Type == "streamable-http"
	switch {
	case (s.Command == nil) == (s.URL == ""):
		v.wrong("it must have either command or url")
	case s.Command != nil && (!stdio || s.Headers != nil):
		v.wrong("a command must have the type stdio and no headers")
	case s.URL != "" && !web:
		v.wrong("type: a url must have the type http; the older transport sse is not supported")
	case s.URL != "" && (e.Args != nil || e.Env != nil || e.Dir != "" || e.Sandbox):
		v.wrong("args, env, cwd and sandbox need a command, not a url")
	case s.URL != "":
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			v.wrong("url: must be http:// or https://, a host and a path; put credentials in headers")
		}
	case s.Sandbox && s.Dir != "" && !filepath.IsLocal(s.Dir):
		v.wrong("cwd: in the sandbox it must be a folder below the workspace")
	case !s.Sandbox && s.Dir != "" && !filepath.IsAbs(s.Dir):
		v.wrong("cwd: must be an absolute path")
	}
	for _, glob := range slices.Concat(s.Allow, s.Deny) {
		if _, err := path.Match(glob, ""); err != nil {
			v.wrong("tools: %q is not a valid glob", glob)
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

var reference = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

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
