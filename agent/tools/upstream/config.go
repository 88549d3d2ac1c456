// Package upstream makes the tools of MCP servers local tools of the gateway. The servers are named in a file: programs
// that this pod starts and talks to over their input and output, and URLs (Streamable HTTP).
//
// Start at Servers, which has one connection to each server. Nothing waits for a server but the calls of its own tools:
// a server that is slow, gone or hostile costs a bounded part of the pod, and its tools say why they cannot be called.
// Whatever a server sends is bounded before the SDK reads it (transport.go, stdio.go); what it says of its tools is
// admitted as what a device registers is (list.go); what its tools return is as foreign as what devices return
// (tool.go). docs/decisions/0046-upstream.md says why it is as it is.
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

	// Command is a program and its arguments. It runs with Env alone, "name=value" each, in Dir (absolute; empty: the
	// folder /) with the rights of the gateway, or in the sandbox: then Dir is below its workspace.
	Command []string
	Env     []string
	Dir     string
	Sandbox bool

	URL     string
	Headers map[string]secret.Text // of every request
	Private bool                   // its name may lead to an address of a private network

	Allow, Deny []string      // globs of its own names of tools; an empty Allow: all
	Timeout     time.Duration // of a call that names none; zero: that of the gateway
	Connect     time.Duration // how long it has to answer at first, and to list its tools; default 15 s
	MaxCalls    int           // calls of this pod at once, at most half of them of one tenant; default 8
	Optional    bool          // nobody is warned that it does not answer

	secrets []string // what stands for variables in the file: never shown
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

// offers reports whether the operator wants a tool of this server.
func (s *Server) offers(tool string) bool {
	flat := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") } // so that * matches it, too
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

// Config configures Servers. Admission is required, and so is what the servers need that there are.
type Config struct {
	Servers   []Server
	Admission *agent.Admission // of definitions; its limits are those of one server

	Host, Sandbox     sandbox.Engine // run programs; nil: NoHost and NoSandbox say why not
	NoHost, NoSandbox string
	Workspaces        agent.Workspaces // where programs run in the sandbox

	Limits sandbox.Limits // of each program in the sandbox

	Version string       // of the gateway, which servers are told
	Log     *slog.Logger // default: discard

	// Refresh is how often the tools of a server are listed without a reason, which shows that it still answers, too.
	// Default: 5 min.
	Refresh time.Duration

	// Backoff is how long the first attempt to connect again waits; each later one waits longer, up to a minute.
	// Default: 1 s.
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
