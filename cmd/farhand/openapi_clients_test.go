package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedClients: the OpenAPI document goes through three generators as it is, and what they make is good for the
// application beside it in testdata/openapi: TypeScript's types compile, the clients in Python and Go list tools, call
// one, and are told what is wrong.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	connectDevice(t, p.url, "phone", echoTool())
	status, document := request(t, http.MethodGet, p.url+"/openapi.json", "")
	if status != http.StatusOK {
		t.Fatalf("the document is answered with %d", status)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "openapi.json")
	if err := os.WriteFile(path, document, 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs("testdata/openapi")
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, in, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = in
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	t.Run("openapi-typescript", func(t *testing.T) {
		modules := filepath.Join(source, "node", "node_modules", ".bin")
		run(t, dir, filepath.Join(modules, "openapi-typescript"), path, "-o", "schema.d.ts")
		copyFile(t, filepath.Join(source, "node", "use.ts"), filepath.Join(dir, "use.ts"))
		run(t, dir, filepath.Join(modules, "tsc"), "--noEmit", "--strict", "--skipLibCheck", "false", "--module",
			"nodenext", "use.ts")
	})
	t.Run("openapi-python-client", func(t *testing.T) {
		bin := filepath.Join("..", "..", ".cache", "openapi-python", "bin")
		generator, err := filepath.Abs(filepath.Join(bin, "openapi-python-client"))
		if err != nil {
			t.Fatal(err)
		}
		made := filepath.Join(dir, "python")
		out := run(t, dir, generator, "generate", "--path", path, "--output-path", made, "--config",
			filepath.Join(source, "python", "config.yaml"))
		if strings.Contains(strings.ToLower(out), "warning") {
			t.Errorf("it warns:\n%s", out)
		}
		run(t, dir, filepath.Join(filepath.Dir(generator), "python"), filepath.Join(source, "python", "use.py"), made,
			p.url, fleetToken)
	})
	t.Run("oapi-codegen", func(t *testing.T) {
		module := filepath.Join(dir, "go")
		if err := os.CopyFS(module, os.DirFS(filepath.Join(source, "go"))); err != nil {
			t.Fatal(err)
		}
		run(t, module, "go", "tool", "oapi-codegen", "-config", "config.yaml", path)
		run(t, module, "go", "vet", ".")
		if out := run(t, module, "go", "run", ".", p.url, fleetToken); !strings.Contains(out, "from go") {
			t.Errorf("it prints:\n%s", out)
		}
	})
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
