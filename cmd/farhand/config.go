package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/dustin/go-humanize"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

// envPrefix starts the name of every variable the program reads.
const envPrefix = "FARHAND_"

// Config is everything `farhand serve` reads from its environment. The tags are the documentation: `farhand config`
// and docs/configuration.md are generated from them.
type Config struct {
	Addr           string        `env:"ADDR" envDefault:"127.0.0.1:8080" doc:"Address to listen on, host:port. Without FARHAND_TOKEN it must be a loopback address."`
	RedisURL       Secret        `env:"REDIS_URL" doc:"Redis or Valkey of the fleet: redis://, rediss:// (TLS), several host:port separated by commas for a Cluster, redis+sentinel://host:port,host:port/master. Empty: this process runs alone on an in-memory store."`
	RedisCA        string        `env:"REDIS_CA" doc:"PEM file with the authorities that may have signed the certificate of Redis, for rediss://. Empty: those the system trusts."`
	Token          Secret        `env:"TOKEN" doc:"Bearer token that devices and callers must present: at least 16 characters, for example from openssl rand -base64 32. Whoever has it may do everything. Empty: no identity, loopback only."`
	AllowWeakToken bool          `env:"ALLOW_WEAK_TOKEN" envDefault:"false" doc:"Serve other machines although FARHAND_TOKEN is short or repeats itself."`
	AllowedOrigins []string      `env:"ALLOWED_ORIGINS" doc:"Web origins that may connect, comma-separated (https://console.example.com), or * for all. Requests without an Origin header and pages of the same host always may."`
	AllowQuery     bool          `env:"ALLOW_QUERY_TOKEN" envDefault:"true" doc:"Accept ?token= on the WebSocket, for clients that can set neither header nor subprotocol. URLs end up in logs of proxies; switch it off when no client needs it."`
	CallTimeout    time.Duration `env:"CALL_TIMEOUT" envDefault:"30s" doc:"How long a call waits for the device when neither the call nor the tool says."`
	MaxCallTimeout time.Duration `env:"MAX_CALL_TIMEOUT" envDefault:"5m" doc:"The longest a call may wait, whatever it asks for."`
	SessionTTL     time.Duration `env:"SESSION_TTL" envDefault:"60s" doc:"Life of a session's keys in the store between refreshes; a third of it is the refresh interval."`
	PodLease       time.Duration `env:"POD_LEASE" envDefault:"10s" doc:"A pod that died is noticed, and its tools are gone from every listing, within this time."`
	PodID          string        `env:"POD_ID" doc:"Name of this process in the fleet. Must differ at every start. Empty: host name and a random part."`
	DrainTimeout   time.Duration `env:"DRAIN_TIMEOUT" envDefault:"30s" doc:"How long stopping may take: calls in flight finish, devices move to other pods."`
	MaxFrame       ByteSize      `env:"MAX_FRAME" envDefault:"1MiB" doc:"Largest WebSocket message a device may send, unless it answers a call."`
	MaxOutput      ByteSize      `env:"MAX_OUTPUT" envDefault:"4MiB" doc:"Largest output of a tool. A device's message that has it may be twice as long, as JSON escapes. If only FARHAND_MAX_FRAME is set, that."`
	MaxBody        ByteSize      `env:"MAX_BODY" envDefault:"1MiB" doc:"Largest HTTP request body."`
	MaxResponses   ByteSize      `env:"MAX_RESPONSE_BYTES" envDefault:"64MiB" doc:"Bytes of HTTP answers longer than 64 KiB that this pod makes or sends at a time. When they are used up, callers that do not read are cut off. A page of a list ends at 1 MiB."`
	MaxRequests    ByteSize      `env:"MAX_REQUEST_BYTES" envDefault:"64MiB" doc:"Bytes of HTTP request bodies longer than 16 KiB that this pod holds at a time, until their calls or turns have ended. When they are used up, callers that stopped sending are cut off, and further ones are told to come back (429)."`
	MaxStreams     int           `env:"MAX_STREAMS" envDefault:"1000" doc:"Event streams (/api/events, those of calls, streamed turns) open at once on this pod."`
	CallerStreams  int           `env:"MAX_STREAMS_PER_CALLER" envDefault:"250" doc:"Those of one identity from one source address."`
	MaxOutbound    ByteSize      `env:"MAX_OUTBOUND" envDefault:"4MiB" doc:"Bytes queued for one device before it is closed as too slow."`
	MaxTools       int           `env:"MAX_TOOLS" envDefault:"128" doc:"Tools one session may offer."`
	MaxCalls       int           `env:"MAX_CALLS_PER_SESSION" envDefault:"64" doc:"Calls in flight to one session; more are refused as busy."`
	MaxToolBytes   ByteSize      `env:"MAX_TOOL_BYTES" envDefault:"1MiB" doc:"Size of all tool definitions of one session together."`
	MaxSchema      ByteSize      `env:"MAX_SCHEMA" envDefault:"64KiB" doc:"Size of one tool's parameters schema."`
	MaxSchemaDepth int           `env:"MAX_SCHEMA_DEPTH" envDefault:"32" doc:"How deep one tool's parameters schema may nest."`
	MaxDescription int           `env:"MAX_DESCRIPTION" envDefault:"1024" doc:"Characters of a tool's description that are kept."`
	FrameRate      float64       `env:"FRAME_RATE" envDefault:"500" doc:"WebSocket frames a second one device may send, every piece of a message, ping and pong among them; answers to open calls are free. Connecting again gives no new ones."`
	FrameBurst     float64       `env:"FRAME_BURST" envDefault:"1000" doc:"WebSocket frames one device may send at once."`
	MessageTimeout time.Duration `env:"MESSAGE_TIMEOUT" envDefault:"30s" doc:"How long one WebSocket message may take from its first byte to its last."`
	MaxUnfinished  ByteSize      `env:"MAX_UNFINISHED" envDefault:"64MiB" doc:"Bytes this pod holds of WebSocket messages that are not complete or not handled yet. Over it the device that began its message first is closed. At least four times the longest message."`
	OpenRate       float64       `env:"OPEN_RATE" envDefault:"1000" doc:"Sessions a second that one source address may open on this pod; more are told to come back (429)."`
	OpenBurst      float64       `env:"OPEN_BURST" envDefault:"4000" doc:"Sessions one source address may open at once."`
	TrustedProxies []string      `env:"TRUSTED_PROXIES" doc:"Addresses or networks of load balancers, comma-separated (10.0.0.0/8), whose X-Forwarded-For says where a request comes from. Empty: none, and what is limited by source counts for all that comes through a balancer together."`
	Retention      time.Duration `env:"RETENTION" envDefault:"15m" doc:"How long the record of a call is kept after its last change."`
	IdempotencyTTL time.Duration `env:"IDEMPOTENCY_TTL" envDefault:"24h" doc:"How long an idempotency key is remembered, at most: it means something as long as the record of its call is kept."`
	ActivityTTL    time.Duration `env:"ACTIVITY_TTL" envDefault:"24h" doc:"How long the activity feed is kept while nothing is added to it."`
	ActivityCap    int           `env:"ACTIVITY_CAP" envDefault:"10000" doc:"Lines of the activity feed that are kept, about."`
	ActivityBytes  ByteSize      `env:"ACTIVITY_BYTES" envDefault:"16MiB" doc:"Bytes of those lines that are kept, about, for each tenant."`
	CallBytes      ByteSize      `env:"CALL_BYTES" envDefault:"512MiB" doc:"Bytes of calls' records, logs and outputs that are kept for one tenant, by all pods together; an eighth of them for one session. Half may be added at once, the other half over FARHAND_RETENTION. Beyond that calls that need a record are refused (429), and outputs of calls that ran are cut, and say so."`
	CallLog        ByteSize      `env:"CALL_LOG" envDefault:"1MiB" doc:"Bytes that are kept of what a device reports of one call on its way; at most 3MiB. With its output a call never adds more than 8 MB to the store."`
	NewToolBytes   ByteSize      `env:"NEW_TOOL_BYTES" envDefault:"64MiB" doc:"Bytes of tool definitions nobody offers yet that one tenant may register over twice FARHAND_SESSION_TTL, half of them at once; an eighth of them by one session. What is offered already is free."`
	PingInterval   time.Duration `env:"PING_INTERVAL" envDefault:"20s" doc:"How often a device is pinged. Keep it well under the idle limit of the load balancer."`
	PongTimeout    time.Duration `env:"PONG_TIMEOUT" envDefault:"45s" doc:"A device that has not answered a ping for this long is gone."`
	RegisterAllow  []string      `env:"REGISTER_ALLOW" doc:"Globs of tool names devices may register, comma-separated. Empty: all."`
	RegisterDeny   []string      `env:"REGISTER_DENY" doc:"Globs of tool names devices may not register. Deny wins."`
	CallAllow      []string      `env:"CALL_ALLOW" doc:"Globs of tool names that may be called. Empty: all."`
	CallDeny       []string      `env:"CALL_DENY" doc:"Globs of tool names that may not be called. Deny wins."`
	LogLevel       slog.Level    `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error."`
	LogFormat      string        `env:"LOG_FORMAT" envDefault:"auto" doc:"json, text, or auto: text on a terminal, json elsewhere."`

	AgentConfig
}

// clientVariables are read by the other commands, so `serve` must not call them unknown.
var clientVariables = []variable{
	{Name: envPrefix + "URL", Default: "http://127.0.0.1:8080", Doc: "The gateway that device, call, chat, tools and sessions talk to."},
}

// minDuration is the least any duration may be: below it the upkeep would do nothing else.
const minDuration = 100 * time.Millisecond

// loadConfig reads the variables in environ. The error lists everything that is wrong, not only the first.
func loadConfig(environ []string) (Config, error) {
	environment := env.ToMap(environ)
	cfg, err := env.ParseAsWithOptions[Config](env.Options{Prefix: envPrefix, Environment: environment})
	if err != nil {
		return cfg, explainParseErrors(err, environment)
	}
	cfg.fallBack(environment)
	if environment[envPrefix+"MAX_OUTPUT"] == "" && environment[envPrefix+"MAX_FRAME"] != "" {
		cfg.MaxOutput = cfg.MaxFrame
	}
	return cfg, cfg.validate()
}

func (c Config) validate() error {
	var errs []error
	check := func(ok bool, variable, message string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s%s: %s", envPrefix, variable, message))
		}
	}
	for name, d := range map[string]time.Duration{
		"CALL_TIMEOUT": c.CallTimeout, "MAX_CALL_TIMEOUT": c.MaxCallTimeout, "SESSION_TTL": c.SessionTTL,
		"POD_LEASE": c.PodLease, "DRAIN_TIMEOUT": c.DrainTimeout, "PING_INTERVAL": c.PingInterval,
		"PONG_TIMEOUT": c.PongTimeout, "RETENTION": c.Retention, "IDEMPOTENCY_TTL": c.IdempotencyTTL, "ACTIVITY_TTL": c.ActivityTTL,
		"MESSAGE_TIMEOUT": c.MessageTimeout,
	} {
		check(d >= minDuration, name, "must be at least "+minDuration.String())
	}
	for name, size := range map[string]ByteSize{
		"MAX_FRAME": c.MaxFrame, "MAX_OUTPUT": c.MaxOutput, "MAX_BODY": c.MaxBody, "MAX_RESPONSE_BYTES": c.MaxResponses, "MAX_REQUEST_BYTES": c.MaxRequests, "MAX_OUTBOUND": c.MaxOutbound, "MAX_TOOL_BYTES": c.MaxToolBytes, "MAX_SCHEMA": c.MaxSchema, "MAX_UNFINISHED": c.MaxUnfinished,
		"ACTIVITY_BYTES": c.ActivityBytes, "CALL_LOG": c.CallLog,
	} {
		check(size >= 1<<10 && size <= 1<<30, name, "must be between 1KiB and 1GiB")
	}
	check(c.MaxRequests >= c.MaxBody, "MAX_REQUEST_BYTES", "must be at least FARHAND_MAX_BODY")
	check(c.CallLog <= routing.MaxCallLog, "CALL_LOG", "must be at most 3MiB")
	for name, size := range map[string]ByteSize{"CALL_BYTES": c.CallBytes, "NEW_TOOL_BYTES": c.NewToolBytes} {
		check(size >= 1<<20, name, "must be at least 1MiB")
	}
	for name, n := range map[string]int{
		"MAX_TOOLS": c.MaxTools, "MAX_CALLS_PER_SESSION": c.MaxCalls, "MAX_SCHEMA_DEPTH": c.MaxSchemaDepth,
		"MAX_DESCRIPTION": c.MaxDescription, "ACTIVITY_CAP": c.ActivityCap,
		"MAX_STREAMS": c.MaxStreams, "MAX_STREAMS_PER_CALLER": c.CallerStreams,
	} {
		check(n > 0, name, "must be greater than zero")
	}
	check(c.FrameRate > 0 && c.FrameBurst >= 1, "FRAME_RATE, FRAME_BURST", "must be greater than zero")
	check(c.OpenRate > 0 && c.OpenBurst >= 1, "OPEN_RATE, OPEN_BURST", "must be greater than zero")
	check(c.CallTimeout <= c.MaxCallTimeout, "CALL_TIMEOUT", "must not be longer than FARHAND_MAX_CALL_TIMEOUT")
	check(c.PongTimeout > c.PingInterval, "PONG_TIMEOUT", "must be longer than FARHAND_PING_INTERVAL")
	check(c.MaxOutbound >= ws.MinOutbound && c.MaxOutbound >= c.MaxFrame, "MAX_OUTBOUND",
		fmt.Sprintf("must be at least %d bytes, and at least FARHAND_MAX_FRAME", ws.MinOutbound))
	check(slices.Contains([]string{"auto", "json", "text"}, c.LogFormat), "LOG_FORMAT", "must be auto, json or text")
	c.AgentConfig.check(check)
	if c.RedisURL != "" {
		if err := redisstore.CheckURL(string(c.RedisURL)); err != nil {
			check(false, "REDIS_URL", err.Error())
		}
	}
	if c.PodID != "" {
		check(registry.Key{Tenant: registry.DefaultTenant, Session: c.PodID}.Validate() == nil, "POD_ID", "may hold letters, digits, '.', '_' and '-'")
	}
	if _, err := auth.NewOrigins(c.AllowedOrigins, false); err != nil {
		check(false, "ALLOWED_ORIGINS", registry.AsError(err).Message)
	}
	if _, err := auth.NewSources(c.TrustedProxies); err != nil {
		check(false, "TRUSTED_PROXIES", err.Error())
	}
	if _, err := agent.NewPolicy(c.policyRules()); err != nil {
		check(false, "REGISTER_ALLOW, REGISTER_DENY, CALL_ALLOW, CALL_DENY", registry.AsError(err).Message)
	}
	if err := c.checkExposure(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkExposure refuses to serve strangers without a token.
func (c Config) checkExposure() error {
	host, port, err := net.SplitHostPort(c.Addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%sADDR: must be host:port, for example 127.0.0.1:8080", envPrefix)
	}
	if c.Token == "" && !isLoopback(host) {
		return fmt.Errorf("%sADDR %s is reachable from other machines, and without a token anybody there could call "+
			"tools on your devices: set %sTOKEN to a long random secret, or listen on 127.0.0.1", envPrefix, c.Addr, envPrefix)
	}
	if c.Token != "" && weakToken(string(c.Token)) && !isLoopback(host) && !c.AllowWeakToken {
		return fmt.Errorf("%sTOKEN is short or repeats itself, so whoever reaches %s could guess it: make another one with "+
			"`openssl rand -base64 32`, or set %sALLOW_WEAK_TOKEN=true if nobody but you can reach the address", envPrefix, c.Addr, envPrefix)
	}
	return nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

func (c Config) policyRules() agent.PolicyRules {
	return agent.PolicyRules{
		RegisterAllow: c.RegisterAllow, RegisterDeny: c.RegisterDeny, CallAllow: c.CallAllow, CallDeny: c.CallDeny,
	}
}

func (c Config) admissionLimits() agent.AdmissionLimits {
	return agent.AdmissionLimits{
		MaxTools: c.MaxTools, MaxToolBytes: int(c.MaxToolBytes),
		Tool: registry.ToolLimits{
			SchemaBytes: int(c.MaxSchema), SchemaDepth: c.MaxSchemaDepth, Description: c.MaxDescription,
		},
	}
}

// insecurities names the settings an operator should know the price of.
func (c Config) insecurities() []string {
	var found []string
	if c.Token == "" {
		found = append(found, "FARHAND_TOKEN is empty: every program on this machine can call every tool.")
	} else {
		found = append(found, "FARHAND_TOKEN is shared by devices and callers: every device can do what an administrator can.")
		if weakToken(string(c.Token)) {
			found = append(found, "FARHAND_TOKEN is shorter than 16 characters or repeats itself: it can be guessed.")
		}
	}
	if slices.Contains(c.AllowedOrigins, "*") {
		found = append(found, "FARHAND_ALLOWED_ORIGINS is *: any web page a user visits may talk to the gateway.")
	}
	if c.Token != "" && c.AllowQuery {
		found = append(found, "FARHAND_ALLOW_QUERY_TOKEN is on: tokens in URLs end up in the logs of proxies.")
	}
	if url := string(c.RedisURL); strings.HasPrefix(url, "redis") && !strings.HasPrefix(url, "rediss") && !redisIsLocal(url) {
		found = append(found, "FARHAND_REDIS_URL has no TLS (rediss://) and does not point to this machine.")
	}
	return found
}

// redisIsLocal reports whether every address of a Redis URL is a loopback one.
func redisIsLocal(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "/")
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		rest = rest[i+1:]
	}
	for addr := range strings.SplitSeq(rest, ",") {
		host := addr
		if h, _, err := net.SplitHostPort(addr); err == nil {
			host = h
		}
		if !isLoopback(host) {
			return false
		}
	}
	return true
}

// unknownVariables returns the FARHAND_ variables that mean nothing, most likely misspelt, each with the one that was
// probably meant, or nothing.
func unknownVariables(environ []string) (names []string, meant map[string]string) {
	var known []string
	for _, v := range variables() {
		known = append(known, v.Name)
	}
	meant = make(map[string]string)
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) {
			names = append(names, name)
			meant[name] = nearest(name, known)
		}
	}
	slices.Sort(names)
	return names, meant
}

// variable documents one environment variable.
type variable struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Doc     string `json:"meaning"`
	Value   string `json:"value,omitempty"` // set when it differs from the default; secrets are masked

	secret bool
}

// variables lists everything the program reads from its environment, from the tags of Config.
func variables() []variable {
	var all []variable
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if f.Anonymous {
			continue
		}
		all = append(all, variable{
			Name: envPrefix + f.Tag.Get("env"), Default: f.Tag.Get("envDefault"), Doc: f.Tag.Get("doc"),
			secret: f.Type == reflect.TypeFor[Secret](),
		})
	}
	return append(all, clientVariables...)
}

// Secret is a value that never shows itself.
type Secret string

// masked is what is shown instead of a secret.
const masked = "********"

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// ByteSize is a number of bytes, read with or without a unit: 1048576, 1MiB, 1MB.
type ByteSize int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *ByteSize) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil || n > 1<<40 {
		return errors.New("must be a size like 1048576, 1MiB or 512KB")
	}
	*b = ByteSize(n)
	return nil
}
