package farhand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/agent/sandbox/workspace"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/listener"
	"github.com/farhand/farhand/redisstore"
)

// Finding is the result of Diagnose for one part of a gateway.
type Finding struct {
	Part   string `json:"part"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed"` // this configuration enables something that needs it
	Text   string `json:"text"`   // what is available, or what is missing and how to get it
}

// diagnoseTimeout bounds the check of one part. A browser takes longest, on a busy machine.
const diagnoseTimeout = 25 * time.Second

// Diagnose checks what a gateway with this configuration would use, without starting one: credentials, the store,
// models, its own tools and what they need. It includes tools that are not enabled. unread is the error of LoadConfig,
// nil if a program filled in cfg. program is that of WithProgram. Diagnose creates the folders of workspaces and
// browsers, starts and stops a browser, and removes what browsers of killed pods left.
func Diagnose(ctx context.Context, cfg Config, unread error, program host.Program) []Finding {
	var all []Finding
	files := cfg.enables("read", "write", "edit", "exec", "bash")
	programs := cfg.enables("exec", "bash")
	lookAtConfig := func(context.Context, Config) (string, error) {
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
	for _, look := range []struct {
		part   string
		needed bool
		at     func(context.Context, Config) (string, error)
	}{
		{"configuration", true, lookAtConfig},
		{"exposure", false, checkExposure},
		{"identity", true, checkIdentity},
		{"certificate", cfg.TLSCert != "", checkCertificate},
		{"descriptors", false, checkDescriptors},
		{"store", true, checkStore},
		{"files", cfg.BlobURL != "" && cfg.BlobURL != noBlobs, checkBlobs},
		{"model", len(cfg.Models) > 0, checkModel},
		{"tools", len(cfg.Builtins) > 0, checkTools},
		{"workspaces", files, checkWorkspaces},
		{"programs", programs, lookAtPrograms},
		{"landlock", programs && slices.Equal(cfg.engines(), []string{SandboxLandlock}), checkLandlock},
		{"browser", cfg.enables("browser"), checkBrowser},
		{"containers", programs && slices.Equal(cfg.engines(), []string{SandboxDocker}), checkContainers},
		{"mcp servers", cfg.MCPServers != "", lookAtServers},
	} {
		ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
		text, err := look.at(ctx, cfg)
		cancel()
		if err != nil {
			text = err.Error()
		}
		all = append(all, Finding{Part: look.part, OK: err == nil, Needed: look.needed, Text: text})
	}
	return all
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
