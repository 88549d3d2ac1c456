// Package shell implements the tools exec and bash. They run programs for one agent session, in its workspace, on an
// engine of package sandbox.
//
//	arguments ─▶ rules ─▶ mode allowlist: parse (both allowlist.go) ─▶ a plan ─▶ engine ─▶ result
//
// In mode allowlist a command is parsed, and only plain commands pass: program names with literal arguments, in
// pipelines and lists. The command that runs is rebuilt from the checked words, not from the original text, so a shell
// cannot interpret it differently. programs.go lists programs whose arguments can run other programs.
package shell

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	// DefaultMaxOutput is the default of Config.MaxOutput, in bytes.
	DefaultMaxOutput = 64 << 10

	// DefaultMaxCommands is the default of Config.MaxCommands.
	DefaultMaxCommands = 16

	defaultTimeout    = 30 * time.Second
	maxTimeout        = 10 * time.Minute
	defaultPerSession = 4 // concurrent commands of a session, unless policy sets a limit

	maxCommand = 64 << 10 // bytes; the kernel accepts twice as many in one argument
)

// Config configures the tools.
type Config struct {
	Host    sandbox.Engine // runs commands that need no sandbox; nil: they fail
	Sandbox sandbox.Engine // runs commands that need the sandbox; nil: they fail

	NoHost, NoSandbox string // why Host or Sandbox is missing, and how an operator can fix it

	Env      []string       // added to the base environment, as "name=value"; later entries win
	EnvNames []string       // variables that a call may set in mode allowlist
	Limits   sandbox.Limits // of each command

	MaxOutput int // bytes kept of each output, head and tail; default: DefaultMaxOutput
	// MaxCommands is how many commands run concurrently on this pod, at most half for one tenant and a quarter for one
	// user. Default: DefaultMaxCommands.
	MaxCommands int

	Slots *Slots // of those commands; nil: NewSlots(MaxCommands)
}

// Slots limits the commands that run at the same time: of a session, of a user, of a tenant and of the pod. It is safe
// for concurrent use.
type Slots struct {
	running  *share.Pool // by tenant and user
	sessions *share.Pool // by session
}

// NewSlots returns slots for most concurrent commands.
func NewSlots(most int) *Slots {
	return &Slots{share.New(share.Bounds{Pod: int64(most)}), share.New(share.Bounds{Pod: math.MaxInt32})}
}

// Stats returns the running commands, and those that wait for their session or for the pod.
func (s *Slots) Stats() share.Stats {
	sessions := s.sessions.Stats()
	sessions.Held = 0 // these run, or wait for the pod
	return s.running.Stats().Plus(sessions)
}

// Registration returns the tools exec and bash, for agent.NewLocalTools. It fails if cfg is invalid.
func Registration(cfg Config) (agent.Registration, error) {
	cfg.MaxOutput = cmp.Or(cfg.MaxOutput, DefaultMaxOutput)
	cfg.MaxCommands = cmp.Or(cfg.MaxCommands, DefaultMaxCommands)
	cfg.NoHost = cmp.Or(cfg.NoHost, "This gateway runs programs only in a sandbox.")
	cfg.NoSandbox = cmp.Or(cfg.NoSandbox, "This gateway has no sandbox.")
	cfg.Env, cfg.EnvNames = slices.Clone(cfg.Env), slices.Clone(cfg.EnvNames)
	if err := cfg.check(); err != nil {
		return agent.Registration{}, err
	}
	if cfg.Slots == nil {
		cfg.Slots = NewSlots(cfg.MaxCommands)
	}
	return agent.Registration{
		Names: []string{"exec", "bash"}, State: agent.WorkspaceState(),
		Make: func(sc agent.SessionContext) []agent.Tool {
			s := session{cfg: cfg, id: sc.ID(), sandboxed: sc.Sandboxed, workspace: sc.Workspace}
			return []agent.Tool{runner{s, execShell}, runner{s, bashShell}}
		},
	}, nil
}

// check returns an error if Env or EnvNames is invalid.
func (c Config) check() error {
	for _, v := range c.Env {
		if !validVariable(v) {
			return fmt.Errorf("shell: %.80q is not an environment variable such as LANG=C.UTF-8", v)
		}
	}
	for _, name := range c.EnvNames {
		if !validName(name) || steers(name) {
			return fmt.Errorf("shell: calls must not set the environment variable %.80q: "+
				"it changes which programs run", name)
		}
	}
	return nil
}

// session is the common state of the tools of one agent session.
type session struct {
	cfg       Config
	id        agent.SessionID
	sandboxed bool
	workspace agent.Workspace
}

// shell is the shell of a tool, for commands of several programs.
type shell struct {
	tool, about string
	args        []string // arguments before the command
	missing     string   // error text if the shell is missing
}

var (
	execShell = &shell{
		tool:    "exec",
		about:   "Execute a shell command in the workspace, with /bin/sh.",
		args:    []string{"/bin/sh", "-c"},
		missing: "There is no /bin/sh.",
	}
	bashShell = &shell{
		tool:    "bash",
		about:   "Run a Bash script in the workspace.",
		args:    []string{"bash", "--noprofile", "--norc", "-c"},
		missing: "There is no bash. Write for /bin/sh and use exec.",
	}
)

// runner is the tool exec or bash.
type runner struct {
	session
	shell *shell
}

// Spec implements agent.Tool.
func (r runner) Spec() registry.ToolSpec {
	return registry.ToolSpec{
		Name: r.shell.tool,
		Description: r.shell.about + " Returns its stdout and stderr, exit code and duration. " +
			"Each call is a new process: files persist, variables and the folder do not.",
		Parameters: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{`+
			`"command":{"type":"string","minLength":1,"maxLength":%d,"description":"Command to execute"},`+
			`"timeout":{"type":"integer","minimum":1,"maximum":%d,`+
			`"description":"Seconds after which the command and its processes are killed; default %d"},`+
			`"workdir":{"type":"string","maxLength":4096,`+
			`"description":"Folder to run in, relative to the workspace; default: the workspace"},`+
			`"env":{"type":"object","maxProperties":50,"additionalProperties":{"type":"string","maxLength":32768},`+
			`"description":"Environment variables"},`+
			`"elevated":{"type":"boolean","description":"Run with elevated permissions, if a person agrees"},`+
			`"security":{"type":"string","enum":["deny","allowlist","full"],`+
			`"description":"Security mode; applies if it is stricter than the gateway's"}},`+
			`"required":["command"],"additionalProperties":false}`,
			maxCommand, int(maxTimeout.Seconds()), int(defaultTimeout.Seconds()))),
		TimeoutMS: (maxTimeout + grace).Milliseconds(),
		Annotations: &registry.Annotations{
			ReadOnlyHint: new(false), DestructiveHint: new(true), OpenWorldHint: new(true),
		},
	}
}

// Unavailable implements agent.UnavailableTool.
func (r runner) Unavailable() string {
	if r.sandboxed && r.cfg.Sandbox == nil || !r.sandboxed && r.cfg.Host == nil {
		return r.missing(r.sandboxed)
	}
	return ""
}

// Resting implements agent.RestingTool.
func (r runner) Resting() string {
	e := r.cfg.Host
	if r.sandboxed {
		e = r.cfg.Sandbox
	}
	if e == nil {
		return ""
	}
	if err := sandbox.Down(e); err != nil {
		return "Programs cannot run at the moment: " + err.Error()
	}
	return ""
}

// missing returns why there is no engine.
func (s session) missing(sandboxed bool) string {
	if sandboxed {
		return s.cfg.NoSandbox
	}
	return s.cfg.NoHost
}

// engine returns the engine for a call, or nil, and whether it is the sandbox.
func (s session) engine(p policy.Programs) (e sandbox.Engine, sandboxed bool) {
	if s.sandboxed || p.Sandboxed {
		return s.cfg.Sandbox, true
	}
	return s.cfg.Host, false
}
