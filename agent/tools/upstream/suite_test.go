package upstream_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestConformanceOfTheClient runs the client side of the MCP project's conformance suite: every scenario about tools.
// Those about questions to the user and about OAuth are not run, because this client has neither.
func TestConformanceOfTheClient(t *testing.T) {
	modules, err := filepath.Abs("../../../.cache/mcp/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	suite := filepath.Join(modules, ".bin/conformance")
	nodes, err := filepath.Glob(filepath.Join(modules, "node-*", "bin", "node"))
	if _, missing := os.Stat(suite); missing != nil || err != nil || len(nodes) != 1 {
		t.Fatalf("the conformance suite is not installed: sh .ci/deps (%v, %v, %v)", missing, nodes, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const before, now = "2025-11-25", "2026-07-28"
	for _, tt := range []struct{ scenario, revision string }{
		{"initialize", before}, {"tools_call", before}, {"tools_call", now}, {"sse-retry", before},
		{"request-metadata", now}, {"http-standard-headers", now}, {"http-custom-headers", now},
		{"http-invalid-tool-headers", now}, {"json-schema-ref-no-deref", now},
		{"json-schema-2020-12-preservation", before}, {"json-schema-2020-12-preservation", now},
	} {
		t.Run(tt.scenario+" "+tt.revision, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, nodes[0], suite, "client", "--command", self, "--scenario", tt.scenario,
				"--spec-version", tt.revision)
			cmd.Env = append(os.Environ(), testMode+"=conformance")
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
