package farhand

import (
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
	"github.com/farhand/farhand/redisstore"
)

// Finding is what Diagnose says of one part of a gateway.
type Finding struct {
	Part   string `json:"part"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed"` // what this configuration enables cannot work without it
	Text   string `json:"text"`   // what is there, or what is missing and how to get it
}

// diagnoseTimeout bounds the look at one part. A browser takes longest, on a busy machine.
const diagnoseTimeout = 25 * time.Second

// Diagnose looks at what a gateway with this configuration would stand on and use, without starting one: credentials,
// the store, models, its own tools and what they need. Tools that are not enabled are included. unread is what
// LoadConfig could not read, nil for a configuration that a program filled in. Diagnose makes the folders of workspaces
// and browsers, starts a browser and ends it, and removes what browsers of killed pods left. program is that of
// WithProgram.
func Diagnose(ctx context.Context, cfg Config, unread error, program host.Program) []Finding {
	var all []Finding
	files := cfg.enables("read", "write", "edit", "exec", "bash")
	programs := cfg.enables("exec", "bash")
	lookAtConfig := func(context.Context, Config) (string, error) {
		if unread != nil {
			return "", unread
		}
		return "every value can be used", cfg.Check()
	}
	lookAtPrograms := func(ctx context.Context, _ Config) (string, error) { return tryPrograms(ctx, program) }
	lookAtServers := func(ctx context.Context, cfg Config) (string, error) { return tryServers(ctx, cfg, program) }
	for _, look := range []struct {
		part   string
		needed bool
		at     func(context.Context, Config) (string, error)
	}{
		{"configuration", true, lookAtConfig},
		{"exposure", false, lookAtExposure},
		{"identity", true, lookAtIdentity},
		{"descriptors", false, lookAtDescriptors},
		{"store", true, lookAtStore},
		{"files", cfg.BlobURL != "" && cfg.BlobURL != noBlobs, lookAtBlobs},
		{"model", len(cfg.Models) > 0, lookAtModel},
		{"tools", len(cfg.Builtins) > 0, lookAtTools},
		{"workspaces", files, lookAtWorkspaces},
		{"programs", programs, lookAtPrograms},
		{"landlock", programs && slices.Equal(cfg.engines(), []string{SandboxLandlock}), lookAtLandlock},
		{"browser", cfg.enables("browser"), lookAtBrowser},
		{"containers", programs && slices.Equal(cfg.engines(), []string{SandboxDocker}), lookAtContainers},
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

func lookAtExposure(_ context.Context, cfg Config) (string, error) {
	if insecure := cfg.Insecurities(); len(insecure) > 0 {
		return "", errors.New(strings.Join(insecure, "\n"))
	}
	return "no setting is insecure", nil
}

func lookAtStore(ctx context.Context, cfg Config) (string, error) {
	if cfg.RedisURL == "" {
		return "in memory: one process alone, and nothing is kept when it ends. A fleet needs FARHAND_REDIS_URL", nil
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

func lookAtBlobs(ctx context.Context, cfg Config) (string, error) {
	where, _, err := cfg.blobURL(false)
	if err == nil && where != "" {
		err = blobs.Probe(ctx, where)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("FARHAND_BLOB_URL: %w", err)
	case where == "":
		return "none of those that tools return are kept (FARHAND_BLOB_URL)", nil
	default:
		return "those that tools return can be kept", nil
	}
}

func lookAtWorkspaces(_ context.Context, cfg Config) (string, error) {
	dir, err := cfg.workspaceDir()
	if err != nil {
		return "", err
	}
	w, err := workspace.New(workspace.Config{Dir: dir, AgentID: cfg.AgentID, TTL: math.MaxInt64}) // none is too old
	if err != nil {
		return "", fmt.Errorf("%w\nSet FARHAND_WORKSPACE_DIR to a folder that the gateway may make", err)
	}
	w.Close()
	return "read, write, edit, exec and bash work in " + dir, nil
}

func tryPrograms(ctx context.Context, program host.Program) (string, error) {
	e, err := host.New(host.Config{Program: program})
	if err != nil {
		return "", err
	}
	return "exec and bash run programs on this machine, outside of the sandbox", e.Close(ctx)
}

func lookAtLandlock(context.Context, Config) (string, error) {
	return "the weaker sandbox works: the kernel confines programs to their workspace", host.Probe()
}

func lookAtBrowser(ctx context.Context, cfg Config) (string, error) {
	return "Chromium starts and ends", browser.Probe(ctx, cfg.browser())
}

func lookAtContainers(ctx context.Context, cfg Config) (string, error) {
	if err := docker.Probe(ctx, cfg.docker("doctor")); err != nil {
		return "", err
	}
	return "the sandbox runs programs in containers of " + cfg.SandboxImage, nil
}
