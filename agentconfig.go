package farhand

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/access/usage"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/internal/egress"
	"github.com/farhand/farhand/internal/metrics"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// Model providers: values of AgentConfig.ModelProvider.
const (
	ProviderOpenAI    = "openai"
	ProviderAnthropic = "anthropic"
)

// noBuiltins disables all built-in tools. An empty variable cannot do that: it means the default.
const noBuiltins = "none"

// AgentConfig is the part of Config for conversations.
type AgentConfig struct {
	Models         []string      `env:"MODEL" doc:"Names of the language models of conversations, comma-separated; the first is the default. Empty: no agent, tools can be registered and called all the same."`
	ModelProvider  string        `env:"MODEL_PROVIDER" envDefault:"openai" doc:"openai: chat completions of OpenAI or any compatible server (vLLM, Ollama, DeepSeek). anthropic: Anthropic's messages."`
	ModelURL       string        `env:"MODEL_URL" doc:"Base URL of the provider, for example http://127.0.0.1:11434/v1. Empty: OPENAI_BASE_URL or ANTHROPIC_BASE_URL, else the provider's own."`
	ModelKey       Secret        `env:"MODEL_KEY" doc:"API key of the provider; local servers need none. Empty, and FARHAND_MODEL_URL too: OPENAI_API_KEY or ANTHROPIC_API_KEY."`
	ModelTokens    int           `env:"MODEL_MAX_TOKENS" envDefault:"0" doc:"Tokens of one answer of a model, at most. 0: the provider's default (8192 for anthropic)."`
	ThinkingTokens int           `env:"MODEL_THINKING_TOKENS" envDefault:"0" doc:"Tokens a model of anthropic may think with before it answers, 1024 or more; -1 lets models decide that know how to; 0: it does not think."`
	ModelImages    string        `env:"MODEL_IMAGES" envDefault:"auto" doc:"Show models the images that tools return: yes or no. auto: yes for models behind their vendor's own address, no behind FARHAND_MODEL_URL, where a server may refuse what has an image."`
	ModelIdle      time.Duration `env:"MODEL_IDLE_TIMEOUT" envDefault:"60s" doc:"Longest silence of a provider before and within an answer."`
	SystemPrompt   string        `env:"SYSTEM_PROMPT" envDefault:"You are a helpful assistant. The tools you can call live on the user's own devices." doc:"System prompt of every conversation the gateway keeps."`
	Builtins       []string      `env:"BUILTIN_TOOLS" envDefault:"time,sessions" doc:"Tools of the gateway itself that are enabled, comma-separated: time, sessions, read, write, edit, exec, bash, browser, nodes, node-invoke, canvas. The default holds when there is a model; without one it is none. none: no such tool."`
	OtherSessions  bool          `env:"OTHER_SESSIONS" envDefault:"false" doc:"Let a conversation also use the tools of the same user's other sessions, if its credentials name the user."`
	Unconfirmed    bool          `env:"AGENT_UNCONFIRMED" envDefault:"false" doc:"Let models call tools whose security_level is user_confirm, and with arguments that only tools have named, without an approval. Tools that are admin_only are never offered to a model."`
	AllowDebug     bool          `env:"ALLOW_DEBUG" envDefault:"true" doc:"Show devices and callers that ask for debug what the model is asked, the system prompt included. Off: they get their answer without it."`
	HistoryTTL     time.Duration `env:"HISTORY_TTL" envDefault:"24h" doc:"How long a conversation is kept after its last change."`
	HistoryBytes   ByteSize      `env:"HISTORY_BYTES" envDefault:"512MiB" doc:"Bytes by which the conversations of one tenant may grow over FARHAND_HISTORY_TTL, by all pods together, half of them at once; half of them by one identity. Beyond that no turn begins (429), and a running turn ends after its step."`
	HistoryCap     int           `env:"HISTORY_CAP" envDefault:"1000" doc:"Messages of one conversation that are kept; the oldest are forgotten."`

	// Turns limits the turns of conversations.
	Turns chat.Limits

	LoopWarn  int `env:"LOOP_WARN" envDefault:"10" doc:"From this identical call in a row on, its result tells the model that it repeats itself."`
	LoopBlock int `env:"LOOP_BLOCK" envDefault:"20" doc:"From this identical call in a row on, calls are stopped and the turn ends; the first such call of a turn is only warned."`
}

// check reports invalid settings. namesUsers says whether callers can have user names, which depends on the program's
// authenticator.
func (c AgentConfig) check(check *checker, namesUsers bool) {
	check.that(slices.Contains([]string{ProviderOpenAI, ProviderAnthropic}, c.ModelProvider), "MODEL_PROVIDER",
		"must be openai or anthropic")
	seen := make(map[string]bool)
	for _, m := range c.Models {
		check.that(m != "" && !seen[m], "MODEL", fmt.Sprintf("names %q twice, or nothing", m))
		seen[m] = true
	}
	if c.ModelURL != "" {
		u, err := url.Parse(c.ModelURL)
		check.that(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "MODEL_URL",
			"must be an http or https URL")
		check.that(err != nil || u.User == nil, "MODEL_URL",
			"must not hold a user or a password: a key belongs in FARHAND_MODEL_KEY")
	}
	check.that(len(c.Builtins) == 1 || !slices.Contains(c.Builtins, noBuiltins), "BUILTIN_TOOLS",
		noBuiltins+" stands alone: it means that no tool is enabled")
	check.that(c.ModelTokens >= 0, "MODEL_MAX_TOKENS", "must not be negative")
	check.that(c.ThinkingTokens >= 1024 || c.ThinkingTokens == 0 || c.ThinkingTokens == -1, "MODEL_THINKING_TOKENS",
		"must be 0, -1, or at least 1024")
	check.that(slices.Contains([]string{"", "auto", "yes", "no"}, c.ModelImages), "MODEL_IMAGES",
		"must be auto, yes or no")
	check.that(!c.OtherSessions || namesUsers, "OTHER_SESSIONS", "cannot work: the program's authenticator "+
		"names no users, so no session has another one of the same user. Remove it")
	check.that(c.LoopWarn < c.LoopBlock, "LOOP_WARN", "must be less than FARHAND_LOOP_BLOCK")
}

// fallBack fills in what the providers' own tools read from the environment, so a machine set up for them needs no
// further settings.
func (c *AgentConfig) fallBack(environment map[string]string) {
	prefix := map[string]string{ProviderOpenAI: "OPENAI_", ProviderAnthropic: "ANTHROPIC_"}[c.ModelProvider]
	if prefix == "" {
		return
	}
	// A key belongs to its address: OPENAI_API_KEY is not sent to an address set by FARHAND_MODEL_URL alone.
	if c.ModelKey == "" && c.ModelURL == "" {
		c.ModelKey = Secret(environment[prefix+"API_KEY"])
	}
	if c.ModelURL == "" {
		c.ModelURL = environment[prefix+"BASE_URL"]
	}
}

var defaultBuiltins = []string{"time", "sessions"}

// builtins returns the names of the enabled built-in tools. The defaults apply only if the gateway has a model.
func (c AgentConfig) builtins(hasModel bool) []string {
	if slices.Contains(c.Builtins, noBuiltins) || !hasModel && slices.Equal(c.Builtins, defaultBuiltins) {
		return nil
	}
	return c.Builtins
}

// enables reports whether one of these built-in tools is enabled.
func (c AgentConfig) enables(names ...string) bool {
	return slices.ContainsFunc(c.Builtins, func(enabled string) bool { return slices.Contains(names, enabled) })
}

// models makes the models. The timeout of a turn limits their requests.
func (c AgentConfig) models(log *slog.Logger) []provider.Model {
	var made []provider.Model
	for _, name := range c.Models {
		cfg := provider.Config{
			Name: name, BaseURL: c.ModelURL, APIKey: string(c.ModelKey), MaxTokens: c.ModelTokens,
			Timeout: c.Turns.Turn, Idle: c.ModelIdle, Log: log,
			ThinkingTokens: max(c.ThinkingTokens, 0), AdaptiveThinking: c.ThinkingTokens < 0,
		}
		if shown := c.ModelImages == "yes"; shown || c.ModelImages == "no" {
			cfg.Images = &shown
		}
		if c.ModelProvider == ProviderAnthropic {
			made = append(made, provider.NewAnthropic(cfg))
		} else {
			made = append(made, provider.NewOpenAI(cfg))
		}
	}
	return made
}

// turnActivity counts turns and their tokens, and records turns in the activity feed. It implements chat.Activity.
type turnActivity struct {
	*metrics.Turns
	calls *routing.Calls
	usage *usage.Recorder
}

// TurnStarted implements chat.Activity.
func (a turnActivity) TurnStarted(t chat.TurnInfo) {
	a.note(registry.ActivityTurnStarted, t, registry.TurnNote{})
}

// TurnFinished implements chat.Activity.
func (a turnActivity) TurnFinished(t chat.TurnInfo, end chat.TurnEnd) {
	a.note(registry.ActivityTurnFinished, t, registry.TurnNote{
		Outcome: string(end.Outcome), Code: end.Code, Calls: end.Calls, Input: end.Usage.Input,
		Output: end.Usage.Output, DurationMS: end.Duration.Milliseconds(),
	})
	a.usage.TurnEnded(t.Caller, end.Usage.Input, end.Usage.Output)
	a.Turns.TurnFinished(t, end)
}

func (a turnActivity) note(kind string, t chat.TurnInfo, note registry.TurnNote) {
	note.ID, note.Model, note.UserID = t.Turn, t.Model, t.Caller.User
	a.calls.Note(registry.Activity{Tenant: t.Key.Tenant, Type: kind, SessionID: t.Key.Session, Turn: &note})
}

// Values of ToolsConfig.Sandbox.
const (
	SandboxAuto     = "auto"
	SandboxDocker   = "docker"
	SandboxLandlock = "landlock"
	SandboxEither   = "docker,landlock"
	SandboxNone     = "none"
)

// ToolsConfig is the part of Config for the gateway's own tools: their folders, the programs they run, and the browser.
type ToolsConfig struct {
	ToolsOff       []string      `env:"TOOLS_OFF" doc:"Optional tools of the program that embeds the gateway that are switched off, comma-separated."`
	AgentID        string        `env:"AGENT_ID" envDefault:"main" doc:"Name of the agent that holds the conversations, which its tools receive; its folder in FARHAND_WORKSPACE_DIR has it."`
	WorkspaceDir   string        `env:"WORKSPACE_DIR" doc:"Absolute path of the folder that holds the workspaces of read, write, edit, exec and bash, one for each agent session. On a fleet put it on a volume that all pods share, or the files of a pod are lost with it. Empty: /var/lib/farhand for root, else farhand in the user's state folder."`
	WorkspaceBytes ByteSize      `env:"WORKSPACE_BYTES" envDefault:"256MiB" doc:"What one workspace may take on the disk. A command that takes more is ended."`
	WorkspaceFiles int           `env:"WORKSPACE_FILES" envDefault:"20000" doc:"Files and folders in one workspace."`
	WorkspaceTTL   time.Duration `env:"WORKSPACE_TTL" envDefault:"24h" doc:"How long a workspace is kept after its last use."`
	ProgramUser    int           `env:"PROGRAM_USER" envDefault:"65534" doc:"Number of the user and group that programs run as if the gateway runs as root; else they run as the gateway's own user. Workspaces are theirs."`
	ProgramEnv     []string      `env:"PROGRAM_ENV" doc:"Names of variables of the gateway's environment that programs of exec and bash get, comma-separated. All others are kept from them."`
	ProgramMemory  ByteSize      `env:"PROGRAM_MEMORY" envDefault:"512MiB" doc:"Memory of one command, in the sandbox of all that runs there."`
	Processes      int           `env:"PROGRAM_PROCESSES" envDefault:"128" doc:"Processes and threads of one command, in the sandbox of all that runs there."`
	MaxCommands    int           `env:"MAX_COMMANDS" envDefault:"16" doc:"Commands of exec and bash that run at once on this pod, half of them of one tenant. Others wait, and fail with busy when their time is up. As many containers of the sandbox are kept between commands, again half of them of one tenant."`
	Sandbox        string        `env:"SANDBOX" envDefault:"auto" doc:"What runs exec and bash of conversations that are group sandboxed. docker: containers. landlock: the weaker sandbox, without an engine, by the kernel's Landlock. auto: docker, or landlock if no engine of containers is configured (FARHAND_DOCKER_HOST, DOCKER_HOST, FARHAND_SANDBOX_IMAGE, FARHAND_SANDBOX_PULL) and none can be used when the gateway starts; the log says why. With one configured that cannot be used, serve refuses to start. docker,landlock: landlock then also. none: these tools are absent there. farhand doctor says what works here."`
	SandboxImage   string        `env:"SANDBOX_IMAGE" envDefault:"debian:stable-slim" doc:"Image of the containers. It needs /bin/sh and whatever commands are to find."`
	SandboxPull    bool          `env:"SANDBOX_PULL" envDefault:"false" doc:"Pull the image when it is missing."`
	DockerHost     string        `env:"DOCKER_HOST" doc:"Address of the engine, unix:///path or tcp://host:port. Empty: DOCKER_HOST, else unix:///var/run/docker.sock. It must see workspaces at the paths at which the gateway sees them."`
	SandboxCPUs    float64       `env:"SANDBOX_CPUS" envDefault:"1" doc:"CPUs that one container may keep busy."`
	SandboxIdle    time.Duration `env:"SANDBOX_IDLE" envDefault:"10m" doc:"How long a container, or a browser, stays without being used."`
	BrowserProgram string        `env:"BROWSER" doc:"Absolute path of the Chromium that the tool browser starts. Empty: where systems have it."`
	BrowserBare    bool          `env:"BROWSER_NO_SANDBOX" envDefault:"false" doc:"Run Chromium without its own sandbox, which it needs if the gateway is root or the kernel gives it no user namespaces. A page that breaks out of Chromium is then the gateway's own user."`
	MaxBrowsers    int           `env:"MAX_BROWSERS" envDefault:"8" doc:"Browsers of this pod, one for each agent session that uses one, at most half of them of one tenant. Each takes some hundred megabytes."`
	BrowserMemory  ByteSize      `env:"BROWSER_MEMORY" envDefault:"2GiB" doc:"Memory that one browser may take, all its processes together. One that takes more is ended."`
	PrivateURLs    bool          `env:"PRIVATE_URLS" envDefault:"false" doc:"Let the browser and devices' canvases load from private networks and from the machine they run on. Addresses where cloud providers hand out credentials are refused all the same."`
	BrowserPorts   []int         `env:"BROWSER_PORTS" doc:"Ports that pages may load from besides 80 and 443, comma-separated."`
}

// placeTTL is how long the store remembers which pod keeps files or a browser for a session. It is longer than any of
// them is kept.
func (c *ToolsConfig) placeTTL() time.Duration {
	return max(c.WorkspaceTTL, c.SandboxIdle) + minWorkspaceTTL
}

// minWorkspaceTTL is longer than any command runs, so a workspace is not removed while a command uses it.
const minWorkspaceTTL = 15 * time.Minute

// fallBack fills in what Docker's own tools read from the environment.
func (c *ToolsConfig) fallBack(environment map[string]string) {
	c.DockerHost = cmp.Or(c.DockerHost, environment["DOCKER_HOST"])
}

func (c *ToolsConfig) workspaceDir() (string, error) {
	switch state := os.Getenv("XDG_STATE_HOME"); {
	case c.WorkspaceDir != "":
		return c.WorkspaceDir, nil
	case os.Getuid() == 0:
		return "/var/lib/farhand", nil
	case filepath.IsAbs(state):
		return filepath.Join(state, "farhand"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("FARHAND_WORKSPACE_DIR: it must be set where a user has no home: %w", err)
	}
	return filepath.Join(home, ".local", "state", "farhand"), nil
}

func (c ToolsConfig) check(check *checker) {
	known := []string{SandboxAuto, SandboxDocker, SandboxLandlock, SandboxEither, SandboxNone}
	check.that(slices.Contains(known, c.Sandbox), "SANDBOX",
		"must be auto, docker, landlock, docker,landlock or none")
	check.that(c.WorkspaceDir == "" || filepath.IsAbs(c.WorkspaceDir), "WORKSPACE_DIR", "must be an absolute path")
	check.that(registry.ValidToolName(c.AgentID), "AGENT_ID",
		"may hold letters, digits, '.', '_' and '-', a letter first")
	check.that(c.WorkspaceTTL >= minWorkspaceTTL, "WORKSPACE_TTL",
		"must be at least 15m: a command may use it for so long")
	for _, port := range c.BrowserPorts {
		check.that(port > 0 && port < 1<<16, "BROWSER_PORTS", fmt.Sprintf("%d is no port", port))
	}
	check.that(c.SandboxCPUs > 0, "SANDBOX_CPUS", "must be greater than zero")
}

// engines returns the engines the sandbox may use, in order of preference. If the operator configured containers, auto
// does not fall back to a weaker engine.
func (c ToolsConfig) engines() []string {
	switch c.Sandbox {
	case SandboxNone:
		return nil
	case SandboxAuto:
		if c.configuresContainers() {
			return []string{SandboxDocker}
		}
		return []string{SandboxDocker, SandboxLandlock}
	default:
		return strings.Split(c.Sandbox, ",")
	}
}

// configuresContainers reports whether a setting chooses or configures a container engine.
func (c ToolsConfig) configuresContainers() bool {
	return c.DockerHost != "" || c.SandboxPull || c.SandboxImage != "" && c.SandboxImage != docker.DefaultImage
}

// browser returns the configuration of the browsers. Their profiles are local to this machine.
func (c ToolsConfig) browser() browser.Config {
	dir, err := os.UserCacheDir()
	if err != nil { // a user without a home
		dir, _ = c.workspaceDir() // browser.New rejects an empty one
	}
	return browser.Config{
		Dir: filepath.Join(dir, "farhand"), Program: c.BrowserProgram, NoSandbox: c.BrowserBare,
		MaxBrowsers: c.MaxBrowsers, Idle: c.SandboxIdle, Memory: c.BrowserMemory,
		Egress: egress.Config{AllowPrivate: c.PrivateURLs, Ports: c.BrowserPorts},
	}
}

func (c ToolsConfig) docker(pod string) docker.Config {
	return docker.Config{
		Host: c.DockerHost, Image: c.SandboxImage, Pull: c.SandboxPull, Pod: pod, Idle: c.SandboxIdle,
		Memory: c.ProgramMemory, Processes: c.Processes, CPUs: c.SandboxCPUs, MaxIdle: c.MaxCommands,
	}
}

// Values of Config.LimitsFail.
const (
	limitsClosed = "closed"
	limitsOpen   = "open"
)

// callLimits returns the call limits of the environment. They apply in addition to those of the policy.
func (c Config) callLimits() []policy.Limit {
	var limits []policy.Limit
	add := func(per policy.Per, calls int, setting string) {
		if calls > 0 {
			limits = append(limits, policy.Limit{
				Rule: EnvPrefix + setting, Per: per, Calls: calls, Window: time.Minute,
			})
		}
	}
	add(policy.PerIdentity, c.LimitIdentity, "LIMIT_IDENTITY")
	add(policy.PerDevice, c.LimitDevice, "LIMIT_DEVICE")
	add(policy.PerTenant, c.LimitTenant, "LIMIT_TENANT")
	return limits
}

type meters []agent.Meter

// CallEnded implements agent.Meter.
func (m meters) CallEnded(end agent.CallEnd) {
	for _, one := range m {
		one.CallEnded(end)
	}
}
