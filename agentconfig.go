package farhand

import (
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/usage"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/metrics"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// Providers of models: values of AgentConfig.ModelProvider.
const (
	ProviderOpenAI    = "openai"
	ProviderAnthropic = "anthropic"
)

// noBuiltins means no built-in tool at all, because an empty variable means the default.
const noBuiltins = "none"

// AgentConfig is the part of Config that is about conversations.
type AgentConfig struct {
	Models         []string      `env:"MODEL" doc:"Names of the language models of conversations, comma-separated; the first is the default. Empty: no agent, tools can be registered and called all the same."`
	ModelProvider  string        `env:"MODEL_PROVIDER" envDefault:"openai" doc:"openai: chat completions of OpenAI or any compatible server (vLLM, Ollama, DeepSeek). anthropic: Anthropic's messages."`
	ModelURL       string        `env:"MODEL_URL" doc:"Base URL of the provider, for example http://127.0.0.1:11434/v1. Empty: OPENAI_BASE_URL or ANTHROPIC_BASE_URL, else the provider's own."`
	ModelKey       Secret        `env:"MODEL_KEY" doc:"API key of the provider; local servers need none. Empty, and FARHAND_MODEL_URL too: OPENAI_API_KEY or ANTHROPIC_API_KEY."`
	ModelTokens    int           `env:"MODEL_MAX_TOKENS" envDefault:"0" doc:"Tokens of one answer of a model, at most. 0: the provider's default (8192 for anthropic)."`
	ThinkingTokens int           `env:"MODEL_THINKING_TOKENS" envDefault:"0" doc:"Tokens a model of anthropic may think with before it answers, 1024 or more; -1 lets models decide that know how to; 0: it does not think."`
	ModelImages    string        `env:"MODEL_IMAGES" envDefault:"auto" doc:"Show models the images that tools return: yes or no. auto: yes for models behind their vendor's own address, no behind FARHAND_MODEL_URL, where a server may refuse what has an image."`
	ModelIdle      time.Duration `env:"MODEL_IDLE_TIMEOUT" envDefault:"60s" doc:"Longest silence of a provider before and within an answer."`
	SystemPrompt   string        `env:"SYSTEM_PROMPT" envDefault:"You are a helpful assistant. The tools you can call live on the user's own devices." doc:"What a model is told before every conversation the gateway keeps."`
	Builtins       []string      `env:"BUILTIN_TOOLS" envDefault:"time,sessions" doc:"Tools of the gateway itself that are enabled, comma-separated: time, sessions, read, write, edit, exec, bash, browser, nodes, node-invoke, canvas. The default holds when there is a model; without one it is none. none: no such tool."`
	OtherSessions  bool          `env:"OTHER_SESSIONS" envDefault:"false" doc:"Let a conversation also use the tools of the same user's other sessions, if its credentials name the user."`
	Unconfirmed    bool          `env:"AGENT_UNCONFIRMED" envDefault:"false" doc:"Let models call tools whose security_level is user_confirm, and with arguments that only tools have named, although nobody is asked. Tools that are admin_only are never offered to a model."`
	AllowDebug     bool          `env:"ALLOW_DEBUG" envDefault:"true" doc:"Show devices and callers that ask for debug what the model is asked, the system prompt included. Off: they get their answer without it."`
	HistoryTTL     time.Duration `env:"HISTORY_TTL" envDefault:"24h" doc:"How long a conversation is kept after its last change."`
	HistoryBytes   ByteSize      `env:"HISTORY_BYTES" envDefault:"512MiB" doc:"Bytes by which the conversations of one tenant may grow over FARHAND_HISTORY_TTL, by all pods together, half of them at once; half of them by one identity. Beyond that no turn begins (429); one that runs goes on, and its bytes count for later ones."`
	HistoryCap     int           `env:"HISTORY_CAP" envDefault:"1000" doc:"Messages of one conversation that are kept; the oldest are forgotten."`
	TurnTimeout    time.Duration `env:"TURN_TIMEOUT" envDefault:"10m" doc:"How long one turn of a conversation may take."`
	TurnWait       time.Duration `env:"TURN_WAIT" envDefault:"30s" doc:"How long a message waits for the turn before it, until it is refused as SESSION_BUSY."`
	HandoutTTL     time.Duration `env:"HANDOUT_TTL" envDefault:"15m" doc:"How long /v1/chat/completions knows what tools of the device returned before it handed a call to its caller, who may come back to any pod."`
	TurnSteps      int           `env:"TURN_MAX_STEPS" envDefault:"40" doc:"Requests to the model in one turn."`
	TurnCalls      int           `env:"TURN_MAX_CALLS" envDefault:"200" doc:"Tool calls in one turn."`
	TurnTokens     int           `env:"TURN_MAX_TOKENS" envDefault:"1000000" doc:"Tokens of one turn, read and written, over all its requests."`
	ContextTokens  int           `env:"CONTEXT_TOKENS" envDefault:"100000" doc:"Estimated tokens of one request to a model; older messages are left out above it."`
	MaxResult      ByteSize      `env:"MAX_RESULT" envDefault:"32KiB" doc:"How much of one tool result a model reads; of a longer one it reads the head and the tail."`
	MaxTurns       int           `env:"MAX_TURNS" envDefault:"1000" doc:"Turns one pod runs, or lets wait, at once, at most half of them of one tenant."`
	LoopWarn       int           `env:"LOOP_WARN" envDefault:"10" doc:"From this identical call in a row on, its result tells the model that it repeats itself."`
	LoopBlock      int           `env:"LOOP_BLOCK" envDefault:"20" doc:"From this identical call in a row on, calls are stopped and the turn ends; the first such call of a turn is only warned."`
}

// check reports what is wrong with the configuration. Callers may be users by name only if the program brings an
// authenticator.
func (c AgentConfig) check(wrong func(ok bool, variable, message string), namesUsers bool) {
	wrong(slices.Contains([]string{ProviderOpenAI, ProviderAnthropic}, c.ModelProvider), "MODEL_PROVIDER",
		"must be openai or anthropic")
	seen := make(map[string]bool)
	for _, m := range c.Models {
		wrong(m != "" && !seen[m], "MODEL", fmt.Sprintf("names %q twice, or nothing", m))
		seen[m] = true
	}
	if c.ModelURL != "" {
		u, err := url.Parse(c.ModelURL)
		wrong(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "MODEL_URL",
			"must be an http or https URL")
		wrong(err != nil || u.User == nil, "MODEL_URL",
			"must not hold a user or a password: a key belongs in FARHAND_MODEL_KEY")
	}
	wrong(len(c.Builtins) == 1 || !slices.Contains(c.Builtins, noBuiltins), "BUILTIN_TOOLS",
		noBuiltins+" stands alone: it means that no tool is enabled")
	wrong(c.ModelTokens >= 0, "MODEL_MAX_TOKENS", "must not be negative")
	wrong(c.ThinkingTokens >= 1024 || c.ThinkingTokens == 0 || c.ThinkingTokens == -1, "MODEL_THINKING_TOKENS",
		"must be 0, -1, or at least 1024")
	wrong(slices.Contains([]string{"", "auto", "yes", "no"}, c.ModelImages), "MODEL_IMAGES", "must be auto, yes or no")
	wrong(!c.OtherSessions || namesUsers, "OTHER_SESSIONS", "cannot work: the program's authenticator "+
		"names no users, so no session has another one of the same user. Remove it")
	wrong(c.LoopWarn < c.LoopBlock, "LOOP_WARN", "must be less than FARHAND_LOOP_BLOCK")
}

// fallBack fills in what the providers' own tools read from the environment, so that a machine that is set up for them
// needs nothing else.
func (c *AgentConfig) fallBack(environment map[string]string) {
	prefix := map[string]string{ProviderOpenAI: "OPENAI_", ProviderAnthropic: "ANTHROPIC_"}[c.ModelProvider]
	if prefix == "" {
		return
	}
	// A key is only for where it comes from: it is not sent to an address that was given without one.
	if c.ModelKey == "" && c.ModelURL == "" {
		c.ModelKey = Secret(environment[prefix+"API_KEY"])
	}
	if c.ModelURL == "" {
		c.ModelURL = environment[prefix+"BASE_URL"]
	}
}

// defaultBuiltins are the built-in tools of a gateway with a model that names none.
var defaultBuiltins = []string{"time", "sessions"}

// builtins returns the names of the built-in tools that are enabled. The default ones are for the gateway's agent:
// without a model there are none.
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

// models makes the models. How long they may take is the turn's to say.
func (c AgentConfig) models(log *slog.Logger) []provider.Model {
	var made []provider.Model
	for _, name := range c.Models {
		cfg := provider.Config{
			Name: name, BaseURL: c.ModelURL, APIKey: string(c.ModelKey), MaxTokens: c.ModelTokens,
			Timeout: c.TurnTimeout, Idle: c.ModelIdle, Log: log,
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

func (c AgentConfig) limits() chat.Limits {
	return chat.Limits{
		Iterations: c.TurnSteps, ToolCalls: c.TurnCalls, Turn: c.TurnTimeout, Tokens: c.TurnTokens,
		ContextTokens: c.ContextTokens, MaxResult: int(c.MaxResult), MaxTurns: c.MaxTurns, Wait: c.TurnWait,
		Continuation: c.HandoutTTL,
	}
}

// turnActivity counts the turns of conversations, adds up their tokens, and notes them in the feed. It implements
// chat.Activity.
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
