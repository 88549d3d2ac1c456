package farhand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/listener"
	"github.com/farhand/farhand/internal/parallel"
	"github.com/farhand/farhand/redisstore"
)

// Finding is the result of Diagnose for one part of a gateway.
type Finding struct {
	Part   string `json:"part"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed"` // this configuration enables something that needs it
	Text   string `json:"text"`   // what is available, or what is missing and how to get it
}

// probe is a row of the table of checks.
type probe struct {
	part   string
	needed bool // this configuration enables something that needs it
	limit  time.Duration
	look   func(context.Context, Config) (string, error) // an error of type notable is never Needed
}

// Time limits of probes. A browser takes longest, on a busy machine.
const (
	quickLimit = 10 * time.Second
	probeLimit = 25 * time.Second
)

// maxProbes is how many probes run at a time: some wait for a network, one starts a browser.
const maxProbes = 8

// notable is the error of a part that works, and that the operator should look at.
type notable struct{ error }

// Diagnose checks what a gateway with this configuration would use, without starting one: credentials, the store,
// models, its own tools and what they need. It includes tools that are not enabled. unread is the error of LoadConfig,
// nil if a program filled in cfg. program is that of WithProgram. Diagnose creates the folders of workspaces and
// browsers, starts and stops a browser, and removes what browsers of killed pods left. It takes at most a minute.
func Diagnose(ctx context.Context, cfg Config, unread error, program host.Program) []Finding {
	return runProbes(ctx, cfg, cfg.probes(unread, program))
}

// probes is the table of what Diagnose checks, in the order of its findings.
func (c Config) probes(unread error, program host.Program) []probe {
	files := c.enables("read", "write", "edit", "exec", "bash")
	programs := c.enables("exec", "bash")
	lookAtConfig := func(_ context.Context, cfg Config) (string, error) {
		if unread != nil {
			return "", unread
		}
		return "all values are valid", cfg.Check()
	}
	lookAtPrograms := func(ctx context.Context, _ Config) (string, error) {
		e, err := host.New(host.Config{Program: program})
		if err != nil {
			return "", err
		}
		return "exec and bash run programs on this machine, outside of the sandbox", e.Close(ctx)
	}
	lookAtServers := func(ctx context.Context, cfg Config) (string, error) { return checkServers(ctx, cfg, program) }
	only := func(engine string) bool { return programs && slices.Equal(c.engines(), []string{engine}) }
	return []probe{
		{"configuration", true, quickLimit, lookAtConfig},
		{"exposure", false, quickLimit, checkExposure},
		{"identity", true, quickLimit, checkIdentity},
		{"certificate", c.TLSCert != "", quickLimit, checkCertificate},
		{"descriptors", false, quickLimit, checkDescriptors},
		{"store", true, quickLimit, checkStore},
		{partFiles, c.BlobURL != "" && c.BlobURL != noBlobs, probeLimit, checkBlobs},
		{partModel, len(c.Models) > 0, quickLimit, checkModel},
		{"tools", len(c.Builtins) > 0, quickLimit, checkTools},
		{"workspaces", files, quickLimit, checkWorkspaces},
		{"programs", programs, quickLimit, lookAtPrograms},
		{"landlock", only(SandboxLandlock), quickLimit, checkLandlock},
		{"browser", c.enables("browser"), probeLimit, checkBrowser},
		{"containers", only(SandboxDocker), probeLimit, checkContainers},
		{"mcp servers", c.MCPServers != "", probeLimit, lookAtServers},
	}
}

// runProbes runs probes, several at a time, and returns their findings in the order of the table.
func runProbes(ctx context.Context, cfg Config, table []probe) []Finding {
	all := make([]Finding, len(table))
	_ = parallel.Each(len(table), maxProbes, func(i int) error { // no probe returns an error
		p := table[i]
		ctx, cancel := context.WithTimeout(ctx, p.limit)
		defer cancel()
		text, err := p.look(ctx, cfg)
		if err != nil {
			text = err.Error()
		}
		_, works := errors.AsType[notable](err)
		all[i] = Finding{Part: p.part, OK: err == nil, Needed: p.needed && !works, Text: text}
		return nil
	})
	return all
}

// eachOf looks at several things of a part at the same time. It returns a line for each, as an error if one of them is,
// which is notable if all of them are.
func eachOf(names []string, look func(i int) (string, error)) (string, error) {
	lines, errs := make([]string, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			var text string
			if text, errs[i] = look(i); errs[i] != nil {
				text = errs[i].Error()
			}
			lines[i] = name + ": " + text
		})
	}
	all.Wait()
	text, broken := strings.Join(lines, "\n"), slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	fatal := func(err error) bool { _, works := errors.AsType[notable](err); return !works }
	switch {
	case len(broken) == 0:
		return text, nil
	case slices.ContainsFunc(broken, fatal):
		return "", errors.New(text)
	default:
		return "", notable{errors.New(text)}
	}
}

func checkExposure(_ context.Context, cfg Config) (string, error) {
	if insecure := cfg.Insecurities(); len(insecure) > 0 {
		return "", errors.New(strings.Join(insecure, "\n"))
	}
	return "no setting is insecure", nil
}

func checkStore(ctx context.Context, cfg Config) (string, error) {
	if cfg.RedisURL == "" {
		return cfg.State()
	}
	conn, err := redisstore.Dial(ctx, cfg.redis())
	if err != nil {
		return "", explainRedis(err)
	}
	defer conn.Close()
	if warnings := conn.Warnings(); len(warnings) > 0 {
		return "", errors.New(strings.Join(warnings, "; "))
	}
	return "Redis answers", nil
}

func checkBlobs(ctx context.Context, cfg Config) (string, error) {
	where, _, err := cfg.blobURL(false)
	if err == nil && where != "" {
		err = blobs.Probe(ctx, where)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("FARHAND_BLOB_URL: %w", err)
	case where == "":
		return "files that tools return are not stored (FARHAND_BLOB_URL)", nil
	default:
		return "files that tools return can be stored", nil
	}
}

func checkWorkspaces(_ context.Context, cfg Config) (string, error) {
	dir, err := cfg.workspaceDir()
	if err != nil {
		return "", err
	}
	w, err := workspace.New(workspace.Config{Dir: dir, AgentID: cfg.AgentID, TTL: math.MaxInt64}) // none is too old
	if err != nil {
		return "", fmt.Errorf("%w\nSet FARHAND_WORKSPACE_DIR to a folder that the gateway can create", err)
	}
	w.Close()
	return "read, write, edit, exec and bash work in " + dir, nil
}

func checkLandlock(context.Context, Config) (string, error) {
	return "the weaker sandbox works: the kernel restricts programs to their workspace", host.Probe()
}

func checkBrowser(ctx context.Context, cfg Config) (string, error) {
	return "Chromium starts and stops", browser.Probe(ctx, cfg.browser())
}

func checkContainers(ctx context.Context, cfg Config) (string, error) {
	if err := docker.Probe(ctx, cfg.docker("doctor")); err != nil {
		return "", err
	}
	return "the sandbox runs programs in containers of " + cfg.SandboxImage, nil
}

func checkIdentity(_ context.Context, cfg Config) (string, error) {
	if cfg.Anonymous() {
		return "callers and devices need no credential; API keys and paired devices keep their own rights", nil
	}
	var from []string
	if cfg.Token != "" {
		from = append(from, "FARHAND_TOKEN, which makes its holder an admin")
	}
	if cfg.JWT.Enabled() {
		keys := "keys from " + cmp.Or(cfg.JWT.KeySetURL, cfg.JWT.KeyFile)
		if cfg.JWT.KeySetURL == "" && cfg.JWT.KeyFile == "" {
			keys = "signed with FARHAND_JWT_SECRET"
		}
		from = append(from, fmt.Sprintf("JSON Web Tokens of %s for %s, %s", cfg.JWT.Issuer, cfg.JWT.Audience, keys))
	}
	return strings.Join(append(from, "API keys", "credentials of paired devices"), "; "), nil
}

// checkModel reports which models would hold conversations. It sends no request to a model: that could cost money.
func checkModel(_ context.Context, cfg Config) (string, error) {
	if len(cfg.Models) == 0 {
		return "none, so there are no conversations: set FARHAND_MODEL", nil
	}
	names := slices.Clone(cfg.Models)
	if len(names) > 1 {
		names[0] += " (the default)"
	}
	key := "with a key"
	if cfg.ModelKey == "" {
		key = "without a key"
	}
	return fmt.Sprintf("%s, of %s at %s, %s", strings.Join(names, ", "), cfg.ModelProvider,
		cmp.Or(cfg.ModelURL, "the provider's own address"), key), nil
}

func checkTools(_ context.Context, cfg Config) (string, error) {
	names := slices.DeleteFunc(slices.Clone(cfg.builtins(len(cfg.Models) > 0)), func(name string) bool {
		return slices.Contains(cfg.ToolsOff, name)
	})
	switch {
	case len(names) > 0:
		return "enabled: " + strings.Join(names, ", "), nil
	case slices.Equal(cfg.Builtins, defaultBuiltins):
		return "none: the default tools require a model. FARHAND_BUILTIN_TOOLS enables others", nil
	default:
		return "none: FARHAND_BUILTIN_TOOLS enables them", nil
	}
}

const (
	// keptBack: a process reserves a quarter of its file descriptors from the sockets of devices. A third of that is
	// for requests being served, a third for connections that wait for their client, and the rest for Redis, files and
	// programs.
	keptBack = 4
	// maxIdle bounds the connections that wait for their client. Each costs about 10 KiB.
	maxIdle = 10_000
)

// sockets returns how many sockets of devices a process holds, given how many files it may open.
func (c Config) sockets(files int) int {
	return max(min(c.MaxSockets, files-files/keptBack), 1)
}

// requests returns how many authenticated requests a process serves at a time, given how many files it may open.
func (c Config) requests(files int) int { return max(min(api.DefaultMaxServed, files/keptBack/3), 2) }

// idle returns how many connections that wait for their client such a process keeps.
func (c Config) idle(files int) int { return max(min(maxIdle, files/keptBack/3), 1) }

// checkDescriptors reports whether this process may open enough files for all sockets that the configuration allows,
// and how many requests it serves at a time.
func checkDescriptors(_ context.Context, cfg Config) (string, error) {
	files := listener.OpenFiles()
	held, served := cfg.sockets(files), cfg.requests(files)
	if held < cfg.MaxSockets {
		need := (cfg.MaxSockets*keptBack + keptBack - 2) / (keptBack - 1)
		return "", fmt.Errorf("the limit of %d open files allows %d device connections, not FARHAND_MAX_SOCKETS (%d), "+
			"and %d requests with a credential at a time. Raise it to %d (LimitNOFILE= of systemd, --ulimit nofile= "+
			"of Docker, ulimit -n), or lower FARHAND_MAX_SOCKETS", files, held, cfg.MaxSockets, served, need)
	}
	return fmt.Sprintf("the limit of %d open files allows FARHAND_MAX_SOCKETS (%d), and %d requests with a "+
		"credential at a time", files, held, served), nil
}
