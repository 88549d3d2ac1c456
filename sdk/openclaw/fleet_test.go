package openclaw_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
)

// token is the bearer token of the pods: an admin's.
const token = "openclaw-tests-token-0123456789"

// buildFarhand builds the program with the race detector.
func buildFarhand(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "farhand")
	build := exec.Command("go", "build", "-race", "-buildvcs=false", "-ldflags=-w", "-o", program, "./cmd/farhand")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// pod is a process of `farhand serve` that is started again on its address.
type pod struct {
	t             testing.TB
	program, name string
	addr          string
	env           []string

	mu  sync.Mutex
	out bytes.Buffer

	starts int
	cmd    *exec.Cmd
	done   chan struct{}
}

// startPod starts a pod that logs to the test if it fails.
func startPod(t testing.TB, program, name string, env ...string) *pod {
	t.Helper()
	p := &pod{t: t, program: program, name: name, addr: testkit.FreeAddr(t), env: env}
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		printed := p.printed()
		if t.Failed() || strings.Contains(printed, "DATA RACE") {
			t.Errorf("the pod %s printed:\n%s", p.addr, printed)
		}
	})
	p.start()
	return p
}

// id is the pod's name in the fleet, another one at each start.
func (p *pod) id() string { return fmt.Sprintf("%s%d", p.name, p.starts) }

// start starts the pod, and waits until it is ready.
func (p *pod) start() {
	p.t.Helper()
	p.starts++
	p.cmd, p.done = exec.Command(p.program, "serve"), make(chan struct{})
	p.cmd.Env = append(append(environment(), "FARHAND_ADDR="+p.addr, "FARHAND_POD_ID="+p.id(),
		"FARHAND_TOKEN="+token), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = (*podPrinter)(p), (*podPrinter)(p)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is killed takes its pods along
	must(p.t, p.cmd.Start())
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(p.cmd, p.done)
	testkit.Eventually(p.t, "the pod is ready", func() bool {
		select {
		case <-p.done:
			p.t.Fatalf("the pod ended: %s", p.printed())
		default:
		}
		resp, err := http.Get("http://" + p.addr + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// end sends the pod a signal, and waits until it has ended.
func (p *pod) end(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal)
	<-p.done
}

func (p *pod) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// podPrinter writes down what a pod prints.
type podPrinter pod

// Write implements io.Writer.
func (p *podPrinter) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// environment is this process's, without Farhand's variables.
func environment() (env []string) {
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "FARHAND_") {
			env = append(env, variable)
		}
	}
	return env
}

// cli runs a command of Farhand against the pod, and returns what it prints.
func (p *pod) cli(t testing.TB, args ...string) (out string, ok bool) {
	t.Helper()
	cmd := exec.Command(p.program, append(args, "--server", "http://"+p.addr)...)
	cmd.Env = append(environment(), "FARHAND_TOKEN="+token)
	text, err := cmd.CombinedOutput()
	return string(text), err == nil
}

// object is a JSON object.
type object = map[string]any

// do sends a request to the pod, and returns its status and the JSON of the answer.
func (p *pod) do(t testing.TB, method, path string, body any) (int, object) {
	t.Helper()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		must(t, err)
		reader = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), nodeLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+path, reader)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, object{"failed": err.Error()}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, object{"failed": err.Error()}
	}
	for line := range bytes.Lines(text) { // a stream of events ends with the answer
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			text = data
		}
	}
	answer := object{}
	_ = json.Unmarshal(text, &answer) // an answer without JSON has a status
	return resp.StatusCode, answer
}

// tools returns the tools of a device, by name.
func (p *pod) tools(t testing.TB, device string) map[string]object {
	t.Helper()
	_, answer := p.do(t, http.MethodGet, "/api/tools?limit=1000&device_id="+url.QueryEscape(device), nil)
	tools := map[string]object{}
	rows, _ := answer["tools"].([]any)
	for _, row := range rows {
		if row, ok := row.(object); ok {
			name, _ := row["name"].(string)
			tools[name] = row
		}
	}
	return tools
}
