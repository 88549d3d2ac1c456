package client_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
)

var chosen = flag.Bool("sdk", false, "test @farhand/client; needs sh .ci/deps client, Redis, Node.js and Chromium")

// token is the gateways' own, an administrator's.
const token = "client-test-token-0123456789"

// budget is the size of all of the client but the helpers, in bytes, as a bundler makes it and gzip packs it.
const budget = 10 << 10

func TestMain(m *testing.M) {
	flag.Parse()
	if !*chosen {
		fmt.Println("the tests of @farhand/client run with: go test ./sdk/typescript/client -sdk")
		return
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	for _, dir := range folders {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// packScript packs both packages, as npm would publish them, and installs them in an empty project.
const packScript = `set -e
mkdir "$2/packs" "$2/project"
for package in client device; do
  from=$1; [ $package = client ] || from=$1/..
  mkdir "$2/$package"
  cp -r "$from/src" "$from/package.json" "$from/tsconfig.json" "$from/README.md" "$2/$package"
  ln -s "$(cd "$from" && pwd)/node_modules" "$2/$package/node_modules"
  (cd "$2/$package" && npm pack --silent --offline --pack-destination ../packs)
done
npm pack --silent --offline --ignore-scripts --pack-destination "$2/packs" "$2/device/node_modules/ws/"
cd "$2/project" && echo '{"type":"module"}' >package.json
npm install --silent --offline --no-audit --no-fund --legacy-peer-deps ../packs/*.tgz`

// installed makes a folder whose "project" has the packed packages installed, once.
var installed = sync.OnceValues(func() (string, error) {
	source, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	return makeIn(func(dir string) *exec.Cmd { return exec.Command("sh", "-c", packScript, "sh", source, dir) })
})

// built makes a folder with the program "farhand", once.
var built = sync.OnceValues(func() (string, error) {
	return makeIn(func(dir string) *exec.Cmd {
		return exec.Command("go", "build", "-o", filepath.Join(dir, "farhand"), "../../../cmd/farhand")
	})
})

// folders are those that makeIn has made.
var (
	foldersMu sync.Mutex
	folders   []string
)

// makeIn runs a command that fills a new folder.
func makeIn(command func(dir string) *exec.Cmd) (string, error) {
	dir, err := os.MkdirTemp("", "farhand-client-")
	if err != nil {
		return "", err
	}
	foldersMu.Lock()
	folders = append(folders, dir)
	foldersMu.Unlock()
	if out, err := command(dir).CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
}

// newProject returns an empty project that has the packed packages, and those of vendors that the programs import.
func newProject(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600))
	install(t, dir)
	return dir
}

// install gives a project its node_modules, as npm install would.
func install(t *testing.T, dir string) {
	t.Helper()
	for _, dir := range []string{".", ".."} {
		if _, err := os.Stat(filepath.Join(dir, "node_modules/.package-lock.json")); err != nil {
			t.Fatal("the packages of the TypeScript SDK are missing: run sh .ci/deps client")
		}
	}
	made, err := installed()
	must(t, err)
	packed := filepath.Join(made, "project", "node_modules")
	modules := filepath.Join(dir, "node_modules")
	must(t, os.Mkdir(modules, 0o700))
	must(t, exec.Command("cp", "-r", filepath.Join(packed, "@farhand"), filepath.Join(packed, "ws"), modules).Run())
	vendors, err := os.ReadDir("node_modules")
	must(t, err)
	for _, vendor := range vendors {
		to := filepath.Join(modules, vendor.Name())
		if _, err := os.Lstat(to); err == nil || strings.HasPrefix(vendor.Name(), ".") {
			continue
		}
		from, err := filepath.Abs(filepath.Join("node_modules", vendor.Name()))
		must(t, err)
		must(t, os.Symlink(from, to))
	}
}

// program is a running program.
type program struct {
	lines chan string // of stdout
	ended chan struct{}
	cmd   *exec.Cmd
}

// start starts a program in a folder. It ends with the test.
func start(t *testing.T, dir string, env []string, name string, args ...string) *program {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	for _, kv := range os.Environ() { // what the developer has exported is not part of the test
		if !strings.HasPrefix(kv, "FARHAND_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &program{lines: make(chan string, 1<<16), ended: make(chan struct{}), cmd: cmd}
	go func() {
		defer close(p.ended)
		defer close(p.lines)
		scan := bufio.NewScanner(out)
		for scan.Buffer(nil, 1<<22); scan.Scan(); {
			p.lines <- scan.Text()
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a shell has started, too
		<-p.ended
		if t.Failed() && errors.Len() > 0 {
			t.Logf("%s %s:\n%s", name, args, errors.String())
		}
	})
	return p
}

// startNode runs a program's text in a project of its own.
func startNode(t *testing.T, env []string, text string, args ...string) *program {
	t.Helper()
	dir := newProject(t)
	must(t, os.WriteFile(filepath.Join(dir, "program.js"), []byte(text), 0o600))
	return start(t, dir, env, "node", append([]string{"program.js"}, args...)...)
}

// expect waits for a line with a text, and returns it.
func (p *program) expect(t *testing.T, text string) string {
	t.Helper()
	var seen []string
	for {
		line, more := receive(t, "the line "+text, p.lines)
		if !more {
			t.Fatalf("the program ended without %q: %q", text, seen)
		}
		if strings.Contains(line, text) {
			return line
		}
		seen = append(seen, line)
	}
}

// rest waits for the end of the program, and returns what it still prints and whether it succeeded.
func (p *program) rest(t *testing.T) (lines []string, ok bool) {
	t.Helper()
	for {
		line, more := receive(t, "the end of the program", p.lines)
		if !more {
			<-p.ended
			return lines, p.cmd.ProcessState.Success()
		}
		lines = append(lines, line)
	}
}

// receive takes a line, unless there are no more.
func receive(t *testing.T, what string, lines <-chan string) (string, bool) {
	t.Helper()
	type taken struct {
		line string
		more bool
	}
	next := make(chan taken, 1)
	go func() {
		line, more := <-lines
		next <- taken{line, more}
	}()
	got := testkit.Receive(t, what, next)
	return got.line, got.more
}

// TestSize bundles the client for a browser, and compares it with the budget.
func TestSize(t *testing.T) {
	t.Parallel()
	dir := newProject(t)
	cli, err := filepath.Abs("node_modules/rolldown/bin/cli.mjs")
	must(t, err)
	cmd := exec.Command("node", cli, "node_modules/@farhand/client/dist/index.js", "--minify", "--format", "esm",
		"--file", "bundle.js")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("rolldown: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "bundle.js"))
	must(t, err)
	var small bytes.Buffer
	w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	must(t, err)
	_, err = w.Write(text)
	must(t, err)
	must(t, w.Close())
	t.Logf("%d bytes, gzipped %d of %d", len(text), small.Len(), budget)
	if small.Len() > budget {
		t.Errorf("the bundle has %d bytes, more than %d", small.Len(), budget)
	}
}

// TestTypes compiles a program of a user with strict options, and the types of the vendors.
func TestTypes(t *testing.T) {
	t.Parallel()
	dir := newProject(t)
	text, err := os.ReadFile("testdata/types.ts")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "types.ts"), text, 0o600))
	compiler, err := filepath.Abs("node_modules/typescript/bin/tsc")
	must(t, err)
	for _, resolution := range [][]string{
		{"--module", "NodeNext"}, {"--module", "ESNext", "--moduleResolution", "bundler"},
	} {
		args := append([]string{
			compiler, "types.ts", "--strict", "--noEmit", "--exactOptionalPropertyTypes", "--skipLibCheck",
			"--target", "es2022", "--lib", "es2023,dom,dom.iterable", "--types", "",
		}, resolution...)
		cmd := exec.Command("node", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("tsc %v: %v\n%s", resolution, err, out)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
