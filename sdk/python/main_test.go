// Package python_test runs the Python client against real pods. It needs packages of .ci/deps, and runs only with the
// flag -sdk, since only a change of the client or of the HTTP API can break it.
package python_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
)

var chosen = flag.Bool("sdk", false, "test the Python client")

// repository is the root of the module.
const repository = "../.."

// built has what the tests share: the gateway, and the client as pip installs its wheel.
var built struct{ gateway, packages string }

func TestMain(m *testing.M) {
	flag.Parse()
	if !*chosen {
		fmt.Println("sdk/python: nothing ran; -args -sdk tests the Python client (make sdk)")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "farhand-python-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build makes the gateway, and packs and installs the client.
func build(dir string) error {
	if _, err := os.Stat(interpreter()); err != nil {
		return fmt.Errorf("the packages of the Python client are missing, run sh .ci/deps python-client: %w", err)
	}
	built.gateway, built.packages = filepath.Join(dir, "farhand"), filepath.Join(dir, "packages")
	gateway := exec.Command("go", "build", "-o", built.gateway, "./cmd/farhand")
	gateway.Dir = repository
	// hatchling packs a copy, since it writes beside the sources.
	wheel := exec.Command("sh", "-ec", `mkdir "$2/source"
cp -r pyproject.toml README.md src "$2/source"
cd "$2/source"
"$1" -m hatchling build -t wheel -d ../wheel >/dev/null 2>&1
"$1" -m pip install -q --disable-pip-version-check --no-index --no-deps --no-compile --target ../packages \
  ../wheel/*.whl`,
		"sh", interpreter(), dir)
	for _, cmd := range []*exec.Cmd{gateway, wheel} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
	}
	return nil
}

// interpreter is the Python of the environment that .ci/deps makes.
func interpreter() string {
	path, err := filepath.Abs(filepath.Join(repository, ".cache/python-client/bin/python"))
	if err != nil {
		panic(err) // there is no working directory
	}
	return path
}

// program is a running Python program.
type program struct {
	process *os.Process
	stdin   io.WriteCloser
	lines   chan string // of stdout; closed when it ends
	done    chan struct{}
	err     error // of Wait, valid once done is closed
}

// python starts a program with the installed client, in an empty folder.
func python(t *testing.T, env []string, path string, args ...string) *program {
	t.Helper()
	path, err := filepath.Abs(path)
	must(t, err)
	cmd := exec.Command(interpreter(), append([]string{"-u", path}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(environment(), "PYTHONPATH="+built.packages, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = &testOutput{t: t, name: filepath.Base(path)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &program{lines: make(chan string, 1<<16), done: make(chan struct{})}
	p.stdin, err = cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p.process = cmd.Process
	go func() {
		defer close(p.done)
		defer close(p.lines)
		scan := bufio.NewScanner(out)
		for scan.Buffer(nil, 1<<20); scan.Scan(); {
			p.lines <- scan.Text()
		}
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
	})
	return p
}

// end waits for the end of a program that must succeed, and returns what it printed.
func (p *program) end(t *testing.T) []string {
	t.Helper()
	_ = p.stdin.Close()
	testkit.Receive(t, "the end of the program", p.done)
	var lines []string
	for line := range p.lines {
		lines = append(lines, line)
	}
	if p.err != nil {
		t.Fatalf("the program failed: %v\n%s", p.err, strings.Join(lines, "\n"))
	}
	return lines
}

// environment is that of the developer without settings of gateways, models and proxies.
func environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "FARHAND_") && !strings.HasPrefix(name, "OPENAI_") &&
			!strings.HasPrefix(name, "ANTHROPIC_") && !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			env = append(env, kv)
		}
	}
	return env
}

// testOutput shows what a process wrote if its test fails.
type testOutput struct {
	t    *testing.T
	name string
	mu   sync.Mutex
	text strings.Builder
	once sync.Once
}

func (o *testOutput) Write(p []byte) (int, error) {
	o.once.Do(func() {
		o.t.Cleanup(func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.t.Failed() {
				o.t.Logf("%s:\n%s", o.name, o.text.String())
			}
		})
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pythonTool runs a tool of the environment on the sources, and returns what it printed.
func pythonTool(args ...string) (string, error) {
	cmd := exec.Command(interpreter(), args...)
	cmd.Env = append(environment(), "PYTHONDONTWRITEBYTECODE=1", "MYPYPATH=src")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
