package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/ws/client"
)

// TestGeneratedClients: the OpenAPI document goes through four generators as it is, and what they make is good for the
// application beside it in testdata/openapi: TypeScript's types compile, the clients in Python, Go and TypeScript list
// tools, call one, and read errors.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	connectDevice(t, p.url, "phone", echoTool(), client.WithTool(client.Tool{Name: "échö", Description: "echoes"},
		func(_ context.Context, call client.Call) (any, error) { return string(call.Args), nil }))
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
	t.Run("openapi-typescript", func(t *testing.T) {
		modules := filepath.Join(source, "node", "node_modules", ".bin")
		runIn(t, dir, filepath.Join(modules, "openapi-typescript"), path, "-o", "schema.d.ts")
		copyFile(t, filepath.Join(source, "node", "use.ts"), filepath.Join(dir, "use.ts"))
		runIn(t, dir, filepath.Join(modules, "tsc"), "--noEmit", "--strict", "--skipLibCheck", "false", "--module",
			"nodenext", "use.ts")
	})
	t.Run("openapi-python-client", func(t *testing.T) {
		bin := filepath.Join("..", "..", ".cache", "openapi-python", "bin")
		generator, err := filepath.Abs(filepath.Join(bin, "openapi-python-client"))
		if err != nil {
			t.Fatal(err)
		}
		made := filepath.Join(dir, "python")
		out := runIn(t, dir, generator, "generate", "--path", path, "--output-path", made, "--config",
			filepath.Join(source, "python", "config.yaml"))
		if strings.Contains(strings.ToLower(out), "warning") {
			t.Errorf("it warns:\n%s", out)
		}
		runIn(t, dir, filepath.Join(filepath.Dir(generator), "python"), filepath.Join(source, "python", "use.py"), made,
			p.url, fleetToken)
	})
	t.Run("openapi-generator", func(t *testing.T) {
		bin, err := filepath.Abs(filepath.Join("..", "..", ".cache", "openapi-python", "bin"))
		if err != nil {
			t.Fatal(err)
		}
		generate := func(t *testing.T, kind, out string) {
			t.Helper()
			// A compiler that takes its time is a loss in a program that runs for seconds.
			runIn(t, dir, "env", "JAVA_OPTS=-XX:TieredStopAtLevel=1", filepath.Join(bin, "openapi-generator-cli"),
				"generate", "-g", kind, "-i", path, "-o", out, "--global-property",
				"models,apis,supportingFiles,modelDocs=false,apiDocs=false,modelTests=false,apiTests=false")
		}
		t.Run("python", func(t *testing.T) {
			made := filepath.Join(dir, "generated-python")
			generate(t, "python", made)
			runIn(t, dir, filepath.Join(bin, "python"), filepath.Join(source, "generator", "use.py"), made, p.url,
				fleetToken)
		})
		t.Run("typescript-fetch", func(t *testing.T) {
			made := filepath.Join(dir, "generated-fetch")
			generate(t, "typescript-fetch", filepath.Join(made, "client"))
			copyFile(t, filepath.Join(source, "generator", "use.ts"), filepath.Join(made, "use.ts"))
			runIn(t, made, filepath.Join(source, "node", "node_modules", ".bin", "tsc"), "--strict", "--skipLibCheck",
				"false", "--module", "commonjs", "--target", "es2022", "--lib", "es2022,dom", "use.ts")
			out := runIn(t, made, "node", "use.js", p.url, fleetToken)
			if !strings.Contains(out, "from fetch") {
				t.Errorf("it prints:\n%s", out)
			}
		})
	})
	t.Run("oapi-codegen", func(t *testing.T) {
		module := filepath.Join(dir, "go")
		if err := os.CopyFS(module, os.DirFS(filepath.Join(source, "go"))); err != nil {
			t.Fatal(err)
		}
		runIn(t, module, "go", "tool", "oapi-codegen", "-config", "config.yaml", path)
		if out := runIn(t, module, "go", "run", ".", p.url, fleetToken); !strings.Contains(out, "from go") {
			t.Errorf("it prints:\n%s", out)
		}
	})
}

// runIn runs a program in a folder and returns what it prints. The test ends if it fails.
func runIn(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
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
