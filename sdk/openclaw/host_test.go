package openclaw_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// nodeLimit is how long a node host may take for what it does once. It loads for ten seconds on an idle machine.
const nodeLimit = 2 * time.Minute

// installed is the folder into which .ci/deps openclaw installs testdata/package.json.
const installed = "../../.cache/openclaw"

// host is OpenClaw's headless node host, with a home of its own. It is the npm package's program.
type host struct {
	t       testing.TB
	version string
	home    string
	addr    string   // of the proxy
	env     []string // KEY=value, beside the home

	mu  sync.Mutex
	out bytes.Buffer

	cmd  *exec.Cmd
	done chan struct{}
}

// newHost returns a node host that is not started.
func newHost(t testing.TB, version, addr string) *host {
	t.Helper()
	h := &host{t: t, version: version, home: t.TempDir(), addr: addr}
	t.Cleanup(func() {
		h.kill()
		if t.Failed() {
			t.Logf("the node host %s printed:\n%s", h.version, h.printed())
		}
	})
	state := filepath.Join(h.home, ".openclaw")
	must(t, os.Mkdir(state, 0o700))
	server, err := filepath.Abs("testdata/mcp.mjs")
	must(t, err)
	config := map[string]any{}
	switch {
	case protocolOf(version) == 3: // it would install its plug-ins from npm when it starts
		config["plugins"] = map[string]any{"enabled": false}
	case version < "2026.8": // it knows no MCP servers of nodes
	default: // their tools become plug-in tools
		config["nodeHost"] = map[string]any{"mcp": map[string]any{"servers": map[string]any{
			"greeter": map[string]any{"command": nodeBinary(t), "args": []string{server}},
		}}}
	}
	text, err := json.Marshal(config)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(state, "openclaw.json"), text, 0o600))
	return h
}

// protocolOf returns the version of the protocol that a version of OpenClaw speaks.
func protocolOf(version string) int {
	if strings.HasPrefix(version, "2026.4.") {
		return 3
	}
	return 4
}

// nodeBinary returns the Node.js that runs all versions.
func nodeBinary(t testing.TB) string {
	t.Helper()
	system, machine := runtime.GOOS, strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	path, err := filepath.Abs(filepath.Join(installed, "node_modules", "node-"+system+"-"+machine, "bin", "node"))
	must(t, err)
	return path
}

// start starts the node host. Further arguments follow `openclaw node run`.
func (h *host) start(args ...string) {
	h.t.Helper()
	program, err := filepath.Abs(filepath.Join(installed, "node_modules", "openclaw-"+h.version, "openclaw.mjs"))
	must(h.t, err)
	node := nodeBinary(h.t)
	h.cmd, h.done = exec.Command(node, append([]string{program, "node", "run"}, args...)...), make(chan struct{})
	h.cmd.Dir = h.home
	h.cmd.Env = append([]string{
		"HOME=" + h.home, "PATH=" + filepath.Dir(node) + string(os.PathListSeparator) + "/usr/bin:/bin", "NO_COLOR=1",
		"npm_config_registry=http://127.0.0.1:1/", // nothing is installed while the tests run
	}, h.env...)
	h.cmd.Stdout, h.cmd.Stderr = (*printer)(h), (*printer)(h)
	h.cmd.WaitDelay = 10 * time.Second // what survives it keeps its output open
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	must(h.t, h.cmd.Start())
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(h.cmd, h.done)
}

// connect starts the node host with the address of the gateway.
func (h *host) connect() {
	h.t.Helper()
	name, port, _ := strings.Cut(h.addr, ":")
	args := []string{"--host", name, "--port", port, "--display-name", "tested " + h.version}
	if path := nodePath(h.version); path != "/" {
		args = append(args, "--context-path", path)
	}
	h.start(args...)
}

// kill ends the node host and all that it started.
func (h *host) kill() {
	if h.cmd == nil {
		return
	}
	children := descendants(h.cmd.Process.Pid)
	_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
	for _, pid := range children { // some are leaders of sessions of their own
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-h.done
}

// descendants returns the processes that a process has started, and those that they have. Only Linux tells them.
func descendants(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

func (h *host) printed() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.out.String()
}

// printer writes down what a node host prints.
type printer host

// Write implements io.Writer.
func (p *printer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// await polls until ok returns true, for as long as a node host may take.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(nodeLimit)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", nodeLimit, what)
		case <-tick.C:
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
