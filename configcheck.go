package farhand

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/certificate"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory/statefile"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

// minDuration is the minimum of every duration. Below it the gateway would be busy with upkeep only.
const minDuration = 100 * time.Millisecond

// maxQueueTTL is the longest that FARHAND_QUEUE_TTL may be.
const maxQueueTTL = 30 * 24 * time.Hour

// Check reports every setting that New would reject, without starting anything: values, files, and settings that
// contradict each other or the options. Only New checks whether external services answer and whether folders are
// writable.
func (c Config) Check(opts ...Option) error {
	brought, err := apply(opts)
	return errors.Join(err, c.withDefaults().check(brought))
}

// check reports what New and Check reject.
func (c Config) check(brought settings) error {
	_, err := (&Gateway{cfg: c, settings: brought}).localTools(nil, nil) // checks names; the tools are not used
	errs := []error{c.validate(brought.authenticator), err, c.checkFirstKey(brought.store != nil)}
	port, valid := portOf(c.Addr)
	if c.MetricsAddr != "" && c.MetricsAddr == c.Addr && brought.listener == nil && !(valid && port == 0) {
		errs = append(errs, errors.New("FARHAND_METRICS_ADDR: must differ from FARHAND_ADDR; "+
			"if it is empty, FARHAND_ADDR serves the metrics to admins"))
	}
	return errors.Join(errs...)
}

// validate reports invalid settings, given the program's authenticator a. If a is nil, the configured token decides.
func (c Config) validate(a auth.Authenticator) error {
	check := new(checker)
	c.checkByType(check)
	check.that(c.HTTP.MaxRequestBytes >= c.HTTP.MaxBody, "MAX_REQUEST_BYTES", "must be at least FARHAND_MAX_BODY")
	check.that(c.ToolMemory >= registry.ToolMemoryShare*registry.MaxToolMemory, "TOOL_MEMORY_BYTES",
		"must be at least 4MiB")
	check.that(c.CallLog <= routing.MaxCallLog, "CALL_LOG", "must be at most 3MiB")
	if _, err := c.memory(); err != nil {
		check.that(false, "DEVICE_RETENTION", "must be a duration, for example 24h, or 0")
	}
	check.that(c.Queue.TTL >= registry.MinQueueTTL && c.Queue.TTL <= maxQueueTTL, "QUEUE_TTL", "must be 1s to 30 days")
	for name, n := range map[string]int{
		"QUEUE_DEVICE": c.Queue.Device, "QUEUE_USER": c.Queue.User, "QUEUE_TENANT": c.Queue.Tenant,
	} {
		check.that(n > 0, name, "must be greater than zero")
	}
	check.that(c.FrameRate > 0 && c.FrameBurst >= 1, "FRAME_RATE, FRAME_BURST", "must be greater than zero")
	check.that(c.OpenRate > 0 && c.OpenBurst >= 1, "OPEN_RATE, OPEN_BURST", "must be greater than zero")
	check.that(c.CallTimeout <= c.MaxCallTimeout, "CALL_TIMEOUT", "must not be longer than FARHAND_MAX_CALL_TIMEOUT")
	check.that(c.RedisTimeout <= 30*time.Second, "REDIS_TIMEOUT", "must be at most 30s")
	check.that(c.PongTimeout > c.PingInterval, "PONG_TIMEOUT", "must be longer than FARHAND_PING_INTERVAL")
	check.that(c.MaxOutbound >= ws.MinOutbound && c.MaxOutbound >= c.MaxFrame, "MAX_OUTBOUND",
		fmt.Sprintf("must be at least %d bytes, and at least FARHAND_MAX_FRAME", ws.MinOutbound))
	for name, calls := range map[string]int{
		"LIMIT_IDENTITY": c.LimitIdentity, "LIMIT_TENANT": c.LimitTenant, "LIMIT_DEVICE": c.LimitDevice,
	} {
		check.that(calls >= 0 && calls <= policy.MaxPerMinute, name, "must be from 0 to 600000")
	}
	check.that(slices.Contains([]string{limitsClosed, limitsOpen}, c.LimitsFail), "LIMITS_FAIL",
		"must be closed or open")
	check.that(c.NodePath == nodesOff || isNodePath(c.NodePath), "NODE_PATH",
		"must be a path such as /ws/node that nothing else has, or off")
	check.that(c.MaxNodeFrame >= minNodeFrame, "MAX_NODE_FRAME", "must be at least 64KiB")
	check.that(slices.Contains([]string{"on", consoleOff}, c.Console), "CONSOLE", "must be on or off")
	check.that(slices.Contains([]string{"auto", "json", "text"}, c.LogFormat), "LOG_FORMAT",
		"must be auto, json or text")
	check.that(slices.Contains(api.AccessLogs(), api.AccessLog(c.AccessLog)), "ACCESS_LOG",
		"must be off, sampled or all")
	check.that(!c.Pprof || c.MetricsAddr != "", "PPROF", "needs FARHAND_METRICS_ADDR: profiles are not for callers")
	_, valid := portOf(c.MetricsAddr)
	check.that(c.MetricsAddr == "" || valid, "METRICS_ADDR",
		"must be host:port, for example 127.0.0.1:9090")
	c.checkAccess(check, a)
	c.checkTexts(check)
	c.checkPlaces(check)
	return errors.Join(append(check.errs, c.checkExposure(a != nil))...)
}

// checker collects what is wrong with settings.
type checker struct{ errs []error }

// that adds an error about variables, separated by commas, unless ok.
func (k *checker) that(ok bool, variables, message string) {
	if !ok {
		names := EnvPrefix + strings.ReplaceAll(variables, ", ", ", "+EnvPrefix)
		k.errs = append(k.errs, fmt.Errorf("%s: %s", names, message))
	}
}

// none adds err, if it is not nil, as an error about variables.
func (k *checker) none(err error, variables string) {
	if e, ok := errors.AsType[*registry.Error](err); ok {
		k.that(false, variables, e.Message)
	} else if err != nil {
		k.that(false, variables, err.Error())
	}
}

func (c Config) checkAccess(check *checker, a auth.Authenticator) {
	c.ToolsConfig.check(check)
	c.AgentConfig.check(check, a == nil || auth.NamesUsers(a)) // keys and JWTs may name users
	c.checkJWT(check)
	for _, p := range c.Wake.Check() {
		check.none(p.Err, "WAKE_"+p.Variable)
	}
	c.checkSignIn(check)
	check.that(slices.Contains(pairing.Modes(), pairing.Mode(c.Pairing)), "PAIRING", "must be off, code or open")
	check.that(c.ApprovalTime <= time.Hour, "APPROVAL_TIMEOUT", "must be at most an hour: the turn waits")
	check.that(c.DeferredTime <= 24*time.Hour, "ASYNC_APPROVAL_TIMEOUT", "must be at most 24h")
	check.that(c.PairingTTL <= time.Hour, "PAIRING_TTL", "must be at most an hour: a code is short")
	check.that(a == nil || !c.JWT.Enabled(), "JWT_JWKS_URL, JWT_KEY_FILE, JWT_SECRET",
		"have no effect: the program has its own authenticator")
	check.that(!c.KeysOnly || c.Token == "", "KEYS_ONLY", "excludes FARHAND_TOKEN: remove one of them")
	check.that(!c.KeysOnly || a == nil, "KEYS_ONLY", "has no effect: the program has its own authenticator")
	c.checkTokens(check)
}

func (c Config) checkTexts(check *checker) {
	if c.RedisURL != "" {
		err := redisstore.CheckURL(string(c.RedisURL))
		check.none(err, "REDIS_URL")
		if err == nil {
			check.none(redisstore.CheckCA(string(c.RedisURL), c.RedisCA), "REDIS_CA")
			check.none(redisstore.CheckClientCertificate(string(c.RedisURL), c.RedisCert, c.RedisKey),
				"REDIS_TLS_CERT_FILE, REDIS_TLS_KEY_FILE")
		}
	}
	short := func(secret string) bool { return len(secret) < 32 }
	check.that(!slices.ContainsFunc(c.fleetSecrets(), short), "FLEET_SECRET",
		"has a secret of less than 32 characters: openssl rand -base64 32 makes one")
	check.that(c.DataDir == "" || c.DataDir == NoData || filepath.IsAbs(c.DataDir), "DATA_DIR",
		"must be an absolute path, or off")
	if c.PodID != "" {
		check.that(registry.Key{Tenant: registry.DefaultTenant, Session: c.PodID}.Validate() == nil, "POD_ID",
			"must consist of letters, digits, '.', '_' and '-'")
	}
	check.none(new(auth.Origins).AllowHosts(c.AllowedHosts...), "ALLOWED_HOSTS")
	_, err := auth.NewOrigins(c.AllowedOrigins, false)
	check.none(err, "ALLOWED_ORIGINS")
	if c.PublicURL != "" {
		check.none(checkPublicURL(c.PublicURL), "PUBLIC_URL")
	}
	_, err = auth.NewSources(c.TrustedProxies)
	check.none(err, "TRUSTED_PROXIES")
	if c.ModelPrices != "" {
		check.none(budget.ReadPrices(c.ModelPrices), "MODEL_PRICES_FILE")
	}
	if c.PolicyFile != "" {
		check.none(checkPolicyFile(c.PolicyFile), "POLICY_FILE")
	}
	_, err = agent.NewPolicy(c.ToolNames)
	check.none(err, "REGISTER_ALLOW, REGISTER_DENY, CALL_ALLOW, CALL_DENY")
	if _, err := c.loadServers(); err != nil {
		check.errs = append(check.errs, err)
	}
	if c.HooksFile != "" {
		_, err = hooks.Load(c.HooksFile)
		check.none(err, "HOOKS_FILE")
	}
}

func (c Config) checkPlaces(check *checker) {
	check.none(c.checkTLS(), "TLS_CERT, TLS_KEY")
	if c.JWT.KeyFile != "" {
		check.none(jwt.CheckKeyFile(c.JWT.KeyFile), "JWT_KEY_FILE")
	}
	if c.BlobURL != "" && c.BlobURL != noBlobs {
		check.none(blobs.CheckURL(string(c.BlobURL)), "BLOB_URL")
	}
	if c.keepsFile() {
		_, err := statefile.Look(c.DataDir)
		check.none(err, "DATA_DIR")
	}
	if c.enables("read", "write", "edit", "exec", "bash", "browser") {
		dir, err := c.workspaceDir()
		if err == nil {
			err = workspace.CheckDir(dir)
		}
		check.none(err, "WORKSPACE_DIR")
	}
}

// checkByType checks the rules that apply to all settings of a type, except settings with a rule of their own.
func (c Config) checkByType(check *checker) {
	for _, variable := range envconf.Variables(reflect.ValueOf(c), "") {
		name := variable.Name
		switch v := variable.Value.Interface().(type) {
		case time.Duration:
			check.that(v >= minDuration, name, "must be at least "+minDuration.String())
		case ByteSize:
			switch name {
			case "CALL_BYTES", "NEW_TOOL_BYTES", "MAX_OFFERED_BYTES", "HISTORY_BYTES": // of a whole tenant, or pod
				check.that(v >= 1<<20, name, "must be at least 1MiB")
			case "BROWSER_MEMORY":
				check.that(v >= 256<<20, name, "must be at least 256MiB: a browser with an empty page takes that much")
			default:
				check.that(v >= 1<<10 && v <= 1<<30, name, "must be between 1KiB and 1GiB")
			}
		case int:
			switch {
			case name == "MODEL_MAX_TOKENS", name == "MODEL_THINKING_TOKENS", strings.HasPrefix(name, "LIMIT_"):
			case name == "REDIS_REPLICAS":
				check.that(v >= 0 && v <= 16, name, "must be between 0 and 16")
			default:
				check.that(v > 0, name, "must be greater than zero")
			}
		}
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

// portOf returns the port of an address. It reports whether the address is host:port.
func portOf(addr string) (port uint64, valid bool) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, false
	}
	port, err = strconv.ParseUint(text, 10, 16)
	return port, err == nil
}

// checkExposure rejects an address that other machines can reach unless the token is hard to guess.
func (c Config) checkExposure(authenticated bool) error {
	if _, valid := portOf(c.Addr); !valid {
		return errors.New("FARHAND_ADDR: must be host:port, for example 127.0.0.1:8080")
	}
	if authenticated || auth.IsLoopbackHost(c.Addr) {
		return nil
	}
	if c.Anonymous() {
		return fmt.Errorf("FARHAND_ADDR %s is reachable from other machines, which need no credential to call your "+
			"devices: set FARHAND_TOKEN to a long random secret, or FARHAND_KEYS_ONLY=true to require API keys, or "+
			"listen on 127.0.0.1", c.Addr)
	}
	if weak := c.weakToken(); weak != "" && !c.AllowWeakToken {
		return fmt.Errorf("%s is short or repetitive, and other machines that reach %s could guess it: "+
			"create one with `openssl rand -base64 32`, or set FARHAND_ALLOW_WEAK_TOKEN=true if only you can reach "+
			"the address", weak, c.Addr)
	}
	return nil
}

// checkFirstKey rejects a gateway that could never have a first key: another process creates it in a shared store.
func (c Config) checkFirstKey(ownStore bool) error {
	if !c.KeysOnly || ownStore || c.RedisURL != "" || c.keepsFile() || c.JWT.Enabled() {
		return nil
	}
	return errors.New("FARHAND_KEYS_ONLY: a gateway that keeps its data in memory alone cannot get a first key: " +
		"set FARHAND_DATA_DIR or FARHAND_REDIS_URL and create one with `farhand keys create --store --role admin`, " +
		"or use FARHAND_TOKEN instead")
}

// Insecurities describes the insecure settings, for the operator.
func (c Config) Insecurities() []string {
	var found []string
	warn := func(insecure bool, text string) {
		if insecure {
			found = append(found, text)
		}
	}
	weak, url := c.weakToken(), string(c.RedisURL)
	exposed := c.MetricsAddr != "" && !auth.IsLoopbackHost(c.MetricsAddr)
	warn(c.Anonymous(),
		"FARHAND_TOKEN is empty: every program on this machine can call every tool.")
	warn(c.Token != "",
		"FARHAND_TOKEN is shared by devices and callers: every device can do what an administrator can.")
	warn(weak != "", weak+" is shorter than 16 characters or repetitive: it can be guessed.")
	warn(c.TokenPrevious != "",
		"FARHAND_TOKEN_PREVIOUS is set: remove it when farhand_auth_previous_token_total no longer grows.")
	warn(exposed, "FARHAND_METRICS_ADDR has no authentication: only your monitoring should reach it.")
	warn(exposed && c.Pprof,
		"FARHAND_PPROF is on: any client of FARHAND_METRICS_ADDR can read tokens from memory.")
	rejected := c.certificateFault()
	warn(rejected != nil, fmt.Sprintf("FARHAND_TLS_CERT: clients reject it: %v.", rejected))
	warn(c.TLSKey != "" && certificate.OpenToOthers(c.TLSKey),
		"FARHAND_TLS_KEY can be read by other users of this machine: chmod 600 it.")
	warn(slices.Contains(c.AllowedOrigins, "*"),
		"FARHAND_ALLOWED_ORIGINS is *: any web page that a user visits can use the gateway.")
	warn(c.Token != "" && c.AllowQuery,
		"FARHAND_ALLOW_QUERY_TOKEN is on: proxies log the tokens in URLs.")
	warn(strings.HasPrefix(url, "redis") && !strings.HasPrefix(url, "rediss") && !redisIsLocal(url),
		"FARHAND_REDIS_URL has no TLS (rediss://) and does not point to this machine.")
	return found
}

// redisIsLocal reports whether every address of a Redis URL is a loopback one.
func redisIsLocal(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "/")
	for addr := range strings.SplitSeq(rest[strings.LastIndex(rest, "@")+1:], ",") {
		if !auth.IsLoopbackHost(addr) {
			return false
		}
	}
	return true
}

func checkPublicURL(text string) error {
	text = strings.TrimSuffix(text, "/")
	u, err := url.Parse(text)
	if err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackHost(u.Host)) {
		if _, err := auth.NewOrigins([]string{text}, false); err == nil {
			return nil
		}
	}
	return errors.New("must look like https://gateway.example.com: https, or http on this machine, without a path")
}

// publicURL returns the URL of the gateway without a trailing slash and in lower case, as clients compare it. It is
// empty if unknown.
func (c Config) publicURL() string { return strings.ToLower(strings.TrimSuffix(c.PublicURL, "/")) }

// origins returns the web origins that may connect, including the gateway's own.
func (c Config) origins() []string {
	if c.PublicURL == "" {
		return c.AllowedOrigins
	}
	return append(slices.Clone(c.AllowedOrigins), c.publicURL())
}

// hosts returns the host names that the gateway answers to. If there are none, it answers to any. IP addresses always
// pass.
func (c Config) hosts() []string {
	u, err := url.Parse(c.publicURL())
	if err != nil || u.Hostname() == "" || len(c.AllowedHosts) == 0 {
		return c.AllowedHosts
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return c.AllowedHosts
	}
	return append(slices.Clone(c.AllowedHosts), u.Hostname())
}

// resource returns what MCP clients need to get a token. The issuer of JSON Web Tokens is an authorization server if
// its name is a URL, as OAuth requires. The scope of callers is listed only if the roles claim is the scope claim.
func (c Config) resource() api.Resource {
	r := api.Resource{URL: c.publicURL()}
	u, err := url.Parse(c.JWT.Issuer)
	if err == nil && c.JWT.Enabled() && u.Host != "" && u.User == nil &&
		(u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackHost(u.Host)) {
		r.Issuer = c.JWT.Issuer
	}
	if c.JWT.Claims.Roles == "scope" || c.JWT.Claims.Roles == "scp" {
		r.Scopes = []string{auth.NameCaller}
	}
	return r
}
