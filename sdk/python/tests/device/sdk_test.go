package device_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/testkit"
)

// Only a change of the SDK breaks these tests, which need Python packages.
var chosen = flag.Bool("sdk", false, "test the Python SDK")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*chosen {
		fmt.Println("nothing ran: -sdk tests the Python SDK, after sh .ci/deps sdk-python")
		return
	}
	code := m.Run()
	if dir, _ := packed(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// environment has the packages of requirements.txt, installed by .ci/deps, and their wheels.
func environment(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../../../../.cache/sdk-python")
	must(t, err)
	if _, err := os.Stat(filepath.Join(dir, "installed")); err != nil {
		t.Fatal("the packages of the Python SDK are missing: run sh .ci/deps sdk-python")
	}
	return dir
}

// packed is a folder with the wheel, and an environment that has only the wheel and what it needs.
var packed = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "farhand-python-")
	if err != nil {
		return "", err
	}
	script := `set -e
cp -r ../../pyproject.toml ../../README.md ../../src "$1"
"$2/bin/python" -m pip wheel -q --no-index --no-build-isolation --no-deps -w "$1/wheels" "$1"
"$2/bin/python" -m venv --without-pip "$1/venv"
"$2/bin/python" -m pip --python "$1/venv/bin/python" install -q --no-compile "farhand[pairing,pydantic]" gpiozero`
	environment, err := filepath.Abs("../../../../.cache/sdk-python")
	if err != nil {
		return dir, err
	}
	cmd := exec.Command("sh", "-c", script, "sh", dir, environment)
	cmd.Env = offline(dir, environment)
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// offline returns the variables with which pip takes the wheel, and what it needs, from folders.
func offline(dir, environment string) []string {
	return append(os.Environ(), "PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PYTHONDONTWRITEBYTECODE=1",
		"PIP_FIND_LINKS="+filepath.Join(dir, "wheels")+" "+filepath.Join(environment, "wheels"))
}

// project returns the folder of the wheel.
func project(t testing.TB) string {
	t.Helper()
	environment(t)
	dir, err := packed()
	must(t, err)
	return dir
}

// parrot is a model that says what it hears.
type parrot struct{}

func (parrot) Name() string { return "parrot" }

func (parrot) Generate(_ context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
	said := provider.Message{Role: provider.RoleAssistant, Content: r.Messages[len(r.Messages)-1].Content}
	emit(provider.Delta{Text: said.Content})
	return provider.Answer{Message: said, Stop: provider.StopEnd}, nil
}

// startPod runs a gateway.
func startPod(t *testing.T) string {
	t.Helper()
	g, err := farhand.New(t.Context(), farhand.DefaultConfig(), farhand.WithModel(parrot{}),
		farhand.WithLogger(slog.New(slog.DiscardHandler)))
	must(t, err)
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = g.Close(ctx)
		server.Close()
	})
	return server.URL
}

// post sends a JSON body, and returns the answer's.
func post(t *testing.T, url, body string) map[string]any {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	must(t, err)
	defer resp.Body.Close()
	answer := map[string]any{}
	must(t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer
}

// offered waits until a tool can be called.
func offered(t *testing.T, pod, tool string) {
	t.Helper()
	testkit.Eventually(t, tool, func() bool {
		resp, err := http.Get(pod + "/api/tools")
		must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		return strings.Contains(string(text), `"name":"`+tool+`"`)
	})
}

// call calls a tool, and checks that the answer has a text.
func call(t *testing.T, pod, tool, args, want string) {
	t.Helper()
	answer, err := json.Marshal(post(t, pod+"/api/tools/"+tool+"/call", `{"args":`+args+`}`))
	must(t, err)
	if got := strings.ReplaceAll(string(answer), `\"`, `"`); !strings.Contains(got, want) {
		t.Errorf("%s %s: %s, want %s", tool, args, got, want)
	}
}

// approvePairing approves a pairing with its code.
func approvePairing(t *testing.T, pod, code string) {
	t.Helper()
	answer := post(t, pod+"/api/pairings", `{"code":"`+code+`","decision":"approve","tools":["*"]}`)
	if answer["code"] != nil {
		t.Fatalf("approve %s: %v", code, answer)
	}
}

// program is a running program.
type program struct {
	cmd    *exec.Cmd
	lines  chan string // of stdout
	stderr bytes.Buffer
	done   chan struct{}
}

// start runs a program in a folder.
func start(t *testing.T, dir string, environment []string, name string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(name, args...), lines: make(chan string, 1<<16), done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = environment
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		defer close(p.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			p.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() { p.end(os.Kill) })
	return p
}

// startPython runs a Python program, with the environment of the wheel.
func startPython(t *testing.T, dir string, args ...string) *program {
	t.Helper()
	environment := append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "HOME="+dir, "STATE_DIRECTORY="+dir,
		"GPIOZERO_PIN_FACTORY=mock")
	return start(t, dir, environment, filepath.Join(project(t), "venv/bin/python"), args...)
}

// end sends a signal, waits for the end, and returns what the program wrote to stderr.
func (p *program) end(signal os.Signal) string {
	_ = p.cmd.Process.Signal(signal)
	<-p.done
	_ = p.cmd.Wait()
	return p.stderr.String()
}

// expect waits for a line with a text, and returns what follows the text.
func (p *program) expect(t *testing.T, text string) string {
	t.Helper()
	var seen []string
	for {
		line, open := "", true
		select {
		case line, open = <-p.lines:
		case <-time.After(testkit.Limit):
			open = false
		}
		if !open {
			t.Fatalf("no line with %q, but %q and %s", text, seen, p.end(os.Kill))
		}
		if _, rest, found := strings.Cut(line, text); found {
			return strings.TrimSpace(rest)
		}
		seen = append(seen, line)
	}
}

// run runs a program to its end, and returns what it wrote.
func run(t *testing.T, dir string, environment []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, environment
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
