package farhand

import (
	"log/slog"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/internal/secret"
	"github.com/farhand/farhand/registry/routing"
)

// EnvPrefix is the prefix of every variable that LoadConfig reads.
const EnvPrefix = "FARHAND_"

// Config has every setting of a gateway. `farhand config` and docs/configuration.md are generated from its tags.
// LoadConfig reads it from the environment; a program can also fill it in itself.
type Config struct {
	Addr           string        `env:"ADDR" envDefault:"127.0.0.1:8080" doc:"Listen address, host:port. It must be loopback if callers need no credential."`
	TLSCert        string        `env:"TLS_CERT" doc:"PEM file of the certificate of FARHAND_ADDR, followed by those of its issuers. With it and FARHAND_TLS_KEY the gateway speaks HTTPS; plain HTTP is redirected. Both files are read again when they change. Empty: plain HTTP."`
	TLSKey         string        `env:"TLS_KEY" doc:"PEM file of the certificate's private key, readable by the gateway's user only."`
	RedisURL       Secret        `env:"REDIS_URL" doc:"Redis or Valkey of the fleet: redis:// or rediss:// (TLS), several host:port for a Cluster, or redis+sentinel://host:port,host:port/master. Empty: one process, whose data FARHAND_DATA_DIR keeps."`
	RedisCA        string        `env:"REDIS_CA" doc:"PEM file of the authorities of Redis' certificate, for rediss://. Empty: the system's."`
	RedisCert      string        `env:"REDIS_TLS_CERT_FILE" doc:"PEM file of the client certificate that Redis requires (tls-auth-clients), followed by those of its issuers; for rediss://. It is read at each connection. Empty: none."`
	RedisKey       string        `env:"REDIS_TLS_KEY_FILE" doc:"PEM file of that certificate's private key."`
	DataDir        string        `env:"DATA_DIR" doc:"Absolute path of the folder of the state file, which keeps keys, pairings, grants, conversations, audit log and usage when there is no Redis. Empty: the default state folder (docs/operate.md); programs that embed the gateway then keep nothing. off: keep nothing."`
	FleetSecret    Secret        `env:"FLEET_SECRET" doc:"Secret of all pods, at least 32 characters (openssl rand -base64 32). It signs what pods send each other through Redis; other clients of Redis cannot forge or repeat it (docs/security.md). Several, separated by commas, while it is rotated: the first signs, all are accepted. Empty: nothing is signed."`
	FleetRequired  bool          `env:"FLEET_SECRET_REQUIRED" envDefault:"true" doc:"Reject what is not signed, if FARHAND_FLEET_SECRET is set. false: accept it, until all pods have the secret."`
	RedisReplicas  int           `env:"REDIS_REPLICAS" envDefault:"0" doc:"Replicas that must confirm a durable call, a decision about it, a key or a pairing before it counts. With 1, a failover of Redis neither loses nor repeats a call; without a replica, such calls are refused (docs/deploy.md). 0: none."`
	RedisTimeout   time.Duration `env:"REDIS_TIMEOUT" envDefault:"800ms" doc:"Time limit of a Redis connection and of a command, at most 30s. Then requests fail with store_unavailable."`
	Token          Secret        `env:"TOKEN" doc:"Bearer token of devices and callers, at least 16 characters (openssl rand -base64 32). Its holder may do everything. Empty: no credential is needed, loopback only, unless FARHAND_KEYS_ONLY or a JWT key is set."`
	TokenPrevious  Secret        `env:"TOKEN_PREVIOUS" doc:"Former values of FARHAND_TOKEN, separated by commas, that still work while it is rotated (docs/operate.md). The log and farhand_auth_previous_token_total show whether they are still used. Empty: none."`
	AllowWeakToken bool          `env:"ALLOW_WEAK_TOKEN" envDefault:"false" doc:"Serve other machines even if FARHAND_TOKEN is short or repetitive."`
	KeysOnly       bool          `env:"KEYS_ONLY" envDefault:"false" doc:"Require an API key, device credential or JSON Web Token, also from this machine. FARHAND_TOKEN must be empty. farhand keys create --store creates the first key, in FARHAND_REDIS_URL or FARHAND_DATA_DIR."`
	MaxCredentials int           `env:"MAX_CREDENTIALS" envDefault:"10000" doc:"API keys and paired devices per tenant."`
	MaxRevocations int           `env:"MAX_REVOCATIONS" envDefault:"10000" doc:"Revoked users, devices and JSON Web Tokens stored per tenant, this many each, until older tokens have expired. Further revocations get 429."`
	PublicURL      string        `env:"PUBLIC_URL" doc:"URL of the gateway for clients, without a path: https://gateway.example.com. MCP clients learn from it where to get a token; tokens issued for it are accepted like those for FARHAND_JWT_AUDIENCE. Empty: only clients on this machine learn it."`
	AllowedHosts   []string      `env:"ALLOWED_HOSTS" doc:"Host names the gateway answers to (gateway.example.com), against DNS rebinding. IP addresses and localhost always pass. Empty: any."`
	AllowedOrigins []string      `env:"ALLOWED_ORIGINS" doc:"Web origins that may connect (https://console.example.com), or *. Pages of the same host and requests without Origin always may."`
	AllowQuery     bool          `env:"ALLOW_QUERY_TOKEN" envDefault:"true" doc:"Accept ?token= on the WebSocket, for clients that can set neither header nor subprotocol. Proxies log URLs: disable it if possible."`
	CallTimeout    time.Duration `env:"CALL_TIMEOUT" envDefault:"30s" doc:"Timeout of a call, unless the call or the tool sets one."`
	ApprovalTime   time.Duration `env:"APPROVAL_TIMEOUT" envDefault:"2m" doc:"Time to answer an approval while the caller or turn waits, at most 1h; the policy may set another. The call's timeout starts afterwards, but a caller that sets a timeout waits no longer. No answer is a denial."`
	DeferredTime   time.Duration `env:"ASYNC_APPROVAL_TIMEOUT" envDefault:"1h" doc:"Time to answer an approval of an asynchronous call, at most 24h. The call starts when allowed."`
	MaxCallTimeout time.Duration `env:"MAX_CALL_TIMEOUT" envDefault:"5m" doc:"Longest timeout of any call."`
	SessionTTL     time.Duration `env:"SESSION_TTL" envDefault:"60s" doc:"Lifetime of a session's keys in the store, refreshed every third of it."`
	PodLease       time.Duration `env:"POD_LEASE" envDefault:"10s" doc:"Time until a dead pod is detected and its tools leave every listing."`
	PodID          string        `env:"POD_ID" doc:"Name of this process in the fleet, different at every start. Empty: host name and a random part."`
	DrainTimeout   time.Duration `env:"DRAIN_TIMEOUT" envDefault:"30s" doc:"Time limit of stopping: calls in flight finish, devices move to other pods."`
	MaxFrame       ByteSize      `env:"MAX_FRAME" envDefault:"1MiB" doc:"Largest WebSocket message of a device, except answers to calls."`
	MaxOutput      ByteSize      `env:"MAX_OUTPUT" envDefault:"4MiB" doc:"Largest output of a tool. The device's message may be twice as long (JSON escapes). If only FARHAND_MAX_FRAME is set: that."`
	NodePath       string        `env:"NODE_PATH" envDefault:"/ws/node" doc:"Path for WebSockets of OpenClaw nodes. / serves those that know only host and port; other requests to / stay what they are. off: none."`
	MaxNodeFrame   ByteSize      `env:"MAX_NODE_FRAME" envDefault:"25MiB" doc:"Largest WebSocket message of an OpenClaw node. Its pictures are in there."`
	BlobURL        Secret        `env:"BLOB_URL" doc:"Store of files that tools return and callers upload: file:///folder, s3://bucket?region=…, or none. Empty: a folder in the user's cache for one process; none for a fleet, which needs a shared store."`
	BlobLife       time.Duration `env:"BLOB_TTL" envDefault:"1h" doc:"Lifetime of a file's link."`
	MaxUpload      ByteSize      `env:"MAX_UPLOAD" envDefault:"64MiB" doc:"Largest file that a tool may return."`
	BlobBytes      ByteSize      `env:"BLOB_BYTES" envDefault:"1GiB" doc:"Bytes of stored files per tenant, in at most 1,000 files. A session, or a device with its own credential, may use an eighth of both, a user half."`

	// HTTP limits what requests and answers take.
	HTTP api.Limits

	MaxOutbound    ByteSize      `env:"MAX_OUTBOUND" envDefault:"4MiB" doc:"Bytes queued for one device before it is disconnected as too slow."`
	MaxUnsent      ByteSize      `env:"MAX_UNSENT" envDefault:"256MiB" doc:"Bytes queued for all devices of this pod, beyond 16KiB each; at most half per tenant."`
	MaxTools       int           `env:"MAX_TOOLS" envDefault:"128" doc:"Tools of one session."`
	MaxCalls       int           `env:"MAX_CALLS_PER_SESSION" envDefault:"64" doc:"Calls in flight to one session, half of them of one user, unless the device is theirs; further ones fail as busy."`
	MaxGroupCalls  int           `env:"MAX_GROUP_CALLS" envDefault:"2048" doc:"Devices that group calls call at the same time from this pod, at most half per tenant and a quarter per identity; the others wait for their turn."`
	MaxToolBytes   ByteSize      `env:"MAX_TOOL_BYTES" envDefault:"1MiB" doc:"Size of all tool definitions of one session."`
	MaxSchema      ByteSize      `env:"MAX_SCHEMA" envDefault:"64KiB" doc:"Size of a tool's parameters schema."`
	MaxSchemaDepth int           `env:"MAX_SCHEMA_DEPTH" envDefault:"32" doc:"Nesting depth of a tool's parameters schema."`
	MaxDescription int           `env:"MAX_DESCRIPTION" envDefault:"1024" doc:"Characters of a tool's description that are stored."`
	FrameRate      float64       `env:"FRAME_RATE" envDefault:"500" doc:"WebSocket frames per second of one device, including fragments, pings and pongs. Answers to open calls are free. Reconnecting does not reset it. All sessions of a device with its own credential share four times this, and so the other rates of a session."`
	FrameBurst     float64       `env:"FRAME_BURST" envDefault:"1000" doc:"WebSocket frames one device may send in a burst."`
	MessageTimeout time.Duration `env:"MESSAGE_TIMEOUT" envDefault:"30s" doc:"Time limit of a WebSocket message, from first to last byte."`
	MaxUnfinished  ByteSize      `env:"MAX_UNFINISHED" envDefault:"64MiB" doc:"Bytes of incomplete or unhandled WebSocket messages on this pod, at least four times the longest message. Above it, the tenant with most of them loses connections, oldest message first."`
	MaxSockets     int           `env:"MAX_SOCKETS" envDefault:"100000" doc:"Device connections of this pod, at most three quarters per tenant and half per identity; a shared token may use its tenant's share. Further ones get 429. At most three quarters of the open files (ulimit -n): see farhand doctor."`
	OpenRate       float64       `env:"OPEN_RATE" envDefault:"1000" doc:"Sessions per second from one source address on this pod; further ones get 429. In addition, each tenant may open a quarter as many, and each identity of it a sixteenth."`
	OpenBurst      float64       `env:"OPEN_BURST" envDefault:"4000" doc:"Sessions from one source address in a burst, in addition to those of tenants and identities."`
	TrustedProxies []string      `env:"TRUSTED_PROXIES" doc:"Addresses or networks of load balancers (10.0.0.0/8) whose X-Forwarded-For is trusted. Empty: none; limits per source then count all clients behind a balancer as one."`
	Retention      time.Duration `env:"RETENTION" envDefault:"15m" doc:"How long a call's record is stored after its last change."`
	IdempotencyTTL time.Duration `env:"IDEMPOTENCY_TTL" envDefault:"24h" doc:"Longest lifetime of an idempotency key. It works while its call's record is stored."`
	ActivityTTL    time.Duration `env:"ACTIVITY_TTL" envDefault:"24h" doc:"How long the activity feed is stored after its last line."`
	ActivityCap    int           `env:"ACTIVITY_CAP" envDefault:"10000" doc:"Lines of the activity feed, approximately."`
	ActivityBytes  ByteSize      `env:"ACTIVITY_BYTES" envDefault:"16MiB" doc:"Bytes of these lines per tenant, approximately."`
	LimitIdentity  int           `env:"LIMIT_IDENTITY" envDefault:"0" doc:"Calls per minute of one identity (user, else credential) on all pods, at most 600000; above 10000 spread evenly over the minute. 0: no limit. The policy may set others."`
	LimitTenant    int           `env:"LIMIT_TENANT" envDefault:"0" doc:"Calls per minute of one tenant. 0: no limit."`
	LimitDevice    int           `env:"LIMIT_DEVICE" envDefault:"0" doc:"Calls per minute to one device, from all callers. 0: no limit."`
	LimitsFail     string        `env:"LIMITS_FAIL" envDefault:"closed" doc:"Calls with a rate limit or a budget while the store is unavailable. closed: they fail (503). open: they pass, and are logged."`
	UsageTTL       time.Duration `env:"USAGE_TTL" envDefault:"2160h" doc:"How long a day's usage is stored."`
	UsageRows      int           `env:"USAGE_ROWS" envDefault:"10000" doc:"Usage rows (user and tool) per tenant and day. Usage beyond them is counted under (other)."`
	AuditTTL       time.Duration `env:"AUDIT_TTL" envDefault:"2160h" doc:"How long a tenant's audit log is stored after its last line."`
	AuditCap       int           `env:"AUDIT_CAP" envDefault:"1000000" doc:"Audit log lines per tenant, approximately."`
	AuditBytes     ByteSize      `env:"AUDIT_BYTES" envDefault:"256MiB" doc:"Bytes of these lines, approximately."`
	CallBytes      ByteSize      `env:"CALL_BYTES" envDefault:"512MiB" doc:"Bytes of call records, logs and outputs stored per tenant by all pods, an eighth per session or device with its own credential, half per user. Half may be added at once, the rest over FARHAND_RETENTION. Beyond it, calls that need a record get 429, and other calls' outputs are cut and marked."`
	CallLog        ByteSize      `env:"CALL_LOG" envDefault:"1MiB" doc:"Bytes stored of a call's progress reports, at most 3MiB. With its output, a call adds at most 8 MB to the store."`
	NewToolBytes   ByteSize      `env:"NEW_TOOL_BYTES" envDefault:"64MiB" doc:"Bytes of new tool definitions per tenant over twice FARHAND_SESSION_TTL, half of them at once, an eighth per session or device with its own credential, half per user. Definitions that a device already offers are free."`
	OfferedBytes   ByteSize      `env:"MAX_OFFERED_BYTES" envDefault:"512MiB" doc:"Bytes of tool definitions offered on this pod, with what OpenClaw nodes declare and the names of tools at MCP devices, at most half per tenant. Equal definitions of a tenant count once. Further tools are rejected."`

	PairedRetention time.Duration `env:"PAIRED_RETENTION" envDefault:"720h" doc:"How long a paired device, or one that its token names, is remembered after it was last connected: its name, labels and tools. Calls can wait for a device that is remembered (docs/devices.md)."`
	DeviceRetention string        `env:"DEVICE_RETENTION" envDefault:"24h" doc:"The same for other devices with a device_id. 0: they are not remembered."`

	// Queue limits the calls that wait for sleeping devices.
	Queue routing.QueueConfig

	PingInterval time.Duration `env:"PING_INTERVAL" envDefault:"20s" doc:"Interval of pings to a device, well below the load balancer's idle timeout."`
	PongTimeout  time.Duration `env:"PONG_TIMEOUT" envDefault:"45s" doc:"A device that answers no ping for this long is disconnected."`
	Pairing      string        `env:"PAIRING" envDefault:"code" doc:"Devices that may request pairing. code: all; the approver enters the code that the device shows. open: all; approvers of the default tenant also see the requests and need no code. off: none."`
	PairingTTL   time.Duration `env:"PAIRING_TTL" envDefault:"5m" doc:"Time to approve a device, and then to collect its credential; at most 1h."`

	Console string `env:"CONSOLE" envDefault:"on" doc:"on: serve the console at /console/ and the device page at /device. off: neither."`

	// People may sign in at the console with the identity provider of JWT, by OpenID Connect.
	ConsoleClient string `env:"CONSOLE_OIDC_CLIENT" doc:"Client id of the console at the provider of FARHAND_JWT_ISSUER, a public client with PKCE and the redirect URL https://<gateway>/console/sign-in. If it is also FARHAND_JWT_AUDIENCE, the console uses ID tokens, else access tokens. Empty: people sign in with a key or token."`
	ConsoleScopes string `env:"CONSOLE_OIDC_SCOPES" envDefault:"openid" doc:"Scopes that the console requests, separated by spaces. With offline_access, many providers give a refresh token."`

	// ToolNames are the names that devices may register, and that may be called.
	ToolNames agent.PolicyRules

	HooksFile   string     `env:"HOOKS_FILE" doc:"YAML file of HTTP hooks, which may change or stop calls (docs/operate.md). The same on every pod."`
	PolicyFile  string     `env:"POLICY_FILE" doc:"YAML file of the policy (docs/policy.md): who may call and register which tools. It is reloaded on changes. Empty: the defaults and the four lists above."`
	MCPServers  string     `env:"MCP_SERVERS" doc:"JSON file of MCP servers whose tools the gateway offers, in the usual mcpServers form (docs/mcp-upstream.md). The same on every pod."`
	LogLevel    slog.Level `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error. PUT /loglevel of FARHAND_METRICS_ADDR changes it at run time."`
	AccessLog   string     `env:"ACCESS_LOG" envDefault:"sampled" doc:"HTTP requests in the log. sampled: failures, and the first ten successes per second, then one in a hundred. all: failures and successes. off: only the gateway's own failures. Repeated failures are counted, not all logged."`
	MetricsAddr string     `env:"METRICS_ADDR" doc:"Address of GET /metrics and /loglevel without authentication, for your monitoring only: 10.0.0.5:9090. Empty: FARHAND_ADDR serves metrics to admins."`
	Pprof       bool       `env:"PPROF" doc:"Serve profiles at /debug/pprof/ of FARHAND_METRICS_ADDR. They expose memory, including tokens."`
	LogFormat   string     `env:"LOG_FORMAT" envDefault:"auto" doc:"json, text, or auto: text on a terminal, json elsewhere."`

	AgentConfig
	ToolsConfig

	// JWT says which tokens of an identity provider are accepted: none without a key to verify them.
	JWT jwt.Settings `envPrefix:"JWT_"`

	// Wake has the credentials for the push services that wake devices.
	Wake wake.Settings `envPrefix:"WAKE_"`
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
		const without = "requires a key to verify tokens: set FARHAND_JWT_JWKS_URL, FARHAND_JWT_KEY_FILE or " +
			"FARHAND_JWT_SECRET, or remove it"
		check.that(c.JWT.Issuer == "", "JWT_ISSUER", without)
		check.that(c.JWT.Audience == "", "JWT_AUDIENCE", without)
		return
	}
	check.that(c.JWT.Issuer != "", "JWT_ISSUER", "is required to accept tokens")
	check.that(c.JWT.Audience != "", "JWT_AUDIENCE",
		"is required to accept tokens: without it, tokens for other services would pass")
	check.that(c.JWT.Secret == "" || len(c.JWT.Secret) >= 32, "JWT_SECRET", "must have at least 32 bytes")
	check.that(c.JWT.MaxAge >= time.Minute, "JWT_MAX_AGE", "must be at least a minute")
	check.that(!jwt.IsToken(string(c.Token)), "TOKEN",
		"must not have two dots if JSON Web Tokens are accepted: it would be read as one")
	if c.JWT.KeySetURL != "" {
		check.none(jwt.CheckURL(c.JWT.KeySetURL), "JWT_JWKS_URL")
	}
}

// Pages are the paths of the gateway's pages for people. A path is empty if the gateway does not serve that page.
type Pages struct {
	Console string // for people who run the gateway
	Device  string // makes the browser that opens it a device
}

// Pages returns the pages that a gateway with this configuration serves.
func (c Config) Pages() Pages {
	if c.Console == consoleOff {
		return Pages{}
	}
	return Pages{Console: "/console/", Device: "/device"}
}

// nodesOff is the value of Config.NodePath without OpenClaw nodes.
const nodesOff = "off"

// minNodeFrame is the least frame of a node, in bytes: that of the frame connect.
const minNodeFrame = 64 << 10

// isNodePath reports whether nodes may connect at a path. Paths of the API and the pages are taken, and so are those of
// other devices.
func isNodePath(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || path == "/ws/chat" || path == "/ws/mcp" || strings.HasSuffix(path, "/") {
		return false
	}
	for _, taken := range []string{
		"/api", "/v1", "/mcp", "/assets", "/console", "/device", "/pair", "/sign-in", "/healthz", "/health", "/readyz",
		"/metrics", "/openapi.json", "/.well-known", "/blobs", "/uploads",
	} {
		if path == taken || strings.HasPrefix(path, taken+"/") {
			return false
		}
	}
	return strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == "" &&
		!strings.Contains(path, "//") && !strings.Contains(path, "..")
}
