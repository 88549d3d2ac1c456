package typescript_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/chromiumtest"
	"github.com/farhand/farhand/internal/testkit"
)

// budget is the size of everything that a page needs to be a device, in bytes, as a bundler makes it and gzip packs it.
const budget = 15 << 10

// parrot is a model that answers what it is told.
type parrot struct{}

func (parrot) Name() string { return "parrot" }

func (parrot) Generate(_ context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
	said := provider.Message{Role: provider.RoleAssistant, Content: r.Messages[len(r.Messages)-1].Content}
	emit(provider.Delta{Text: said.Content})
	return provider.Answer{Message: said, Stop: provider.StopEnd}, nil
}

// startPod runs a gateway, beside files for a browser.
func startPod(t *testing.T, config farhand.Config, files http.Handler) string {
	t.Helper()
	g, err := farhand.New(t.Context(), config, farhand.WithModel(parrot{}),
		farhand.WithLogger(slog.New(slog.DiscardHandler)))
	must(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/ws/") ||
			strings.HasPrefix(r.URL.Path, "/pair") || files == nil {
			g.Handler().ServeHTTP(w, r)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = g.Close(ctx)
		server.Close()
	})
	return server.URL
}

// call calls a tool, and returns the answer.
func call(t *testing.T, pod, tool, args string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, pod+"/api/tools/"+tool+"/call",
		strings.NewReader(`{"args":`+args+`}`))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer a-token-for-the-page")
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer resp.Body.Close()
	var answer map[string]any
	must(t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer
}

// packed is the package as npm installs it: made once, by npm pack, in a project of its own beside what the tests use.
var packed = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "farhand-sdk-")
	if err != nil {
		return "", err
	}
	source, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	// prepack compiles in a copy, since other tests compile too.
	script := `set -e
cp -r "$1/src" "$1/package.json" "$1/tsconfig.json" "$1/README.md" "$2"
ln -s "$1/node_modules" "$2/node_modules"
cd "$2" && mkdir packs project
npm pack --silent --offline --pack-destination packs >/dev/null
npm pack --silent --offline --ignore-scripts --pack-destination packs ./node_modules/ws/ >/dev/null
cd project && echo '{"type":"module"}' >package.json
npm install --silent --offline --no-audit --no-fund ../packs/*.tgz >/dev/null`
	cmd := exec.Command("sh", "-c", script, "sh", source, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, &packError{err, out}
	}
	return dir, nil
})

type packError struct {
	err error
	out []byte
}

func (e *packError) Error() string { return e.err.Error() + ": " + string(e.out) }

// project returns the folder of a project that has the package installed, and the folder of what npm packed.
func project(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
		t.Fatal("the packages of the TypeScript SDK are missing: run make deps")
	}
	dir, err := packed()
	must(t, err)
	return dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := packed(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// link gives a folder the package as it is installed, and what else its programs import.
func link(t *testing.T, project, own string) {
	t.Helper()
	modules := filepath.Join(own, "node_modules")
	must(t, os.Mkdir(modules, 0o700))
	for _, name := range []string{"@farhand", "ws"} {
		must(t, os.Symlink(filepath.Join(project, "project/node_modules", name), filepath.Join(modules, name)))
	}
	for _, name := range []string{"zod", "valibot", "arktype", "@ark", "arkregex"} {
		must(t, os.Symlink(filepath.Join(project, "node_modules", name), filepath.Join(modules, name)))
	}
}

// program is a running Node program.
type program struct {
	lines chan string // of stdout
	cmd   *exec.Cmd
}

// startNode runs a program in a project that has the package and what else it imports.
func startNode(t *testing.T, text string, args ...string) *program {
	t.Helper()
	dir := project(t)
	own := t.TempDir()
	must(t, os.WriteFile(filepath.Join(own, "package.json"), []byte(`{"type":"module"}`), 0o600))
	must(t, os.WriteFile(filepath.Join(own, "program.js"), []byte(text), 0o600))
	must(t, os.WriteFile(filepath.Join(own, "picture.png"), []byte("\x89PNG"), 0o600))
	link(t, dir, own)
	cmd := exec.Command("node", append([]string{"--no-warnings", "--preserve-symlinks", "program.js"}, args...)...)
	cmd.Dir = own
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &program{lines: make(chan string, 1<<16), cmd: cmd}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			p.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return p
}

// expect waits for a line with a text, and returns it.
func (p *program) expect(t *testing.T, text string) string {
	t.Helper()
	var seen []string
	for {
		line := testkit.Receive(t, "the line "+text, p.lines)
		if strings.Contains(line, text) {
			return line
		}
		if seen = append(seen, line); line == "" && len(p.lines) == 0 {
			t.Fatalf("the program ended without %q: %q", text, seen)
		}
	}
}

// TestReadme runs the programs of README.md with the package as npm installs it, against a pod.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	must(t, err)
	blocks := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllSubmatch(text, -1)
	checks := []func(t *testing.T, pod string, p *program){
		func(t *testing.T, pod string, _ *program) {
			if got := call(t, pod, "lamp", `{"on":true}`); got["output"] != "The lamp is on." {
				t.Errorf("lamp: %v", got)
			}
		},
		func(t *testing.T, pod string, _ *program) {
			if got := call(t, pod, "count", `{"to":3,"step":1}`); got["output"] != `{"counted":3}` {
				t.Errorf("count: %v", got)
			}
			if got := call(t, pod, "count", `{"to":300}`); got["code"] != "invalid_arguments" {
				t.Errorf("count: %v", got)
			}
			if got := call(t, pod, "snap", `{}`); got["output"] != "Here it is." || len(got["parts"].([]any)) != 1 {
				t.Errorf("snap: %v", got)
			}
		},
		func(t *testing.T, pod string, _ *program) {
			if got := call(t, pod, "ring", `{}`); got["output"] != "It rang." {
				t.Errorf("ring: %v", got)
			}
		},
		func(t *testing.T, _ string, p *program) { p.expect(t, "HelloHello") },
	}
	if len(blocks) != len(checks) {
		t.Fatalf("README.md has %d programs", len(blocks))
	}
	for i, check := range checks {
		pod := startPod(t, farhand.DefaultConfig(), nil)
		code := strings.ReplaceAll(string(blocks[i][1]), "https://gateway.example.com", pod)
		p := startNode(t, code+"\nconsole.log('it is ready');\n")
		if strings.Contains(code, "pair(") {
			approve(t, pod, strings.TrimPrefix(p.expect(t, "farhand pair approve "), "farhand pair approve "))
		}
		if i < 3 {
			p.expect(t, "it is ready")
		}
		check(t, pod, p)
	}
}

// approve approves a pairing with its code.
func approve(t *testing.T, pod, code string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"code": code, "decision": "approve", "tools": []string{"*"}})
	must(t, err)
	resp, err := http.Post(pod+"/api/pairings", "application/json", bytes.NewReader(body))
	must(t, err)
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("approve: %s %s", resp.Status, answer)
	}
}

// TestSchemas: the gateway gets the JSON Schema of each library, and the handler what the library makes of the
// arguments. Results that are too large for an answer are uploaded.
func TestSchemas(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/schemas.mjs")
	must(t, err)
	pod := startPod(t, farhand.DefaultConfig(), nil)
	p := startNode(t, string(text), pod)
	p.expect(t, "made with valibot, does not say its JSON Schema")
	p.expect(t, `"registered":4,"rejected":[]`)
	for _, tt := range []struct{ tool, args, want string }{
		{"zod", `{"n":1,"day":"Monday"}`, `{"n":1,"word":"none","day":6}`},
		{"zod", `{"n":0,"day":"Monday"}`, "invalid_arguments"},
		{"arktype", `{"n":2}`, `{"n":2}`},
		{"arktype", `{"n":0}`, "invalid_arguments"},
		{"valibot", `{"word":" two "}`, `{"word":"two"}`},
		{"valibot", `{"word":" x "}`, "word: it is too short"},
		{"big", `{}`, `"name":"clip.mp4","size":3145728,"type":"file"`},
	} {
		answer, err := json.Marshal(call(t, pod, tt.tool, tt.args))
		must(t, err)
		if got := strings.ReplaceAll(string(answer), `\"`, `"`); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.tool, tt.args, got, tt.want)
		}
	}
}

// TestTypes compiles a program of a user with strict options.
func TestTypes(t *testing.T) {
	t.Parallel()
	dir := project(t)
	own := t.TempDir()
	text, err := os.ReadFile("testdata/types.ts")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(own, "types.ts"), text, 0o600))
	must(t, os.WriteFile(filepath.Join(own, "package.json"), []byte(`{"type":"module"}`), 0o600))
	link(t, dir, own)
	for _, resolution := range [][]string{
		{"--module", "NodeNext"}, {"--module", "ESNext", "--moduleResolution", "bundler"},
	} {
		args := append([]string{
			filepath.Join(dir, "node_modules/typescript/bin/tsc"), "types.ts", "--strict", "--noEmit",
			"--preserveSymlinks", "--exactOptionalPropertyTypes", "--skipLibCheck", "--target", "es2022", "--lib",
			"es2023,dom", "--types", "",
		}, resolution...)
		cmd := exec.Command("node", args...)
		cmd.Dir = own
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("tsc %v: %v\n%s", resolution, err, out)
		}
	}
}

// TestSize bundles the whole device for a browser, and compares it with the budget.
func TestSize(t *testing.T) {
	t.Parallel()
	dir := project(t)
	bundle := filepath.Join(t.TempDir(), "device.js")
	cmd := exec.Command("node", filepath.Join(dir, "node_modules/rolldown/bin/cli.mjs"), "dist/index.js", "--minify",
		"--format", "esm", "--file", bundle)
	cmd.Dir = filepath.Join(dir, "project/node_modules/@farhand/device")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("rolldown: %v\n%s", err, out)
	}
	text, err := os.ReadFile(bundle)
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
	if bytes.Contains(text, []byte("node:")) {
		t.Error("the bundle for browsers needs Node.js")
	}
}

// TestFileStoreOutlivesCrashes kills a program as it writes: what it said is kept is there, and the file stays small.
func TestFileStoreOutlivesCrashes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/store.mjs")
	must(t, err)
	file := filepath.Join(t.TempDir(), "sub", "device.jsonl")
	last := "0"
	for range 4 {
		p := startNode(t, string(text), file)
		for range 60 {
			line := testkit.Receive(t, "a value", p.lines)
			if strings.Contains(line, "lost") || strings.Contains(line, "added") || line == "" {
				t.Fatalf("after %s: %q", last, line)
			}
			last = line
		}
		must(t, p.cmd.Process.Kill())
		for range p.lines {
		}
	}
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 || info.Size() > 2<<20 {
		t.Errorf("the file has the mode %v and %d bytes", info.Mode(), info.Size())
	}
}

// TestReconnect: reconnect does not shorten the time that the gateway asks for.
func TestReconnect(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/reconnect.mjs")
	must(t, err)
	startNode(t, string(text)).expect(t, "in time")
}

// TestHostileGateway: a gateway sends a file of the device nowhere else, and the device keeps no long id.
func TestHostileGateway(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/hostile.mjs")
	must(t, err)
	p := startNode(t, string(text))
	if line := testkit.Receive(t, "an answer", p.lines); line != "1 the gateway names no path of its own for the file" {
		t.Errorf("%.200s", line)
	}
}

// TestTimeoutsOutliveCollections: a call that waits for its turn ends in time, also if memory is collected meanwhile.
func TestTimeoutsOutliveCollections(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/collected.mjs")
	must(t, err)
	line := testkit.Receive(t, "the end of the call", startNode(t, string(text)).lines)
	if !strings.HasPrefix(line, "2 not started: ") {
		t.Errorf("%.200s", line)
	}
}

// TestWebMCP offers the tools of a page in Chromium, as they come and go, and tells the page why a token is refused.
// Two devices with one store take turns.
func TestWebMCP(t *testing.T) {
	t.Parallel()
	dir := project(t)
	config := farhand.DefaultConfig()
	config.Token = "a-token-for-the-page"
	files := http.NewServeMux()
	files.HandleFunc("GET /page", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "testdata/webmcp.html")
	})
	files.HandleFunc("GET /polyfill.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "node_modules/@mcp-b/webmcp-polyfill/dist/index.iife.js")
	})
	installed := filepath.Join(dir, "project/node_modules/@farhand/device/dist")
	files.Handle("GET /sdk/", http.StripPrefix("/sdk/", http.FileServer(http.Dir(installed))))
	pod := startPod(t, config, files)
	said := make(chan string, 256)
	tab := chromiumtest.Open(t, chromiumtest.Start(t), func(text string) { said <- text })
	await := func(text string) {
		t.Helper()
		for !strings.Contains(testkit.Receive(t, text, said), text) {
		}
	}
	tab.Show(pod + "/page?token=wrong")
	await(`"code":"unauthenticated"`)
	tab.Show(pod + "/page?token=" + string(config.Token))
	await(`"registered":3`)
	for _, tt := range []struct{ tool, args, want string }{
		{"sum", `{"a":1,"b":2}`, `"output":"{\"sum\":3}"`}, {"sum", `{}`, "invalid_arguments"},
		{"draw", `{}`, `"data":"iVBORw=="`}, {"broken", `{}`, "out of ink"},
	} {
		answer, err := json.Marshal(call(t, pod, tt.tool, tt.args))
		must(t, err)
		if !strings.Contains(string(answer), tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.tool, tt.args, answer, tt.want)
		}
	}
	tab.Run("registration.abort()")
	await(`"registered":2`)
	tab.Run("another()") // device with the same store
	await("in_use")
	tab.Run("void device.stop()")
	await(`"registered":1`)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
