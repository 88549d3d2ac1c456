package mcptest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// TestClients has the SDKs of the MCP project and its Inspector use a device's tools, each in a tenant of its own. The
// requests of each must have come to all three pods.
func TestClients(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	scripts := scriptsIn(t)
	js := func(args ...string) []string { return append([]string{node(t)}, args...) }
	python := []string{need(t, "python", "bin", "python"), filepath.Join(scripts, "client.py")}
	for _, c := range []struct {
		name, revision string
		notices        bool // the client hears that the device left
		command        []string
	}{
		{"ts2-2026-07-28", "2026-07-28", true, js(filepath.Join(scripts, "ts2.mjs"))},
		{"ts2-2025-11-25", "2025-11-25", false, js(filepath.Join(scripts, "ts2.mjs"))},
		{"ts1", "2025-11-25", false, js(filepath.Join(scripts, "ts1.mjs"))},
		{"python-2026-07-28", "2026-07-28", true, python},
		{"python-2025-11-25", "2025-11-25", false, python},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := f.connectUsed(t, c.name)
			p := d.client(t, c.command[0], append(c.command[1:], f.url+"/mcp", d.token, c.revision)...)
			p.want(t, "revision "+c.revision, "tools echo hold slow")
			for n := range 9 {
				p.want(t, fmt.Sprintf(`echo {"n":%d}`, n))
			}
			p.want(t, "progress 1 4 first", "progress 2 4 second", "slow done", "cancelled true")
			d.wantCancelled(t)
			p.want(t, "ready")
			d.disconnect()
			if c.notices {
				p.want(t, "changed 0")
			} else {
				p.say(t)
			}
			p.want(t, "tools")
			p.wantEnd(t)
			f.wantAllPods(t, c.name)
		})
	}
	t.Run("inspector", func(t *testing.T) {
		t.Parallel()
		f.inspect(t)
	})
}

// inspect uses the Inspector's command line, which starts anew for each request and prints no progress.
func (f *fleet) inspect(t *testing.T) {
	d := f.connectUsed(t, "inspector")
	run := func(era string, args ...string) []string {
		return append([]string{bin(t, "mcp-inspector"), "--cli", "--format", "json", "--quiet", "--protocol-era", era,
			"--server-url", f.url + "/mcp", "--transport", "http",
			"--header", "Authorization: Bearer " + d.token, "X-Test: inspector", "--method"}, args...)
	}
	var listed struct {
		Result struct{ Tools []struct{ Name string } }
	}
	for _, era := range []string{"modern", "legacy"} {
		list := d.client(t, node(t), run(era, "tools/list")...)
		if err := json.Unmarshal([]byte(list.rest(t)), &listed); err != nil || len(listed.Result.Tools) != 3 {
			t.Fatalf("%s: it listed %v, %v", era, listed, err)
		}
		call := d.client(t, node(t), run(era, "tools/call", "--tool-name", "echo", "--tool-arg", "n=7")...)
		if text := call.rest(t); !strings.Contains(text, `{\"n\":7}`) {
			t.Fatalf("%s: it called echo and got %s", era, text)
		}
	}
	hold := d.client(t, node(t), run("modern", "tools/call", "--tool-name", "hold")...)
	d.wantStarted(t)
	hold.cmd.Process.Kill() // closing the stream cancels
	d.wantCancelled(t)
	hold.abandon()
	d.disconnect()
	list := d.client(t, node(t), run("modern", "tools/list")...)
	if err := json.Unmarshal([]byte(list.rest(t)), &listed); err != nil || len(listed.Result.Tools) != 0 {
		t.Fatalf("after the device has left it listed %v, %v", listed, err)
	}
	f.wantAllPods(t, "inspector")
}

// used is a device that clients use, the only one of its tenant.
type used struct {
	token              string
	disconnect         func()
	started, cancelled chan struct{} // by calls of hold
}

func (f *fleet) connectUsed(t *testing.T, name string) *used {
	t.Helper()
	d := &used{token: f.createKey(t, strings.ReplaceAll(name, "-", ""), "caller", "device"),
		started: make(chan struct{}, 10), cancelled: make(chan struct{}, 10)}
	tool := func(name string, h client.Handler) client.Option {
		return client.WithTool(client.Tool{Name: name, Description: "for clients"}, h)
	}
	_, leave := connect(t, f.pods[2].url, d.token, "used",
		tool("echo", func(_ context.Context, call client.Call) (any, error) { return string(call.Args), nil }),
		tool("slow", func(ctx context.Context, call client.Call) (any, error) {
			call.Progress(1, 4, "first")
			call.Progress(2, 4, "second")
			return "done", nil
		}),
		tool("hold", func(ctx context.Context, call client.Call) (any, error) {
			call.Progress(1, 0, "until cancelled")
			d.started <- struct{}{}
			<-ctx.Done()
			d.cancelled <- struct{}{}
			return nil, ctx.Err()
		}))
	d.disconnect = func() { // its pod notices a moment later
		leave()
		eventually(t, "the device has gone", func() bool {
			return !strings.Contains(string(request(t, "GET", f.pods[0].url+"/api/tools", d.token, "", 200)), `"used"`)
		})
	}
	return d
}

func (d *used) wantStarted(t *testing.T) {
	t.Helper()
	select {
	case <-d.started:
	case <-time.After(waitLimit):
		t.Fatal("the device was not called")
	}
}

// promptly is well before a call would time out by itself.
const promptly = 10 * time.Second

func (d *used) wantCancelled(t *testing.T) {
	t.Helper()
	select {
	case <-d.cancelled:
	case <-time.After(promptly):
		t.Fatal("the device does not hear that the call was cancelled")
	}
}

// wantAllPods checks that a client's requests came to all pods.
func (f *fleet) wantAllPods(t *testing.T, mark string) {
	t.Helper()
	counts := f.passedOn(t, mark)
	t.Log(mark, counts)
	for _, p := range f.pods {
		if counts[p.addr] == 0 {
			t.Errorf("%s never came to %s: %v", mark, p.addr, slices.Sorted(maps.Keys(counts)))
		}
	}
}

// scriptsIn copies the clients to where Node finds the packages of `make deps`, and returns the folder.
func scriptsIn(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(need(t, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// program is a client that prints lines and reads some.
type program struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	lines   chan string
	errors  *output
	abandon func() // ends it, however it stands
}

func (d *used) client(t *testing.T, name string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	p := &program{cmd: exec.CommandContext(ctx, name, args...), lines: make(chan string, 1000), errors: &output{}}
	p.cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // the Inspector keeps files there
	p.cmd.Stderr = p.errors
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = p.cmd.Wait()
	}()
	p.abandon = func() { cancel(); <-done }
	t.Cleanup(p.abandon)
	return p
}

// want checks the next lines.
func (p *program) want(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		select {
		case got, ok := <-p.lines:
			if got != want || !ok {
				t.Fatalf("it printed %q, want %q\n%s", got, want, p.errors)
			}
		case <-time.After(waitLimit):
			t.Fatalf("it does not print %q\n%s", want, p.errors)
		}
	}
}

// say tells the program to go on.
func (p *program) say(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.in, "go on\n"); err != nil {
		t.Fatal(err)
	}
}

// rest returns everything else that the program prints, which must end well.
func (p *program) rest(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for line := range p.lines {
		text.WriteString(line + "\n")
	}
	p.abandon()
	if !p.cmd.ProcessState.Success() {
		t.Fatalf("%v: %s\n%s", p.cmd.ProcessState, p.errors, text.String())
	}
	return text.String()
}

func (p *program) wantEnd(t *testing.T) {
	t.Helper()
	if text := p.rest(t); text != "" {
		t.Fatalf("it printed more: %s", text)
	}
}
