package mcptest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// installed is where `make deps` puts what speaks MCP.
const installed = "../../../.cache/mcp"

// need returns the absolute path of a program or file of installed.
func need(t testing.TB, path ...string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(append([]string{installed}, path...)...))
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil {
		t.Fatalf("this test needs what `make deps` installs (%v)", err)
	}
	return file
}

// node returns a Node of version 22, which the suite and the Inspector need.
func node(t testing.TB) string {
	t.Helper()
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return need(t, "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node")
}

// bin returns what a package of Node calls itself on the command line.
func bin(t testing.TB, name string) string {
	t.Helper()
	return need(t, "node_modules", ".bin", name)
}
