package farhand

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

// minDuration is the minimum of every duration. Below it the gateway would be busy with upkeep only.
const minDuration = 100 * time.Millisecond

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
	if c.MetricsAddr != "" && c.MetricsAddr == c.Addr && brought.listener == nil && !anyPort(c.Addr) {
		errs = append(errs, errors.New("FARHAND_METRICS_ADDR: must differ from FARHAND_ADDR; "+
			"where it is empty, FARHAND_ADDR serves the metrics to admins"))
	}
	return errors.Join(errs...)
}

// validate reports invalid settings, given the program's authenticator a. If a is nil, the configured token decides.
func (c Config) validate(a auth.Authenticator) error {
	var errs []error
	check := func(ok bool, variable, message string) {
		if !ok {
			names := EnvPrefix + strings.ReplaceAll(variable, ", ", ", "+EnvPrefix)
			errs = append(errs, fmt.Errorf("%s: %s", names, message))
		}
	}
	c.checkByType(check)
	check(c.MaxRequests >= c.MaxBody, "MAX_REQUEST_BYTES", "must be at least FARHAND_MAX_BODY")
	check(c.CallLog <= routing.MaxCallLog, "CALL_LOG", "must be at most 3MiB")
	check(c.FrameRate > 0 && c.FrameBurst >= 1, "FRAME_RATE, FRAME_BURST", "must be greater than zero")
	check(c.OpenRate > 0 && c.OpenBurst >= 1, "OPEN_RATE, OPEN_BURST", "must be greater than zero")
	check(c.CallTimeout <= c.MaxCallTimeout, "CALL_TIMEOUT", "must not be longer than FARHAND_MAX_CALL_TIMEOUT")
	check(c.RedisTimeout <= 30*time.Second, "REDIS_TIMEOUT", "must be at most 30s")
	check(c.PongTimeout > c.PingInterval, "PONG_TIMEOUT", "must be longer than FARHAND_PING_INTERVAL")
	check(c.MaxOutbound >= ws.MinOutbound && c.MaxOutbound >= c.MaxFrame, "MAX_OUTBOUND",
		fmt.Sprintf("must be at least %d bytes, and at least FARHAND_MAX_FRAME", ws.MinOutbound))
	for name, calls := range map[string]int{
		"LIMIT_IDENTITY": c.LimitIdentity, "LIMIT_TENANT": c.LimitTenant, "LIMIT_DEVICE": c.LimitDevice,
	} {
		check(calls >= 0 && calls <= policy.MaxPerMinute, name, "must be from 0 to 600000")
	}
	check(slices.Contains([]string{limitsClosed, limitsOpen}, c.LimitsFail), "LIMITS_FAIL", "must be closed or open")
	check(slices.Contains([]string{"auto", "json", "text"}, c.LogFormat), "LOG_FORMAT", "must be auto, json or text")
	check(slices.Contains(api.AccessLogs(), api.AccessLog(c.AccessLog)), "ACCESS_LOG", "must be off, sampled or all")
	check(!c.Pprof || c.MetricsAddr != "", "PPROF", "needs FARHAND_METRICS_ADDR: profiles are not for callers")
	check(c.MetricsAddr == "" || validAddr(c.MetricsAddr), "METRICS_ADDR",
		"must be host:port, for example 127.0.0.1:9090")
	c.checkAccess(check, a)
	c.checkTexts(check)
	c.checkPlaces(check)
	errs = append(errs, c.checkExposure(a != nil))
	return errors.Join(errs...)
}

// checkAccess checks the settings of authentication, approval and pairing.
func (c Config) checkAccess(check func(ok bool, variable, message string), a auth.Authenticator) {
	c.ToolsConfig.check(check)
	c.AgentConfig.check(check, a == nil || auth.NamesUsers(a)) // keys and JWTs may name users
	c.JWTConfig.check(check, c.Token)
	check(slices.Contains(pairing.Modes(), pairing.Mode(c.Pairing)), "PAIRING", "must be off, code or open")
	check(c.ApprovalTime <= time.Hour, "APPROVAL_TIMEOUT", "must be at most an hour: the turn waits")
	check(c.DeferredTime <= 24*time.Hour, "ASYNC_APPROVAL_TIMEOUT", "must be at most 24h")
	check(c.PairingTTL <= time.Hour, "PAIRING_TTL", "must be at most an hour: a code is short")
	check(a == nil || !c.acceptsJWT(), "JWT_JWKS_URL, JWT_KEY_FILE, JWT_SECRET",
		"are not used: the program brings an authenticator of its own")
	check(!c.KeysOnly || c.Token == "", "KEYS_ONLY", "means that there is no FARHAND_TOKEN: remove one of them")
	check(!c.KeysOnly || a == nil, "KEYS_ONLY", "is not used: the program brings an authenticator of its own")
	check(!auth.IsSecret(string(c.Token)), "TOKEN", "must not begin like an API key: it would be looked up as one")
}

// checkTexts checks settings that have a syntax: addresses, lists and files.
func (c Config) checkTexts(check func(ok bool, variable, message string)) {
	if c.RedisURL != "" {
		if err := redisstore.CheckURL(string(c.RedisURL)); err != nil {
			check(false, "REDIS_URL", err.Error())
		} else if err := redisstore.CheckCA(string(c.RedisURL), c.RedisCA); err != nil {
			check(false, "REDIS_CA", err.Error())
		}
	}
	if c.PodID != "" {
		check(registry.Key{Tenant: registry.DefaultTenant, Session: c.PodID}.Validate() == nil, "POD_ID",
			"may hold letters, digits, '.', '_' and '-'")
	}
	if err := new(auth.Origins).AllowHosts(c.AllowedHosts...); err != nil {
		check(false, "ALLOWED_HOSTS", registry.AsError(err).Message)
	}
	if _, err := auth.NewOrigins(c.AllowedOrigins, false); err != nil {
		check(false, "ALLOWED_ORIGINS", registry.AsError(err).Message)
	}
	if c.PublicURL != "" {
		check(checkPublicURL(c.PublicURL))
	}
	if _, err := auth.NewSources(c.TrustedProxies); err != nil {
		check(false, "TRUSTED_PROXIES", err.Error())
	}
	if c.PolicyFile != "" {
		check(checkPolicyFile(c.PolicyFile))
	}
	if _, err := agent.NewPolicy(c.policyRules()); err != nil {
		check(false, "REGISTER_ALLOW, REGISTER_DENY, CALL_ALLOW, CALL_DENY", registry.AsError(err).Message)
	}
	if _, err := c.loadServers(); err != nil {
		check(false, "MCP_SERVERS", strings.TrimPrefix(err.Error(), "FARHAND_MCP_SERVERS: "))
	}
	if c.HooksFile != "" {
		if _, err := hooks.Load(c.HooksFile); err != nil {
			check(false, "HOOKS_FILE", err.Error())
		}
	}
}

// checkPlaces checks where keys are read from and where files are stored.
func (c Config) checkPlaces(check func(ok bool, variable, message string)) {
	if _, err := c.JWTConfig.keys(); err != nil {
		check(false, "JWT_KEY_FILE", err.Error())
	}
	if c.BlobURL != "" && c.BlobURL != noBlobs {
		if err := blobs.CheckURL(string(c.BlobURL)); err != nil {
			check(false, "BLOB_URL", err.Error())
		}
	}
	if c.enables("read", "write", "edit", "exec", "bash", "browser") {
		dir, err := c.workspaceDir()
		if err == nil {
			err = workspace.CheckDir(dir)
		}
		check(err == nil, "WORKSPACE_DIR", fmt.Sprint(err))
	}
}

// checkByType checks the rules that apply to all settings of a type, except settings with a rule of their own.
func (c Config) checkByType(check func(ok bool, variable, message string)) {
	values := reflect.ValueOf(c)
	for _, f := range reflect.VisibleFields(values.Type()) {
		name := f.Tag.Get("env")
		switch v := values.FieldByIndex(f.Index).Interface().(type) {
		case time.Duration:
			check(v >= minDuration, name, "must be at least "+minDuration.String())
		case ByteSize:
			switch name {
			case "CALL_BYTES", "NEW_TOOL_BYTES", "MAX_OFFERED_BYTES", "HISTORY_BYTES": // of a whole tenant, or pod
				check(v >= 1<<20, name, "must be at least 1MiB")
			case "BROWSER_MEMORY":
				check(v >= 256<<20, name, "must be at least 256MiB: a browser with an empty page takes as much")
			default:
				check(v >= 1<<10 && v <= 1<<30, name, "must be between 1KiB and 1GiB")
			}
		case int:
			if name != "MODEL_MAX_TOKENS" && name != "MODEL_THINKING_TOKENS" && !strings.HasPrefix(name, "LIMIT_") {
				check(v > 0, name, "must be greater than zero")
			}
		}
	}
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

// validAddr reports whether an address is host:port.
func validAddr(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// anyPort reports whether the system chooses the port (port 0).
func anyPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	n, _ := strconv.ParseUint(port, 10, 16)
	return err == nil && n == 0
}

// checkExposure rejects an address that other machines can reach unless the token is hard to guess.
func (c Config) checkExposure(authenticated bool) error {
	host, _, _ := net.SplitHostPort(c.Addr)
	if !validAddr(c.Addr) {
		return errors.New("FARHAND_ADDR: must be host:port, for example 127.0.0.1:8080")
	}
	if authenticated {
		return nil
	}
	if c.Anonymous() && !isLoopback(host) {
		return fmt.Errorf("FARHAND_ADDR %s is reachable from other machines, and without a token anybody there could "+
			"call tools on your devices: set FARHAND_TOKEN to a long random secret, or FARHAND_KEYS_ONLY=true if all "+
			"have API keys, or listen on 127.0.0.1", c.Addr)
	}
	if c.Token != "" && weakToken(string(c.Token)) && !isLoopback(host) && !c.AllowWeakToken {
		return fmt.Errorf("FARHAND_TOKEN is short or repeats itself, so whoever reaches %s could guess it: "+
			"make another one with `openssl rand -base64 32`, "+
			"or set FARHAND_ALLOW_WEAK_TOKEN=true if nobody but you can reach the address", c.Addr)
	}
	return nil
}

// checkFirstKey rejects a gateway that could never have a first key: another process creates it in a shared store.
func (c Config) checkFirstKey(ownStore bool) error {
	if !c.KeysOnly || ownStore || c.RedisURL != "" || c.acceptsJWT() {
		return nil
	}
	return errors.New("FARHAND_KEYS_ONLY: nobody could make the first key of a gateway that keeps its keys in " +
		"memory: set FARHAND_REDIS_URL and make one with `farhand keys create --store --role admin`, " +
		"or let an admin in by FARHAND_TOKEN instead")
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// Insecurities names the settings an operator should know the price of.
func (c Config) Insecurities() []string {
	var found []string
	warn := func(insecure bool, text string) {
		if insecure {
			found = append(found, text)
		}
	}
	weak, url := c.Token != "" && weakToken(string(c.Token)), string(c.RedisURL)
	host, _, err := net.SplitHostPort(c.MetricsAddr)
	exposed := err == nil && !isLoopback(host)
	warn(c.Anonymous(),
		"FARHAND_TOKEN is empty: every program on this machine can call every tool.")
	warn(c.Token != "",
		"FARHAND_TOKEN is shared by devices and callers: every device can do what an administrator can.")
	warn(weak, "FARHAND_TOKEN is shorter than 16 characters or repeats itself: it can be guessed.")
	warn(exposed, "FARHAND_METRICS_ADDR asks nobody who they are: only your monitoring should reach it.")
	warn(exposed && c.Pprof,
		"FARHAND_PPROF is on: whoever reaches FARHAND_METRICS_ADDR can read tokens out of memory.")
	warn(slices.Contains(c.AllowedOrigins, "*"),
		"FARHAND_ALLOWED_ORIGINS is *: any web page a user visits may talk to the gateway.")
	warn(c.Token != "" && c.AllowQuery,
		"FARHAND_ALLOW_QUERY_TOKEN is on: tokens in URLs end up in the logs of proxies.")
	warn(strings.HasPrefix(url, "redis") && !strings.HasPrefix(url, "rediss") && !redisIsLocal(url),
		"FARHAND_REDIS_URL has no TLS (rediss://) and does not point to this machine.")
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

// checkPublicURL reports whether FARHAND_PUBLIC_URL is valid, in the form that validate needs.
func checkPublicURL(text string) (ok bool, variable, message string) {
	const must = "must look like https://gateway.example.com: https, or http of this machine, and no path"
	u, err := url.Parse(strings.TrimSuffix(text, "/"))
	ok = err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackHost(u.Host))
	if ok {
		_, err = auth.NewOrigins([]string{strings.TrimSuffix(text, "/")}, false)
	}
	return ok && err == nil, "PUBLIC_URL", must
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
	u, err := url.Parse(c.JWTIssuer)
	if err == nil && c.acceptsJWT() && u.Host != "" && u.User == nil &&
		(u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackHost(u.Host)) {
		r.Issuer = c.JWTIssuer
	}
	if c.JWTRolesClaim == "scope" || c.JWTRolesClaim == "scp" {
		r.Scopes = []string{auth.NameCaller}
	}
	return r
}
