package farhand

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// Online is what DiagnoseOnline needs to know beside the configuration.
type Online struct {
	URL     string      // of the gateway for its clients; default Config.PublicURL; empty: it is not checked
	Token   string      // credential of a device; default Config.Token
	Trust   *tls.Config // for URL; default: the system's authorities
	Version string      // of this program; default: the version of this module
}

// Parts of Diagnose that DiagnoseOnline checks more thoroughly.
const (
	partFiles = "files"
	partModel = "model"
)

// DiagnoseOnline checks what Diagnose does, and uses what it finds: it asks each model for one token, stores and
// removes a file, fetches the identity provider's keys, sends OPTIONS to hooks, tries each command of a pod at Redis,
// asks the live pods how they are, and holds a WebSocket open at the gateway's URL. It takes up to two minutes.
func DiagnoseOnline(ctx context.Context, cfg Config, unread error, program host.Program, o Online) []Finding {
	if err := errors.Join(unread, cfg.Check()); err != nil {
		return append(Diagnose(ctx, cfg, unread, program), Finding{
			Part: "online", Needed: true, Text: "not checked before the configuration is valid",
		})
	}
	cfg = cfg.withDefaults()
	return runProbes(ctx, cfg, cfg.onlineProbes(program, o))
}

// onlineProbes is the table of what DiagnoseOnline checks, in the order of its findings.
func (c Config) onlineProbes(program host.Program, o Online) []probe {
	o.URL, o.Token = cmp.Or(o.URL, c.publicURL()), cmp.Or(o.Token, string(c.Token))
	o.Version = cmp.Or(o.Version, moduleVersion())
	table := c.probes(nil, program)
	for i := range table {
		switch table[i].part {
		case partFiles:
			table[i].look = tryBlobs
		case partModel:
			table[i].look, table[i].limit = askModels, probeLimit
		}
	}
	redis, identity := c.RedisURL != "", c.JWT.KeySetURL != "" || c.ConsoleClient != ""
	return append(table, []probe{
		{"identity provider", identity, probeLimit, askProvider},
		{"hooks", c.HooksFile != "", probeLimit, reachHooks},
		{"redis rights", redis, probeLimit, tryCommands},
		{"clock", redis || identity, quickLimit, compareClocks},
		{"pods", redis, quickLimit, o.askPods},
		{"certificates", true, probeLimit, o.readCertificates},
		{"memory", false, quickLimit, checkMemory},
		{"websocket", o.URL != "", c.holdTime() + quickLimit, o.holdSocket},
	}...)
}

// askModels asks each model for one token.
func askModels(ctx context.Context, cfg Config) (string, error) {
	if len(cfg.Models) == 0 {
		return checkModel(ctx, cfg)
	}
	cfg.ThinkingTokens = 0 // would be many tokens
	models := cfg.models(slog.New(slog.DiscardHandler))
	return eachOf(cfg.Models, func(i int) (string, error) {
		began := time.Now()
		ask := provider.Request{
			MaxTokens: 1, Messages: []provider.Message{{Role: provider.RoleUser, Content: "Say yes."}},
		}
		answer, err := models[i].Generate(ctx, ask, func(provider.Delta) {})
		failure, known := errors.AsType[*provider.Error](err)
		switch {
		case err == nil:
			return fmt.Sprintf("answered in %d ms (%d + %d tokens)", time.Since(began).Milliseconds(),
				answer.Usage.Input, answer.Usage.Output), nil
		case !known:
			return "", fmt.Errorf("no answer in %v: check FARHAND_MODEL_URL, and whether a firewall lets this machine "+
				"reach it", probeLimit)
		case failure.Kind == provider.KindAuth:
			return "", fmt.Errorf("%w\nReplace FARHAND_MODEL_KEY", err)
		case failure.Kind == provider.KindLimit:
			return "", fmt.Errorf("%w\nRaise the limit at the provider", err)
		default:
			return "", fmt.Errorf("%w\nCheck FARHAND_MODEL, FARHAND_MODEL_PROVIDER and FARHAND_MODEL_URL", err)
		}
	})
}

// tryBlobs stores a file, reads it and removes it.
func tryBlobs(ctx context.Context, cfg Config) (string, error) {
	where, _, err := cfg.blobURL(false)
	if err == nil && where != "" {
		err = blobs.Try(ctx, where)
	}
	if err != nil {
		return "", fmt.Errorf("FARHAND_BLOB_URL: %w\nThe gateway's user needs the rights to list, put, get and delete",
			err)
	}
	if where == "" {
		return checkBlobs(ctx, cfg)
	}
	return "a file was stored, read and removed", nil
}

// askProvider fetches the key set of the identity provider, and its endpoints if people sign in there.
func askProvider(ctx context.Context, cfg Config) (string, error) {
	if cfg.JWT.KeySetURL == "" && cfg.ConsoleClient == "" {
		return "none is asked: neither FARHAND_JWT_JWKS_URL nor FARHAND_CONSOLE_OIDC_CLIENT is set", nil
	}
	keys, err := jwt.Probe(ctx, cfg.JWT, cfg.ConsoleClient != "")
	if err != nil {
		return "", fmt.Errorf("%w\nWithout it, tokens are refused or people cannot sign in: check FARHAND_JWT_ISSUER, "+
			"FARHAND_JWT_JWKS_URL, and whether a firewall lets this machine reach them", err)
	}
	var found []string
	if cfg.JWT.KeySetURL != "" {
		found = append(found, fmt.Sprintf("%d usable keys", keys))
	}
	if cfg.ConsoleClient != "" {
		found = append(found, "endpoints where people sign in")
	}
	return strings.Join(found, ", "), nil
}

// reachHooks asks whether the services of hooks answer.
func reachHooks(ctx context.Context, cfg Config) (string, error) {
	if cfg.HooksFile == "" {
		return "none are configured (FARHAND_HOOKS_FILE)", nil
	}
	list, err := hooks.Load(cfg.HooksFile)
	if err != nil {
		return "", fmt.Errorf("FARHAND_HOOKS_FILE: %w", err)
	}
	names := make([]string, len(list))
	for i, h := range list {
		names[i] = h.Name
	}
	return eachOf(names, func(i int) (string, error) {
		status, err := hooks.Reach(ctx, list[i])
		if err != nil {
			const fix = "Start its service, or correct its url"
			if list[i].FailOpen || list[i].Approvals {
				return "", notable{fmt.Errorf("%w: calls go on without it. %s", err, fix)}
			}
			return "", fmt.Errorf("%w: calls that it covers are stopped. %s", err, fix)
		}
		return "answered OPTIONS, sent without a body or signature, with " + status, nil
	})
}

// tryCommands tries each command of a pod.
func tryCommands(ctx context.Context, cfg Config) (string, error) {
	if cfg.RedisURL == "" {
		return "none are needed without FARHAND_REDIS_URL", nil
	}
	refused, err := redisstore.Missing(ctx, cfg.redis())
	switch {
	case err != nil:
		return "", explainRedis(err)
	case len(refused) > 0:
		return "", fmt.Errorf("the user of FARHAND_REDIS_URL may not send %d commands:\n%s\nGive it the rights in the "+
			"section on Redis of docs/deploy.md (ACL SETUSER)", len(refused), strings.Join(refused, "\n"))
	default:
		return "Redis permits every command that a pod sends", nil
	}
}

// clockNote is how far two clocks may be apart without a note. The HTTP header Date is in whole seconds.
const clockNote = 3 * time.Second

// compareClocks compares this machine's clock with those of Redis and of the identity provider.
func compareClocks(ctx context.Context, cfg Config) (string, error) {
	var names []string
	var reads []func() (time.Duration, error)
	if cfg.RedisURL != "" {
		names = append(names, "Redis")
		reads = append(reads, func() (time.Duration, error) { return redisstore.Skew(ctx, cfg.redis()) })
	}
	if url := cmp.Or(cfg.JWT.KeySetURL, cfg.resource().Issuer); url != "" {
		names = append(names, "the identity provider")
		reads = append(reads, func() (time.Duration, error) { return httpSkew(ctx, url) })
	}
	if len(names) == 0 {
		return "there is no other clock to compare with: neither Redis nor an identity provider is set", nil
	}
	return eachOf(names, func(i int) (string, error) {
		ahead, err := reads[i]()
		if err != nil {
			return "", notable{fmt.Errorf("its clock was not read: %w", err)}
		}
		text := fmt.Sprintf("%.1f s ahead of this machine", ahead.Seconds())
		if ahead < 0 {
			text = fmt.Sprintf("%.1f s behind this machine", -ahead.Seconds())
		}
		switch {
		case names[i] != "Redis" && ahead.Abs() > cfg.JWT.Leeway+time.Second:
			return "", errors.New(text + ", more than FARHAND_JWT_LEEWAY: tokens are refused. Synchronize the clocks " +
				"(chrony, systemd-timesyncd)")
		case ahead.Abs() > clockNote:
			return "", notable{errors.New(text + ": times in lists and logs are off by that, and credentials end " +
				"early or late. Synchronize the clocks (chrony, systemd-timesyncd)")}
		}
		return text, nil
	})
}

// httpSkew returns by how much the clock of an HTTP server is ahead, by its header Date.
func httpSkew(ctx context.Context, url string) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return 0, err
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	sent := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	took := time.Since(sent)
	_ = resp.Body.Close()
	client.CloseIdleConnections()
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0, errors.New("its answer has no header Date")
	}
	return at.Add(time.Second / 2).Sub(sent.Add(took / 2)), nil
}

// askPods asks the live pods for their versions.
func (o Online) askPods(ctx context.Context, cfg Config) (string, error) {
	if cfg.RedisURL == "" {
		return "a gateway without FARHAND_REDIS_URL is the only one", nil
	}
	conn, err := redisstore.Dial(ctx, cfg.redis())
	if err != nil {
		return "", explainRedis(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	bus := conn.Bus()
	pods, err := routing.Survey(ctx, conn.Store(), bus)
	if err = errors.Join(err, bus.Close(ctx)); err != nil {
		return "", explainRedis(err)
	}
	return o.describePods(pods, time.Now())
}

// describePods says what there is to say of live pods at a time.
func (o Online) describePods(pods []registry.PodSummary, now time.Time) (string, error) {
	if len(pods) == 0 {
		return "no pod is live", nil
	}
	of, notes := map[string][]string{}, []string(nil)
	for _, p := range pods {
		var status wire.PodStatus
		if json.Unmarshal(p.Summary, &status) != nil {
			notes = append(notes, p.Pod+" did not answer: read its log, or restart it")
			continue
		}
		of[status.Version] = append(of[status.Version], p.Pod)
		for _, w := range status.Warnings {
			notes = append(notes, p.Pod+": "+w)
		}
		at, err := time.Parse(shownTime, string(status.At))
		if ahead := at.Sub(now); err == nil && ahead.Abs() > clockNote {
			notes = append(notes, fmt.Sprintf("%s: its clock is %.0f s off this machine's: synchronize them", p.Pod,
				ahead.Abs().Seconds()))
		}
	}
	var lines []string
	for _, version := range slices.Sorted(maps.Keys(of)) {
		lines = append(lines, version+": "+strings.Join(of[version], ", "))
	}
	switch {
	case len(of) > 1:
		notes = append(notes, "the pods have different versions: finish the upgrade, or return to the earlier one")
	case len(of) == 1 && of[o.Version] == nil:
		notes = append(notes, "this program is "+o.Version)
	}
	text := strings.Join(append(lines, notes...), "\n")
	if len(notes) > 0 {
		return "", notable{errors.New(text)}
	}
	return text, nil
}
