package device_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// blocks returns the blocks of a document that are fenced with a language.
func blocks(t *testing.T, path, language string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	var all []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text, -1) {
		all = append(all, string(m[1]))
	}
	return all
}

// TestReadme runs the programs of README.md, and of docs/devices.md, with the wheel, against a pod. Ctrl-C ends them.
func TestReadme(t *testing.T) {
	t.Parallel()
	programs := append(blocks(t, "../../README.md", "python"), blocks(t, "../../../../docs/devices.md", "python")...)
	checks := []func(t *testing.T, pod string, p *program){
		func(t *testing.T, pod string, _ *program) {
			offered(t, pod, "lamp")
			call(t, pod, "lamp", `{"on":true}`, `"output":"The lamp is on."`)
			call(t, pod, "lamp", `{"on":1}`, "invalid_arguments")
		},
		func(t *testing.T, pod string, _ *program) {
			offered(t, pod, "snap")
			call(t, pod, "count", `{"to":3,"step":{"seconds":0.01,"unit":"ten"}}`, `"output":"{"counted":30}"`)
			call(t, pod, "count", `{"to":3,"step":{"seconds":100}}`, "invalid_arguments")
			call(t, pod, "count", `{"to":3,"step":{"unit":"two"}}`, "invalid_arguments")
			call(t, pod, "read_slowly", `{"path":"program.py"}`, "import asyncio\\nimport time")
			call(t, pod, "read_slowly", `{"path":"missing"}`, "No such file")
			call(t, pod, "snap", `{}`, `"data":"iVBORw=="`)
		},
		func(t *testing.T, pod string, p *program) {
			approvePairing(t, pod, p.expect(t, "farhand pair approve "))
			offered(t, pod, "ring")
			call(t, pod, "ring", `{}`, "It rang.")
		},
		func(t *testing.T, _ string, p *program) { p.expect(t, "Hello"); p.expect(t, "Hello") },
		func(t *testing.T, pod string, _ *program) {
			offered(t, pod, "lamp")
			call(t, pod, "lamp", `{"on":true}`, `"on":true`)
		},
	}
	if len(programs) != len(checks) {
		t.Fatalf("the documents have %d programs", len(programs))
	}
	for i, check := range checks {
		pod := startPod(t)
		dir := t.TempDir()
		write(t, filepath.Join(dir, "program.py"), strings.ReplaceAll(programs[i], "https://gateway.example.com", pod))
		write(t, filepath.Join(dir, "picture.png"), "\x89PNG")
		p := startPython(t, dir, "program.py")
		check(t, pod, p)
		if stderr := p.end(syscall.SIGINT); stderr != "" && !strings.Contains(stderr, "KeyboardInterrupt") {
			t.Errorf("program %d wrote %s", i+1, stderr)
		}
	}
}
