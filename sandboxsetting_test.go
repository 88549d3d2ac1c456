package farhand_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/farhand/farhand"
)

// TestNoWeakerSandboxUnasked: a gateway whose engine of containers is configured and away does not start with the
// weaker sandbox, unless its setting says so.
func TestNoWeakerSandboxUnasked(t *testing.T) {
	const away = "unix:///nonexistent/docker.sock"
	for name, tt := range map[string]struct {
		change func(*farhand.ToolsConfig)
		fails  bool
	}{
		"an address": {func(c *farhand.ToolsConfig) { c.DockerHost = away }, true},
		"an image": {func(c *farhand.ToolsConfig) {
			c.DockerHost, c.SandboxImage = "", "registry.example/agents"
		}, true},
		"by name": {func(c *farhand.ToolsConfig) { c.DockerHost, c.Sandbox = away, farhand.SandboxDocker }, true},
		"either": {func(c *farhand.ToolsConfig) { c.DockerHost, c.Sandbox = away, farhand.SandboxEither },
			false},
		"the weaker": {func(c *farhand.ToolsConfig) { c.DockerHost, c.Sandbox = away, farhand.SandboxLandlock },
			false},
		"none":          {func(c *farhand.ToolsConfig) { c.DockerHost, c.Sandbox = away, farhand.SandboxNone }, false},
		"no programs":   {func(c *farhand.ToolsConfig) { c.DockerHost = away }, false},
		"no such value": {func(c *farhand.ToolsConfig) { c.Sandbox = "landlock,docker" }, true},
	} {
		cfg := farhand.Config{Token: adminToken}
		cfg.WorkspaceDir = t.TempDir()
		if name != "no programs" {
			cfg.Builtins = []string{"exec"}
		}
		tt.change(&cfg.ToolsConfig)
		var logged bytes.Buffer
		g, err := farhand.New(t.Context(), cfg, farhand.WithProgram(self),
			farhand.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
		if (err != nil) != tt.fails {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if err := g.Close(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		switch name {
		case "an address":
			for _, want := range []string{"FARHAND_DOCKER_HOST", "docker,landlock", "/nonexistent/docker.sock"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: no %q in %v", name, want, err)
				}
			}
		case "either":
			if !strings.Contains(logged.String(), "using the weaker sandbox") {
				t.Errorf("%s: logged %s", name, &logged)
			}
		}
	}
}
