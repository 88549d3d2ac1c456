//go:build linux

package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/registry"
)

// A program that this pod starts has its tools called, and knows nothing of the gateway's environment.
func TestProgramIsAServer(t *testing.T) {
	t.Setenv("GATEWAY_SECRET", "hidden")
	servers := open(t, withHost(t), stdio(t, "good", "GIVEN=yes"))
	tools := until(t, servers, has("prog__echo"))
	res, err := call(t, tools["prog__echo"], `{"text":"hello"}`)
	if err != nil || !res.Success || res.Output != "hello" {
		t.Errorf("echo: %+v, %v", res, err)
	}
	res, err = call(t, tools["prog__env"], `{}`)
	if err != nil || strings.Contains(res.Output, "hidden") || !strings.Contains(res.Output, "GIVEN=yes") ||
		!strings.Contains(res.Output, "PATH=") || !strings.Contains(res.Output, "HOME=") {
		t.Errorf("env: %+v, %v", res, err)
	}
	res, err = call(t, tools["prog__fail"], `{}`)
	if err != nil || res.Success || res.Error != "no such thing" {
		t.Errorf("fail: %+v, %v", res, err)
	}
}

// A server that ignores that it should end, and has forked, ends with all it started when the gateway stops.
func TestStubbornProgramEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	servers := open(t, withHost(t), stdio(t, "stubborn", "TEST_PIDS="+file))
	text, err := os.ReadFile(file) // waits for the server
	if err != nil {
		t.Fatal(err)
	}
	var server, child int
	if _, err := fmt.Sscan(string(text), &server, &child); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := servers.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{server, child} {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}

// A program that is missing, or ends, is told with the reason, and without the values of its environment.
func TestProgramThatEndsIsTold(t *testing.T) {
	for name, args := range map[string][]string{
		"no such program": {"/no/such/program"}, "exited with code 3": {"/bin/sh", "-c", "echo broken >&2; exit 3"},
	} {
		servers := open(t, withHost(t), upstream.Server{Name: "prog", Command: args})
		until(t, servers, func(map[string]agent.Tool) bool {
			status := servers.Status()[0]
			return !status.Connected && strings.Contains(status.Why, name)
		})
	}
}

// Without a cause a server's program that is killed is started again.
func TestProgramIsStartedAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	s := stdio(t, "good")
	s.Command = []string{"/bin/sh", "-c", `echo $$ > "$0"; ` + waitsFile + `="$0.waits" exec "$1"`, file, s.Command[0]}
	servers := open(t, withHost(t), s)
	tools := until(t, servers, has("prog__echo"))
	var pid int
	text, _ := os.ReadFile(file)
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := tools["prog__wait"].Execute(ctx, []byte(`{}`))
		failed <- err
	}()
	for _, err := os.Stat(file + ".waits"); err != nil; _, err = os.Stat(file + ".waits") { // until the program has it
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
	before := servers.Live()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, registry.CodeLost) && !errors.Is(err, registry.CodeNotConnected) {
		t.Errorf("a call that ran: %v", err)
	}
	<-before.Changed
	tools = until(t, servers, has("prog__echo"))
	if res, err := call(t, tools["prog__echo"], `{"text":"again"}`); err != nil || res.Output != "again" {
		t.Errorf("%+v, %v", res, err)
	}
}

// Messages of a program come one by one: a list of them would be as many as fit into a line, all at once.
func TestListsOfMessages(t *testing.T) {
	servers := open(t, withHost(t), stdio(t, "batches"))
	tools := until(t, servers, has("prog__do"))
	if res, err := call(t, tools["prog__do"], `{}`); !errors.Is(err, registry.CodeLost) {
		t.Errorf("%+v, %v", res, err)
	}
}

// A program that does not read keeps no call beyond its time, and loses its connection.
func TestProgramThatDoesNotRead(t *testing.T) {
	servers := open(t, withHost(t), stdio(t, "deaf"))
	tool := until(t, servers, has("prog__do"))["prog__do"]
	args := `{"x":"` + strings.Repeat("x", 300<<10) + `"}` // more than a pipe holds
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ended := make(chan error, 3)
	for range cap(ended) {
		go func() {
			_, err := tool.Execute(ctx, []byte(args))
			ended <- err
		}()
	}
	for range cap(ended) {
		if err := <-ended; err == nil {
			t.Error("a call succeeded")
		}
	}
	if s := servers.Status()[0]; !s.Connected {
		t.Errorf("the calls waited for the end of the connection: %s", s.Why)
	}
	until(t, servers, func(map[string]agent.Tool) bool {
		return strings.Contains(servers.Status()[0].Why, "does not read")
	})
}

// Calls that are given up while a program is busy with another one cost that neither its answer nor the connection, and
// those that the program could not begin to read did not run.
func TestGivenUpCallsOfABusyProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "busy")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	servers := open(t, withHost(t), stdio(t, "busy", waitsFile+"="+file))
	tool := until(t, servers, has("prog__do"))["prog__do"]
	first := begin(t, tool, `{}`)
	pipe, err := os.OpenFile(file, os.O_WRONLY, 0) // waits until the program has the call
	if err != nil {
		t.Fatal(err)
	}
	args := `{"x":"` + strings.Repeat("x", 300<<10) + `"}`
	undelivered := 0
	for range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := tool.Execute(ctx, []byte(args))
		if err == nil {
			t.Error("a call succeeded")
		}
		if registry.AsError(err).Dispatched == registry.DispatchedNo {
			undelivered++
		}
		cancel()
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-first; got.err != nil || got.res.Output != "fine" {
		t.Errorf("the first call: %+v", got)
	}
	if undelivered < 30 {
		t.Errorf("%d calls were not dispatched", undelivered)
	}
	if res, err := call(t, tool, `{}`); err != nil || res.Output != "fine" {
		t.Errorf("a call after them: %+v, %v", res, err)
	}
}

// Calls of a program that reads slowly, or not at all, leave no more behind than a connection may have on its way.
func TestGivenUpCallsAreBounded(t *testing.T) {
	servers := open(t, withHost(t), stdio(t, "deaf"))
	tool := until(t, servers, has("prog__do"))["prog__do"]
	args := `{"x":"` + strings.Repeat("x", 300<<10) + `"}`
	before, most := runtime.NumGoroutine(), 0
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := tool.Execute(ctx, []byte(args)); err == nil {
			t.Error("a call succeeded")
		}
		cancel()
		most = max(most, runtime.NumGoroutine()-before)
	}
	if most > 100 {
		t.Errorf("%d goroutines are left of 100 calls", most)
	}
}
