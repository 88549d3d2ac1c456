package farhand

import (
	"log/slog"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/internal/secret"
)

// EnvPrefix is the prefix of every variable that LoadConfig reads.
const EnvPrefix = "FARHAND_"

// Config has every setting of a gateway. `farhand config` and docs/configuration.md are generated from its tags.
// LoadConfig reads it from the environment; a program can also fill it in itself.
type Config struct {
	Addr           string        `env:"ADDR" envDefault:"127.0.0.1:8080" doc:"Address to listen on, host:port. Without FARHAND_TOKEN it must be a loopback address."`
	RedisURL       Secret        `env:"REDIS_URL" doc:"Redis or Valkey of the fleet: redis://, rediss:// (TLS), several host:port separated by commas for a Cluster, redis+sentinel://host:port,host:port/master. Empty: this process runs alone on an in-memory store."`
	RedisCA        string        `env:"REDIS_CA" doc:"PEM file with the authorities that may have signed the certificate of Redis, for rediss://. Empty: those the system trusts."`
	RedisTimeout   time.Duration `env:"REDIS_TIMEOUT" envDefault:"800ms" doc:"How long Redis may take to accept a connection, and to answer a command. After that the caller hears store_unavailable."`
	Token          Secret        `env:"TOKEN" doc:"Bearer token that devices and callers must present: at least 16 characters, for example from openssl rand -base64 32. Its holder may do everything. Empty: no identity, loopback only, unless FARHAND_KEYS_ONLY is set or JSON Web Tokens are accepted."`
	AllowWeakToken bool          `env:"ALLOW_WEAK_TOKEN" envDefault:"false" doc:"Serve other machines although FARHAND_TOKEN is short or repeats itself."`
	KeysOnly       bool          `env:"KEYS_ONLY" envDefault:"false" doc:"Require an API key, a device's credential or a JSON Web Token, also from this machine. FARHAND_TOKEN must be empty, and FARHAND_ADDR may be any address. Make the first key with farhand keys create --store, which needs FARHAND_REDIS_URL."`
	MaxCredentials int           `env:"MAX_CREDENTIALS" envDefault:"10000" doc:"API keys and paired devices one tenant may have."`
	MaxRevocations int           `env:"MAX_REVOCATIONS" envDefault:"10000" doc:"Revoked users, devices and JSON Web Tokens of one tenant that are remembered, of each as many, until no token from before can be presented. Further revocations are refused, and told so (429)."`
	PublicURL      string        `env:"PUBLIC_URL" doc:"URL of the gateway as its clients reach it, without a path: https://gateway.example.com. It tells MCP clients where to get a token, and the gateway accepts tokens issued for it beside those for FARHAND_JWT_AUDIENCE. Empty: only clients on this machine learn it."`
	AllowedHosts   []string      `env:"ALLOWED_HOSTS" doc:"Host names the gateway answers to, comma-separated (gateway.example.com): a page that had its own name pointed at the gateway is refused. IP addresses and localhost always pass. Default: any."`
	AllowedOrigins []string      `env:"ALLOWED_ORIGINS" doc:"Web origins that may connect, comma-separated (https://console.example.com), or * for all. Requests without an Origin header and pages of the same host always may."`
	AllowQuery     bool          `env:"ALLOW_QUERY_TOKEN" envDefault:"true" doc:"Accept ?token= on the WebSocket, for clients that can set neither header nor subprotocol. URLs end up in logs of proxies; switch it off when no client needs it."`
	CallTimeout    time.Duration `env:"CALL_TIMEOUT" envDefault:"30s" doc:"How long a call waits for the device when neither the call nor the tool says."`
	ApprovalTime   time.Duration `env:"APPROVAL_TIMEOUT" envDefault:"2m" doc:"How long a person has to answer about a call that needs an approval, while its caller or the turn of a conversation waits; the policy may say another time. At most an hour. The timeout of the call starts after that; a caller that names a timeout waits no longer. No answer is a denial."`
	DeferredTime   time.Duration `env:"ASYNC_APPROVAL_TIMEOUT" envDefault:"1h" doc:"How long a person has to answer about an asynchronous call, which waits without a caller and starts when it is allowed. At most 24h."`
	MaxCallTimeout time.Duration `env:"MAX_CALL_TIMEOUT" envDefault:"5m" doc:"The longest a call may wait, whatever it asks for."`
	SessionTTL     time.Duration `env:"SESSION_TTL" envDefault:"60s" doc:"Life of a session's keys in the store between refreshes; a third of it is the refresh interval."`
	PodLease       time.Duration `env:"POD_LEASE" envDefault:"10s" doc:"A pod that died is noticed, and its tools are gone from every listing, within this time."`
	PodID          string        `env:"POD_ID" doc:"Name of this process in the fleet. Must differ at every start. Empty: host name and a random part."`
	DrainTimeout   time.Duration `env:"DRAIN_TIMEOUT" envDefault:"30s" doc:"How long stopping may take: calls in flight finish, devices move to other pods."`
	MaxFrame       ByteSize      `env:"MAX_FRAME" envDefault:"1MiB" doc:"Largest WebSocket message a device may send, unless it answers a call."`
	MaxOutput      ByteSize      `env:"MAX_OUTPUT" envDefault:"4MiB" doc:"Largest output of a tool. A device's message that has it may be twice as long, as JSON escapes. If only FARHAND_MAX_FRAME is set, that."`
	BlobURL        Secret        `env:"BLOB_URL" doc:"Where files that tools return are kept until they expire: file:///folder, s3://bucket?region=…, or none. Empty: a folder of this user's cache if this process runs alone, none on a fleet, whose pods need a common place."`
	BlobLife       time.Duration `env:"BLOB_TTL" envDefault:"1h" doc:"How long the link to a file works."`
	MaxUpload      ByteSize      `env:"MAX_UPLOAD" envDefault:"64MiB" doc:"Largest file that a tool may return."`
	BlobBytes      ByteSize      `env:"BLOB_BYTES" envDefault:"1GiB" doc:"Bytes of the files of a tenant that are kept at a time, 1,000 files at most; an eighth of both of one session."`

	// HTTP limits what requests and answers take.
	HTTP api.Limits

	MaxOutbound    ByteSize      `env:"MAX_OUTBOUND" envDefault:"4MiB" doc:"Bytes queued for one device before it is closed as too slow."`
	MaxUnsent      ByteSize      `env:"MAX_UNSENT" envDefault:"256MiB" doc:"Bytes queued for all devices of this pod, but for 16KiB of each, half of them for one tenant."`
	MaxTools       int           `env:"MAX_TOOLS" envDefault:"128" doc:"Tools one session may offer."`
	MaxCalls       int           `env:"MAX_CALLS_PER_SESSION" envDefault:"64" doc:"Calls in flight to one session; more are refused as busy."`
	MaxToolBytes   ByteSize      `env:"MAX_TOOL_BYTES" envDefault:"1MiB" doc:"Size of all tool definitions of one session together."`
	MaxSchema      ByteSize      `env:"MAX_SCHEMA" envDefault:"64KiB" doc:"Size of one tool's parameters schema."`
	MaxSchemaDepth int           `env:"MAX_SCHEMA_DEPTH" envDefault:"32" doc:"How deep one tool's parameters schema may nest."`
	MaxDescription int           `env:"MAX_DESCRIPTION" envDefault:"1024" doc:"Characters of a tool's description that are kept."`
	FrameRate      float64       `env:"FRAME_RATE" envDefault:"500" doc:"WebSocket frames a second one device may send, every piece of a message, ping and pong among them; answers to open calls are free. Connecting again gives no new ones."`
	FrameBurst     float64       `env:"FRAME_BURST" envDefault:"1000" doc:"WebSocket frames one device may send at once."`
	MessageTimeout time.Duration `env:"MESSAGE_TIMEOUT" envDefault:"30s" doc:"How long one WebSocket message may take from its first byte to its last."`
	MaxUnfinished  ByteSize      `env:"MAX_UNFINISHED" envDefault:"64MiB" doc:"Bytes this pod holds of WebSocket messages that are not complete or not handled yet. Over it connections of the tenant with most of them are closed, that with the oldest message first. At least four times the longest message."`
	MaxSockets     int           `env:"MAX_SOCKETS" envDefault:"100000" doc:"Connections of devices this pod holds, at most three quarters of them of one tenant and half of one identity; all holders of one token may have what their tenant has. Further ones get 429. If the limit of open files (ulimit -n) does not leave a quarter of them free, fewer: farhand doctor says how many."`
	OpenRate       float64       `env:"OPEN_RATE" envDefault:"1000" doc:"Sessions a second that one source address may open on this pod; further ones get 429."`
	OpenBurst      float64       `env:"OPEN_BURST" envDefault:"4000" doc:"Sessions one source address may open at once."`
	TrustedProxies []string      `env:"TRUSTED_PROXIES" doc:"Addresses or networks of load balancers, comma-separated (10.0.0.0/8), whose X-Forwarded-For says where a request comes from. Empty: none, and what is limited by source counts for all that comes through a balancer together."`
	Retention      time.Duration `env:"RETENTION" envDefault:"15m" doc:"How long the record of a call is kept after its last change."`
	IdempotencyTTL time.Duration `env:"IDEMPOTENCY_TTL" envDefault:"24h" doc:"How long an idempotency key is remembered, at most: it means something as long as the record of its call is kept."`
	ActivityTTL    time.Duration `env:"ACTIVITY_TTL" envDefault:"24h" doc:"How long the activity feed is kept while nothing is added to it."`
	ActivityCap    int           `env:"ACTIVITY_CAP" envDefault:"10000" doc:"Lines of the activity feed that are kept, about."`
	ActivityBytes  ByteSize      `env:"ACTIVITY_BYTES" envDefault:"16MiB" doc:"Bytes of those lines that are kept, about, for each tenant."`
	LimitIdentity  int           `env:"LIMIT_IDENTITY" envDefault:"0" doc:"Calls one identity (a user, otherwise a credential) may make in any minute, on all pods together; at most 600000; more than 10000 are spread evenly over the minute. 0: no such limit. The policy may set others."`
	LimitTenant    int           `env:"LIMIT_TENANT" envDefault:"0" doc:"Calls all identities of one tenant may make in any minute. 0: no such limit."`
	LimitDevice    int           `env:"LIMIT_DEVICE" envDefault:"0" doc:"Calls that may be made to one device in any minute, by all callers together. 0: no such limit."`
	LimitsFail     string        `env:"LIMITS_FAIL" envDefault:"closed" doc:"What becomes of calls that have a limit while the store cannot be asked. closed: they are refused (503). open: they pass, and the log says so."`
	UsageTTL       time.Duration `env:"USAGE_TTL" envDefault:"2160h" doc:"How long the usage of a day is kept."`
	UsageRows      int           `env:"USAGE_ROWS" envDefault:"10000" doc:"Rows of usage (a user and a tool) that are kept for one tenant and day. What comes beyond is counted as that of others."`
	AuditTTL       time.Duration `env:"AUDIT_TTL" envDefault:"2160h" doc:"How long the audit log of a tenant is kept after its last line."`
	AuditCap       int           `env:"AUDIT_CAP" envDefault:"1000000" doc:"Lines of the audit log that are kept, about, for each tenant."`
	AuditBytes     ByteSize      `env:"AUDIT_BYTES" envDefault:"256MiB" doc:"Bytes of those lines that are kept, about."`
	CallBytes      ByteSize      `env:"CALL_BYTES" envDefault:"512MiB" doc:"Bytes of calls' records, logs and outputs that are kept for one tenant, by all pods together; an eighth of them for one session. Half may be added at once, the other half over FARHAND_RETENTION. Beyond that calls that need a record are refused (429), and outputs of calls that ran are cut, and say so."`
	CallLog        ByteSize      `env:"CALL_LOG" envDefault:"1MiB" doc:"Bytes that are kept of what a device reports of one call on its way; at most 3MiB. With its output a call never adds more than 8 MB to the store."`
	NewToolBytes   ByteSize      `env:"NEW_TOOL_BYTES" envDefault:"64MiB" doc:"Bytes of new tool definitions that one tenant may register over twice FARHAND_SESSION_TTL, half of them at once; an eighth of them by one session. Definitions that some device offers already are free."`
	OfferedBytes   ByteSize      `env:"MAX_OFFERED_BYTES" envDefault:"512MiB" doc:"Bytes of tool definitions that the sessions of this pod offer, half of them those of one tenant. What several sessions of a tenant offer counts once. Further tools are rejected."`
	PingInterval   time.Duration `env:"PING_INTERVAL" envDefault:"20s" doc:"How often a device is pinged. Keep it well under the idle limit of the load balancer."`
	PongTimeout    time.Duration `env:"PONG_TIMEOUT" envDefault:"45s" doc:"A device that has not answered a ping for this long is gone."`
	Pairing        string        `env:"PAIRING" envDefault:"code" doc:"Which devices may ask to be paired. code: every device; the approver must enter the code it shows. open: as before, and approvers of the default tenant see all that ask, and need no code. off: none."`
	PairingTTL     time.Duration `env:"PAIRING_TTL" envDefault:"5m" doc:"How long a device waits to be approved, and then may take to collect its credential."`

	// ToolNames are the names that devices may register, and that may be called.
	ToolNames agent.PolicyRules

	HooksFile   string     `env:"HOOKS_FILE" doc:"YAML file of HTTP hooks: services that are asked before a call, after it, or both, and may change or stop it. The same on every pod. docs/operate.md says what is in it."`
	PolicyFile  string     `env:"POLICY_FILE" doc:"YAML file that says who may call and register which tools, see docs/policy.md. It is read anew when it changes. Empty: the defaults, and the four lists above."`
	MCPServers  string     `env:"MCP_SERVERS" doc:"JSON file of MCP servers whose tools become tools of the gateway (docs/mcp-upstream.md), in the form of other programs: mcpServers, and for each name a command or a url. The same on every pod. Empty: none."`
	LogLevel    slog.Level `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error."`
	AccessLog   string     `env:"ACCESS_LOG" envDefault:"sampled" doc:"Which HTTP requests have a line in the log: off, sampled, all. Sampled: those that fail, and of those that succeed the first ten of a second and then one in a hundred. Of many failures of one kind some are left out, and counted. With off, failures that are the gateway's own fault still have their lines."`
	MetricsAddr string     `env:"METRICS_ADDR" doc:"Where GET /metrics is served, without identity: an address only your monitoring can reach, for example 10.0.0.5:9090. Empty: at FARHAND_ADDR, for admins."`
	Pprof       bool       `env:"PPROF" doc:"Serve profiles at /debug/pprof/ of FARHAND_METRICS_ADDR. They show what is in memory, tokens too."`
	LogFormat   string     `env:"LOG_FORMAT" envDefault:"auto" doc:"json, text, or auto: text on a terminal, json elsewhere."`

	AgentConfig
	ToolsConfig

	// JWT says which tokens of an identity provider are accepted: none without a key to verify them.
	JWT jwt.Settings `envPrefix:"JWT_"`
}

// DefaultConfig returns the settings of an empty environment.
func DefaultConfig() Config {
	cfg, err := envconf.Parse[Config](map[string]string{}, EnvPrefix)
	if err != nil {
		panic(err) // a tag is wrong
	}
	return cfg
}

// LoadConfig reads the settings from an environment in the form of os.Environ(). The error lists all invalid settings,
// not only the first.
func LoadConfig(environ []string) (Config, error) {
	environment := env.ToMap(environ)
	cfg, err := envconf.Parse[Config](environment, EnvPrefix)
	if err != nil {
		return cfg, err
	}
	cfg.AgentConfig.fallBack(environment)
	cfg.ToolsConfig.fallBack(environment)
	if environment[EnvPrefix+"MAX_OUTPUT"] == "" && environment[EnvPrefix+"MAX_FRAME"] != "" {
		cfg.MaxOutput = cfg.MaxFrame
	}
	return cfg, cfg.validate(nil)
}

// withDefaults sets fields that are zero to their defaults, except booleans.
func (c Config) withDefaults() Config {
	if c.MaxOutput == 0 {
		c.MaxOutput = c.MaxFrame
	}
	envconf.Default(&c)
	return c
}

// Secret is a setting that is never printed: strings, JSON and logs show Masked. Convert it to string to read it.
type Secret = secret.Text

// Masked is shown instead of a secret.
const Masked = secret.Masked

// ByteSize is a number of bytes, parsed with or without a unit: 1048576, 1MiB, 1MB.
type ByteSize = int64

func (c Config) checkJWT(check *checker) {
	if !c.JWT.Enabled() {
		const without = "is of no use without a key that tokens are signed with: set FARHAND_JWT_JWKS_URL, " +
			"FARHAND_JWT_KEY_FILE or FARHAND_JWT_SECRET, or remove it"
		check.that(c.JWT.Issuer == "", "JWT_ISSUER", without)
		check.that(c.JWT.Audience == "", "JWT_AUDIENCE", without)
		return
	}
	check.that(c.JWT.Issuer != "", "JWT_ISSUER", "is required to accept tokens")
	check.that(c.JWT.Audience != "", "JWT_AUDIENCE",
		"is required to accept tokens: others may be meant for another service")
	check.that(c.JWT.Secret == "" || len(c.JWT.Secret) >= 32, "JWT_SECRET", "must have at least 32 bytes")
	check.that(c.JWT.MaxAge >= time.Minute, "JWT_MAX_AGE", "must be at least a minute")
	check.that(!jwt.IsToken(string(c.Token)), "TOKEN",
		"must not have two dots beside JSON Web Tokens: it would be read as one")
	if c.JWT.KeySetURL != "" {
		check.none(jwt.CheckURL(c.JWT.KeySetURL), "JWT_JWKS_URL")
	}
}
