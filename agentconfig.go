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
	Models         []string      `env:"MODEL" doc:"Language models of conversations; the first is the default. Empty: no conversations, only tools."`
	ModelProvider  string        `env:"MODEL_PROVIDER" envDefault:"openai" doc:"openai: chat completions of OpenAI or a compatible server (vLLM, Ollama, DeepSeek). anthropic: Anthropic's messages."`
	ModelURL       string        `env:"MODEL_URL" doc:"Base URL of the provider, such as http://127.0.0.1:11434/v1. Empty: OPENAI_BASE_URL or ANTHROPIC_BASE_URL, else the provider's own."`
	ModelKey       Secret        `env:"MODEL_KEY" doc:"API key of the provider; local servers need none. If this and FARHAND_MODEL_URL are empty: OPENAI_API_KEY or ANTHROPIC_API_KEY."`
	ModelTokens    int           `env:"MODEL_MAX_TOKENS" envDefault:"0" doc:"Tokens of one answer of a model. 0: the provider's default (8192 for anthropic)."`
	ThinkingTokens int           `env:"MODEL_THINKING_TOKENS" envDefault:"0" doc:"Thinking tokens of an anthropic model before an answer, at least 1024. -1: capable models decide. 0: no thinking."`
	ModelImages    string        `env:"MODEL_IMAGES" envDefault:"auto" doc:"Show models the images that tools return: yes, no, or auto: yes at the vendor's own address, no at FARHAND_MODEL_URL, which may reject images."`
	ModelIdle      time.Duration `env:"MODEL_IDLE_TIMEOUT" envDefault:"60s" doc:"Longest silence of a provider before or during an answer."`
	ModelPrices    string        `env:"MODEL_PRICES_FILE" doc:"YAML or JSON file of the prices of models, for budgets of money (docs/tenants.md). It is reloaded on changes. Empty: models cost nothing."`
	SystemPrompt   string        `env:"SYSTEM_PROMPT" envDefault:"You are a helpful assistant. The tools you can call live on the user's own devices." doc:"System prompt of every conversation."`
	Builtins       []string      `env:"BUILTIN_TOOLS" envDefault:"time,sessions" doc:"Enabled tools of the gateway: time, sessions, read, write, edit, exec, bash, browser, nodes, node-invoke, canvas, call_devices; or none. The default applies only with a model."`
	OtherSessions  bool          `env:"OTHER_SESSIONS" envDefault:"false" doc:"Let a conversation use tools of the same user's other sessions, if its credentials name the user."`
	Unconfirmed    bool          `env:"AGENT_UNCONFIRMED" envDefault:"false" doc:"Let models call tools without approval if their security_level is user_confirm, or if only tools have named the arguments. Models never get admin_only tools."`
	AllowDebug     bool          `env:"ALLOW_DEBUG" envDefault:"true" doc:"Show devices and callers that request debug what the model receives, including the system prompt."`
	HistoryTTL     time.Duration `env:"HISTORY_TTL" envDefault:"24h" doc:"How long a conversation is stored after its last change."`
	HistoryBytes   ByteSize      `env:"HISTORY_BYTES" envDefault:"512MiB" doc:"Bytes a tenant's conversations may grow over FARHAND_HISTORY_TTL on all pods, half of them at once, half per identity. Beyond it, new turns get 429, and running turns end after their step."`
	HistoryCap     int           `env:"HISTORY_CAP" envDefault:"1000" doc:"Messages per conversation; the oldest are dropped."`

	// Turns limits the turns of conversations.
	Turns chat.Limits

	LoopWarn  int `env:"LOOP_WARN" envDefault:"10" doc:"From this many identical calls in a row, results warn the model."`
	LoopBlock int `env:"LOOP_BLOCK" envDefault:"20" doc:"From this many identical calls in a row, calls are blocked and the turn ends; a turn's first such call is only warned."`
}

// check reports invalid settings. namesUsers says whether callers can have user names, which depends on the program's
// authenticator.
func (c AgentConfig) check(check *checker, namesUsers bool) {
	check.that(slices.Contains([]string{ProviderOpenAI, ProviderAnthropic}, c.ModelProvider), "MODEL_PROVIDER",
		"must be openai or anthropic")
	seen := make(map[string]bool)
	for _, m := range c.Models {
		check.that(m != "" && !seen[m], "MODEL", fmt.Sprintf("%q is empty or appears twice", m))
		seen[m] = true
	}
	if c.ModelURL != "" {
		u, err := url.Parse(c.ModelURL)
		check.that(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "MODEL_URL",
			"must be an http or https URL")
		check.that(err != nil || u.User == nil, "MODEL_URL",
			"must not contain a user or a password: put the key in FARHAND_MODEL_KEY")
	}
	check.that(len(c.Builtins) == 1 || !slices.Contains(c.Builtins, noBuiltins), "BUILTIN_TOOLS",
		"cannot combine "+noBuiltins+" with names of tools")
	check.that(c.ModelTokens >= 0, "MODEL_MAX_TOKENS", "must not be negative")
	check.that(c.ThinkingTokens >= 1024 || c.ThinkingTokens == 0 || c.ThinkingTokens == -1, "MODEL_THINKING_TOKENS",
		"must be 0, -1, or at least 1024")
	check.that(slices.Contains([]string{"", "auto", "yes", "no"}, c.ModelImages), "MODEL_IMAGES",
		"must be auto, yes or no")
	check.that(!c.OtherSessions || namesUsers, "OTHER_SESSIONS", "has no effect: the program's "+
		"authenticator names no users. Remove it")
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
	ToolsOff       []string      `env:"TOOLS_OFF" doc:"Optional tools of the embedding program to disable."`
	ToolMemory     ByteSize      `env:"TOOL_MEMORY_BYTES" envDefault:"64MiB" doc:"Bytes of the memories of the embedding program's tools per tenant, at least 4MiB (docs/embedding.md). A user and a conversation may use a 64th each."`
	AgentID        string        `env:"AGENT_ID" envDefault:"main" doc:"Name of the agent, sent to its tools; part of its folder in FARHAND_WORKSPACE_DIR."`
	WorkspaceDir   string        `env:"WORKSPACE_DIR" doc:"Absolute path of the workspaces of read, write, edit, exec and bash, one per agent session. On a fleet, use a volume that all pods share. Empty: the default state folder (docs/operate.md)."`
	WorkspaceBytes ByteSize      `env:"WORKSPACE_BYTES" envDefault:"256MiB" doc:"Disk space of a workspace. A command that exceeds it is killed."`
	WorkspaceFiles int           `env:"WORKSPACE_FILES" envDefault:"20000" doc:"Files and folders of one workspace."`
	WorkspaceTTL   time.Duration `env:"WORKSPACE_TTL" envDefault:"24h" doc:"How long a workspace is stored after its last use, at least 15m."`
	ProgramUser    int           `env:"PROGRAM_USER" envDefault:"65534" doc:"User and group id of programs and workspaces if the gateway runs as root. Otherwise: the gateway's own user."`
	ProgramEnv     []string      `env:"PROGRAM_ENV" doc:"Variables of the gateway's environment that exec and bash pass on. All others are hidden."`
	ProgramMemory  ByteSize      `env:"PROGRAM_MEMORY" envDefault:"512MiB" doc:"Memory of one command, or of one sandbox."`
	Processes      int           `env:"PROGRAM_PROCESSES" envDefault:"128" doc:"Processes and threads of one command, or of one sandbox."`
	MaxCommands    int           `env:"MAX_COMMANDS" envDefault:"16" doc:"Running commands of exec and bash on this pod, at most half per tenant. Others wait, and fail with busy at their timeout. Idle sandbox containers have the same limits."`
	Sandbox        string        `env:"SANDBOX" envDefault:"auto" doc:"Engine of exec and bash in group sandboxed conversations. docker: containers. landlock: the kernel's Landlock, weaker, without containers. auto: docker; landlock, with a log line, if no container engine is configured (FARHAND_DOCKER_HOST, DOCKER_HOST, FARHAND_SANDBOX_IMAGE, FARHAND_SANDBOX_PULL) and none works at start; if a configured one does not work, serve fails. docker,landlock: landlock in that case too. none: neither tool. See farhand doctor."`
	SandboxImage   string        `env:"SANDBOX_IMAGE" envDefault:"debian:stable-slim" doc:"Container image, with /bin/sh and the programs that commands need."`
	SandboxPull    bool          `env:"SANDBOX_PULL" envDefault:"false" doc:"Pull the image if it is missing."`
	DockerHost     string        `env:"DOCKER_HOST" doc:"Container engine: unix:///path or tcp://host:port. Empty: DOCKER_HOST, else unix:///var/run/docker.sock. It must see workspaces at the gateway's paths."`
	SandboxCPUs    float64       `env:"SANDBOX_CPUS" envDefault:"1" doc:"CPUs of one container."`
	SandboxIdle    time.Duration `env:"SANDBOX_IDLE" envDefault:"10m" doc:"How long an unused container or browser stays."`
	BrowserProgram string        `env:"BROWSER" doc:"Absolute path of Chromium for the tool browser. Empty: its usual places."`
	BrowserBare    bool          `env:"BROWSER_NO_SANDBOX" envDefault:"false" doc:"Run Chromium without its own sandbox, as root or without user namespaces. A page that escapes Chromium then has the gateway user's rights."`
	MaxBrowsers    int           `env:"MAX_BROWSERS" envDefault:"8" doc:"Browsers of this pod, one per agent session, at most half per tenant. Each takes some hundred megabytes."`
	BrowserMemory  ByteSize      `env:"BROWSER_MEMORY" envDefault:"2GiB" doc:"Memory of one browser, at least 256MiB. A browser that exceeds it is closed."`
	PrivateURLs    bool          `env:"PRIVATE_URLS" envDefault:"false" doc:"Let browsers and devices' canvases load from private networks and their own machine, and let devices be woken by URLs there. Cloud metadata addresses stay blocked."`
	BrowserPorts   []int         `env:"BROWSER_PORTS" doc:"Ports besides 80 and 443 that pages may load from."`
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
	if c.WorkspaceDir != "" {
		return c.WorkspaceDir, nil
	}
	dir, err := StateDir(os.Environ())
	if err != nil {
		return "", fmt.Errorf("FARHAND_WORKSPACE_DIR: must be set: %w", err)
	}
	return dir, nil
}

func (c ToolsConfig) check(check *checker) {
	known := []string{SandboxAuto, SandboxDocker, SandboxLandlock, SandboxEither, SandboxNone}
	check.that(slices.Contains(known, c.Sandbox), "SANDBOX",
		"must be auto, docker, landlock, docker,landlock or none")
	check.that(c.WorkspaceDir == "" || filepath.IsAbs(c.WorkspaceDir), "WORKSPACE_DIR", "must be an absolute path")
	check.that(registry.ValidToolName(c.AgentID), "AGENT_ID",
		"must consist of letters, digits, '.', '_' and '-', and begin with a letter")
	check.that(c.WorkspaceTTL >= minWorkspaceTTL, "WORKSPACE_TTL",
		"must be at least 15m: a command may run that long")
	for _, port := range c.BrowserPorts {
		check.that(port > 0 && port < 1<<16, "BROWSER_PORTS", fmt.Sprintf("%d is not a port", port))
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

// consoleOff is the value of Config.Console without the pages for people.
const consoleOff = "off"

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
