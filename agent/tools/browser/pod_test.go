//go:build linux

package browser_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/registry"
)

// bePod is a process that has a browser, and waits to be killed.
func bePod(dir string) {
	browsers, err := browser.New(config(dir, &internet{}))
	if err == nil {
		tools := browsers.Registration().Make(agent.SessionContext{Key: registry.Key{Tenant: "default", Session: "x"}})
		var res registry.Result
		if res, err = tools[0].Execute(context.Background(), json.RawMessage(`{"action":"start"}`)); err == nil {
			fmt.Println(strings.ReplaceAll(res.Output, "\n", " "))
		}
	}
	if err != nil {
		fmt.Println(err)
	}
	select {}
}

// processes are some that are waited for.
type processes []int // descriptors

// processesOf returns those of some processes that still run.
func processesOf(t *testing.T, pids ...int) (all processes) {
	t.Helper()
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			all = append(all, fd)
			t.Cleanup(func() { unix.Close(fd) })
		}
	}
	return all
}

// wait waits until all have ended.
func (p processes) wait(t *testing.T) {
	t.Helper()
	for i, fd := range p {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		for err == unix.EINTR {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		}
		if n != 1 || err != nil {
			t.Fatalf("process %d of %d has not ended: %v", i, len(p), err)
		}
	}
}

// folders are those of processes that have browsers.
func folders(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "browsers", "*"))
	return found
}

// A pod that is killed takes its browsers with it, and its folder is removed by the next one.
func TestPodIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pod := exec.Command(os.Args[0])
	pod.Env = append(os.Environ(), "BROWSER_TEST_POD="+dir)
	out, err := pod.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "The browser is running.") {
		t.Errorf("%q, %v", line, err)
	}
	running := processesOf(t, browser.UsersOf(dir)...)
	if len(running) < 3 || len(folders(dir)) != 1 {
		t.Errorf("%d processes, folders %v", len(running), folders(dir))
	}
	if err := pod.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = pod.Wait()
	running.wait(t)
	if left := browser.UsersOf(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	next, err := browser.New(config(dir, newInternet(t)))
	if err != nil {
		t.Fatal(err)
	}
	if found := folders(dir); len(found) != 1 {
		t.Errorf("folders: %v", found)
	}
	if err := next.Close(t.Context()); err != nil || len(folders(dir)) != 0 {
		t.Errorf("folders: %v, %v", folders(dir), err)
	}
}

// What runs in the folder of a process that is gone is killed; the folder of one that lives is left alone.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config(dir, newInternet(t))
	living, err := browser.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close(context.Background())
	gone := filepath.Join(dir, "browsers", "pod-gone")
	if err := os.MkdirAll(filepath.Join(gone, "profile-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(gone, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	orphan := exec.Command("sh", "-c", "read line", "chromium", "--user-data-dir="+filepath.Join(gone, "profile-1"))
	in, err := orphan.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	next, err := browser.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close(context.Background())
	if err := orphan.Wait(); err == nil || orphan.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the orphan: %v", err)
	}
	if found := folders(dir); len(found) != 2 {
		t.Errorf("folders: %v", found)
	}
}

// Whoever has the number of a process that was found in a folder, and has ended since, is not killed.
func TestNumberOfAnotherProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := exec.Command("sh", "-c", "read line", "chromium", "--user-data-dir="+dir+"-of-another")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if browser.KillUser(other.Process.Pid, dir) {
		t.Error("it says that it was killed")
	}
	in.Close()
	if _ = other.Wait(); !other.ProcessState.Exited() {
		t.Errorf("it ended with %v", other.ProcessState)
	}
}

// A machine without a usable Chromium has no tool that works, and the tool says why.
func TestAbsent(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*browser.Config){
		func(c *browser.Config) { c.Program = "/nonexistent/chromium" },
		func(c *browser.Config) { c.NoSandbox = false },
	} {
		cfg := config(t.TempDir(), newInternet(t))
		change(&cfg)
		if !cfg.NoSandbox && os.Geteuid() != 0 {
			continue // only root needs to be told
		}
		b, err := browser.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		tools := b.Registration().Make(agent.SessionContext{})
		if u, ok := tools[0].(agent.UnavailableTool); !ok || u.Unavailable() == "" {
			t.Errorf("%T works", tools[0])
		}
		if err := browser.Probe(t.Context(), cfg); err == nil {
			t.Error("there is a browser")
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	cfg := config(t.TempDir(), newInternet(t))
	if err := browser.Probe(t.Context(), cfg); err != nil || len(folders(cfg.Dir)) != 0 {
		t.Errorf("%v, folders %v", err, folders(cfg.Dir))
	}
	cfg.Program = "/bin/false"
	if err := browser.Probe(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "did not start") {
		t.Errorf("a program that is no Chromium: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	cfg.Program = ""
	if err := browser.Probe(ctx, cfg); err == nil || len(folders(cfg.Dir)) != 0 {
		t.Errorf("%v, folders %v", err, folders(cfg.Dir))
	}
}
