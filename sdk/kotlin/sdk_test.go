package kotlin_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/sdk/internal/kotlintest"
)

var chosen = flag.Bool("sdk", false, "test the Kotlin SDK, with what sh .ci/deps kotlin installs")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*chosen {
		fmt.Println("the Kotlin SDK is not tested: only a change of it breaks its tests, which -sdk runs")
		return
	}
	os.Exit(m.Run())
}

// budget is the size of the device's jar, in bytes.
const budget = 400 << 10

// parrot is a model that repeats what it gets.
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

// post sends JSON to a pod, and returns the answer.
func post(t *testing.T, url, body string) (answer map[string]any) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	must(t, err)
	defer resp.Body.Close()
	must(t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer
}

// call calls a tool as soon as it is offered.
func call(t *testing.T, pod, tool, args string) (answer map[string]any) {
	t.Helper()
	testkit.Eventually(t, "the tool "+tool, func() bool {
		answer = post(t, pod+"/api/tools/"+tool+"/call", `{"args":`+args+`}`)
		return answer["code"] != "tool_not_found"
	})
	return answer
}

// approve approves the pairing whose code a program shows.
func (p *program) approve(t *testing.T, pod string) {
	t.Helper()
	_, code, _ := strings.Cut(p.expect(t, "farhand pair approve "), "farhand pair approve ")
	answer := post(t, pod+"/api/pairings", `{"code":"`+code+`","decision":"approve","tools":["*"]}`)
	if answer["code"] != nil {
		t.Fatalf("approve: %v", answer)
	}
}

// program is a running program.
type program struct {
	lines chan string // of stdout
	cmd   *exec.Cmd
}

func start(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
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
		if t.Failed() {
			t.Logf("%s: %s", strings.Join(cmd.Args, " "), stderr.Bytes())
		}
	})
	return p
}

// expect waits for a line with a text, and returns it.
func (p *program) expect(t *testing.T, text string) string {
	t.Helper()
	var seen []string
	for {
		select {
		case line, more := <-p.lines:
			if strings.Contains(line, text) {
				return line
			}
			if seen = append(seen, line); !more {
				t.Fatalf("the program ended without %q: %q", text, seen)
			}
		case <-time.After(testkit.Limit):
			t.Fatalf("the program does not write %q", text)
		}
	}
}

// blocks returns the code of a language in a page.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text, -1) {
		found = append(found, string(m[1]))
	}
	return found
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// TestReadme compiles the programs of README.md in a project with the package, and runs them against a pod.
func TestReadme(t *testing.T) {
	kotlintest.Build(t)
	dir := t.TempDir()
	pom, err := os.ReadFile("../../examples/device-kotlin/pom.xml")
	must(t, err)
	write(t, filepath.Join(dir, "pom.xml"), string(pom))
	programs := blocks(t, "README.md", "kotlin")
	checks := []func(t *testing.T, pod string, p *program){
		func(t *testing.T, pod string, _ *program) {
			same(t, call(t, pod, "lamp", `{"on":true}`)["output"], "The lamp is on.")
			same(t, call(t, pod, "lamp", `{}`)["code"], "invalid_arguments")
		},
		func(t *testing.T, pod string, _ *program) {
			same(t, call(t, pod, "count", `{"to":3}`)["output"], `{"counted":3}`)
			same(t, call(t, pod, "count", `{"to":300}`)["code"], "invalid_arguments")
			got := call(t, pod, "camera_snap", `{"facing":"front"}`)
			same(t, got["output"], "The front camera.")
			if parts, _ := got["parts"].([]any); len(parts) != 1 {
				t.Errorf("camera_snap: %v", got)
			}
		},
		func(t *testing.T, pod string, p *program) {
			p.approve(t, pod)
			same(t, call(t, pod, "ring", `{}`)["output"], "It rang.")
			p.expect(t, "Connected(")
		},
		func(t *testing.T, _ string, p *program) {
			p.expect(t, "Hello")
			p.expect(t, "Hello")
			for range p.lines { // it ends
			}
		},
	}
	if len(programs) != len(checks) {
		t.Fatalf("README.md has %d programs", len(programs))
	}
	for i, code := range programs {
		code = strings.ReplaceAll(code, `"https://gateway.example.com"`, `System.getenv("GATEWAY")`)
		path := filepath.Join(dir, fmt.Sprintf("src/main/kotlin/Main%d.kt", i))
		write(t, path, fmt.Sprintf("package readme%d\n\n%s", i, code))
	}
	kotlintest.Run(t, kotlintest.Maven(t.Context(), t, dir, "compile", "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory=libs"))
	for i, check := range checks {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			pod := startPod(t)
			cmd := exec.Command("java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp",
				filepath.Join(dir, "target/classes")+":"+filepath.Join(dir, "libs/*"),
				fmt.Sprintf("readme%d.Main%dKt", i, i))
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "GATEWAY="+pod)
			write(t, filepath.Join(cmd.Dir, "picture.png"), "\x89PNG")
			check(t, pod, start(t, cmd))
		})
	}
}

// TestTutorial walks through the part of docs/tutorial-kotlin.md that needs no phone, in an empty folder.
func TestTutorial(t *testing.T) {
	kotlintest.Build(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "pom.xml"), blocks(t, "../../docs/tutorial-kotlin.md", "xml")[0])
	write(t, filepath.Join(dir, "Main.kt"), blocks(t, "../../docs/tutorial-kotlin.md", "kotlin")[0])
	pod := startPod(t)
	p := runProject(t, dir, pod)
	p.approve(t, pod)
	p.expect(t, "Connected(")
	same(t, call(t, pod, "remind", `{"text":"Time for tea","times":2}`)["output"], "The person sees: Time for tea")
	p.expect(t, "Time for tea")
	p.expect(t, "Time for tea")
	broken := make(chan map[string]any, 1)
	go func() {
		broken <- post(t, pod+"/api/tools/remind/call", `{"args":{"text":"Wake up","times":10,"pause":3}}`)
	}()
	p.expect(t, "Wake up")
	must(t, p.cmd.Process.Kill())
	for range p.lines { // it has ended
	}
	again := runProject(t, dir, pod) // without a code
	again.expect(t, "Connected(")
	same(t, call(t, pod, "remind", `{}`)["code"], "invalid_arguments")
	answer := testkit.Receive(t, "the end of the broken call", broken)
	if text, _ := answer["error"].(string); answer["code"] != "connection_lost" &&
		!strings.Contains(text, "The device restarted during this call.") {
		t.Errorf("the broken call: %v", answer)
	}
}

// TestExample runs examples/device-kotlin.
func TestExample(t *testing.T) {
	kotlintest.Build(t)
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../../examples/device-kotlin")))
	pod := startPod(t)
	p := runProject(t, dir, pod)
	p.approve(t, pod)
	same(t, call(t, pod, "count", `{"to":3,"pause":1}`)["output"], "Counted to 3.")
	if got, _ := call(t, pod, "disk_space", `{}`)["output"].(string); !strings.Contains(got, `"totalBytes":`) {
		t.Errorf("disk_space: %s", got)
	}
	same(t, call(t, pod, "disk_space", `{"folder":"/none"}`)["error"], "/none is no folder")
}

// runProject compiles and starts the program of a Maven project, as its page says.
func runProject(t *testing.T, dir, pod string) *program {
	t.Helper()
	kotlintest.Run(t, kotlintest.Maven(t.Context(), t, dir, "compile"))
	cmd := kotlintest.Maven(t.Context(), t, dir, "exec:java", "-Duser.home="+dir)
	cmd.Env = append(cmd.Env, "FARHAND_URL="+pod)
	return start(t, cmd)
}

// TestAndroid compiles examples/device-android and the app of the tutorial against Android's API.
func TestAndroid(t *testing.T) {
	kotlintest.Build(t)
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../../examples/device-android")))
	for i, code := range blocks(t, "../../docs/tutorial-kotlin.md", "kotlin")[1:] {
		write(t, filepath.Join(dir, fmt.Sprintf("src/main/kotlin/Tutorial%d.kt", i)), code)
	}
	kotlintest.Run(t, kotlintest.Maven(t.Context(), t, dir, "compile"))
	text, err := os.ReadFile("../../examples/device-android/src/main/AndroidManifest.xml")
	must(t, err)
	for _, manifest := range append(blocks(t, "../../docs/tutorial-kotlin.md", "xml")[1:], string(text)) {
		for decoder := xml.NewDecoder(strings.NewReader(manifest)); err != io.EOF; _, err = decoder.Token() {
			must(t, err)
		}
		err = nil
	}
}

// TestFormat checks the sources with ktlint, the formatter of Kotlin's style guide. `ktlint -F` formats them.
func TestFormat(t *testing.T) {
	root := kotlintest.Root(t)
	jars, err := filepath.Glob(filepath.Join(root,
		".cache/maven/com/pinterest/ktlint/ktlint-cli/*/ktlint-cli-*-all.jar"))
	must(t, err)
	if len(jars) != 1 {
		t.Fatal("ktlint is missing: run sh .ci/deps kotlin")
	}
	cmd := exec.CommandContext(t.Context(), "java", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-jar", jars[0],
		"--editorconfig=sdk/kotlin/.editorconfig", "sdk/kotlin/*/src/**/*.kt", "sdk/conformance/drivers/kotlin/*.kt",
		"examples/device-kotlin/src/**/*.kt", "examples/device-android/src/**/*.kt")
	cmd.Dir = root
	kotlintest.Run(t, cmd)
}

// TestWeight prints what the SDK and its dependencies weigh, and compares the SDK with its budget.
func TestWeight(t *testing.T) {
	device := kotlintest.Build(t)
	jar := filepath.Join(device, "target/farhand-device-0.1.0.jar")
	info, err := os.Stat(jar)
	must(t, err)
	t.Logf("farhand-device: %d KB of %d", info.Size()>>10, budget>>10)
	if info.Size() > budget {
		t.Errorf("the jar has %d bytes, more than %d", info.Size(), budget)
	}
	allowed := regexp.MustCompile(`^(annotations|kotlin-stdlib|kotlinx-(coroutines|serialization)-(core|json)|okhttp|okio)-`)
	libs, err := filepath.Glob(filepath.Join(device, "target/libs/*.jar"))
	must(t, err)
	for _, lib := range libs {
		info, err := os.Stat(lib)
		must(t, err)
		t.Logf("%s: %d KB", filepath.Base(lib), info.Size()>>10)
		if !allowed.MatchString(filepath.Base(lib)) {
			t.Errorf("the SDK depends on %s", filepath.Base(lib))
		}
	}
	classes, err := zip.OpenReader(jar)
	must(t, err)
	defer classes.Close()
	for _, file := range classes.File {
		if strings.HasPrefix(file.Name, "io/github/farhand/conformance") {
			t.Errorf("the jar has %s of the tests", file.Name)
		}
	}
}

func same(t *testing.T, got any, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
