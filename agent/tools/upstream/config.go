// Package upstream makes the tools of MCP servers local tools of the gateway. A file lists the servers. A server is
// either a program, which this pod starts and talks to over stdio, or a URL (Streamable HTTP).
//
// Start at Servers, which has one connection to each server. Only calls of a server's own tools wait for it. A slow,
// absent or hostile server costs a bounded part of the pod, and its tools report why they cannot be called. All data
// from a server is bounded before the SDK reads it (transport.go, stdio.go). Tool definitions pass the same admission
// as a device's (list.go). Tool results are as untrusted as a device's (tool.go). docs/decisions/0046-upstream.md gives
// the reasons for this design.
package upstream

import (
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/internal/secret"
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

// Defaults of a Server.
const (
	defaultConnect  = 15 * time.Second
	defaultMaxCalls = 8
)

func (s Server) withDefaults() Server {
	if s.Connect <= 0 {
		s.Connect = defaultConnect
	}
	if s.MaxCalls <= 0 {
		s.MaxCalls = defaultMaxCalls
	}
	return s
}

// permits reports whether Allow and Deny permit a tool of this server.
func (s *Server) permits(tool string) bool {
	flat := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") } // so that * also matches a slash
	matches := func(globs []string) bool {
		for _, glob := range globs {
			if ok, _ := path.Match(flat(glob), flat(tool)); ok {
				return true
			}
		}
		return false
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
}

const (
	defaultRefresh = 5 * time.Minute
	defaultBackoff = time.Second
	maxBackoff     = time.Minute
)

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Refresh <= 0 {
		c.Refresh = defaultRefresh
	}
	if c.Backoff <= 0 {
		c.Backoff = defaultBackoff
	}
	return c
}
