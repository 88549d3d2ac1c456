package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/internal/testkit"
)

// chatter is `farhand chat` as a process of its own.
type chatter struct {
	t        *testing.T
	cmd      *exec.Cmd
	in       io.WriteCloser
	out, err *lockedBuffer
}

// startChat starts `farhand chat` against a gateway. What it reads is written to in; who closes that ends its input.
func startChat(t *testing.T, url string, args ...string) *chatter {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	c := &chatter{t: t, cmd: exec.CommandContext(ctx, farhandBinary, append([]string{"chat"}, args...)...),
		out: &lockedBuffer{}, err: &lockedBuffer{}}
	// The race detector waits for a second before a process ends.
	c.cmd.Env = append(c.cmd.Environ(), envPrefix+"URL="+url, envPrefix+"TOKEN="+fleetToken, "GORACE=atexit_sleep_ms=0")
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.err
	in, err := c.cmd.StdinPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.in = in
	t.Cleanup(func() {
		cancel()
		_ = c.cmd.Wait() // an error when it has been waited for
		if text := c.err.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") {
			t.Errorf("farhand chat: %s", text)
		}
	})
	return c
}

// end closes the input and checks how the process ends. What it said is compared whole; of stderr each piece must be
// there, in this order.
func (c *chatter) end(code int, out string, pieces ...string) {
	c.t.Helper()
	_ = c.in.Close()
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if got := c.cmd.ProcessState.ExitCode(); got != code {
		c.t.Errorf("exit code %d, want %d", got, code)
	}
	if got := c.out.String(); got != out {
		c.t.Errorf("stdout %q, want %q", got, out)
	}
	rest := c.err.String()
	for _, piece := range pieces {
		_, after, ok := strings.Cut(rest, piece)
		if !ok {
			c.t.Errorf("no %q in what is left of stderr: %q", piece, rest)
		}
		rest = after
	}
	if len(pieces) == 0 && rest != "" {
		c.t.Errorf("stderr %q", rest)
	}
}

// types writes to its input.
func (c *chatter) types(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, text); err != nil {
		c.t.Fatal(err)
	}
}

// cliScript is the model the process talks to: it does what the user says.
func cliScript(r scripted.Request) scripted.Step {
	role, said := lastOf(r)
	switch {
	case role == string(provider.RoleTool):
		return scripted.Reply(scripted.Text("Heard: ", strings.Split(said, "\n")[1], "."))
	case said == "echo":
		return scripted.Reply(scripted.Text("Listen.\n"),
			scripted.Calls(scripted.Call{Name: "echo", Args: `{"text":"ring \u001b[31mring"}`}))
	case said == "echo badly":
		return scripted.Reply(scripted.Calls(scripted.Call{Name: "echo", Args: `{"text":1}`}))
	case said == "fail":
		return scripted.Fail(400, "the model does not like it")
	case said == "wait":
		return scripted.Reply(scripted.Text("Well"), scripted.Hold(nil), scripted.Text(", never."))
	case said == "escape":
		return scripted.Reply(scripted.Text("a\x1b[2Jb"))
	default:
		return scripted.Reply(scripted.Thinking("Hm."), scripted.Text("You said ", said, "."))
	}
}

// TestChatProcess talks to an agent with the tools of `farhand device`, all of them processes.
func TestChatProcess(t *testing.T) {
	t.Parallel()
	p := startPod(t, agentSettings(providerOpenAI, scripted.OpenAIFunc(t, cliScript))...)
	t.Run("without a device", func(t *testing.T) {
		startChat(t, p.url, "hello").end(2, "", "farhand: no device is connected")
	})
	device := func(session string) {
		start(t, []string{envPrefix + "URL=" + p.url, envPrefix + "TOKEN=" + fleetToken}, farhandBinary, "device",
			"--session", session)
		eventually(t, waitLimit, "the device has registered", func() bool { return toolsOf(t, p.url)[session] > 0 })
	}
	device("laptop")

	t.Run("one message", func(t *testing.T) {
		startChat(t, p.url, "good", "day").end(0, "You said good day.\n", "title: good day\n")
	})
	t.Run("thinking", func(t *testing.T) {
		startChat(t, p.url, "--thinking", "hello").end(0, "You said hello.\n", "Hm.\n")
	})
	t.Run("a call", func(t *testing.T) {
		startChat(t, p.url, "--session", "laptop", "echo").end(0, "Listen.\nHeard: ring ring.\n",
			`→ echo {"text":"ring \u001b[31mring"}`+"\n", "← echo: ring ring\n")
	})
	t.Run("a call that fails", func(t *testing.T) {
		startChat(t, p.url, "echo badly").end(0,
			"Heard: invalid_arguments: The arguments do not satisfy the parameters schema of \"echo\"..\n",
			`→ echo {"text":1}`+"\n", "✗ echo: invalid_arguments: ")
	})
	t.Run("a model that fails", func(t *testing.T) {
		startChat(t, p.url, "fail").end(2, "", "PROVIDER_ERROR: ", "the model does not like it")
	})
	t.Run("escapes of a model", func(t *testing.T) {
		startChat(t, p.url, "escape").end(0, "a\uFFFD[2Jb\n")
	})
	t.Run("a wrong token", func(t *testing.T) {
		startChat(t, p.url, "--token", "wrong", "hello").end(2, "", "farhand: unauthenticated: ")
	})
	chatLines(t, p)
	t.Run("several devices", func(t *testing.T) {
		device("phone")
		startChat(t, p.url, "hello").end(2, "", "several devices are connected, choose one:", "--session ",
			"--session ")
	})
	t.Run("no gateway", func(t *testing.T) {
		startChat(t, "http://"+testkit.FreeAddr(t), "--session", "laptop", "hello").end(2, "",
			"farhand: no answer from the gateway at ")
	})
}

// chatLines talks line by line, and interrupts.
func chatLines(t *testing.T, p *pod) {
	t.Run("lines", func(t *testing.T) {
		c := startChat(t, p.url)
		c.types("one\n\n  \nfail\necho\nand the last")
		c.end(0, "You said one.\nListen.\nHeard: ring ring.\nYou said and the last.\n",
			"PROVIDER_ERROR: ", "→ echo ", "← echo: ring ring\n")
	})
	t.Run("interrupting one message", func(t *testing.T) {
		c := startChat(t, p.url, "wait")
		eventually(t, waitLimit, "the answer begins", func() bool { return c.out.String() == "Well" })
		_ = c.cmd.Process.Signal(syscall.SIGINT)
		c.end(2, "Well\n", "farhand: the answer was aborted\n")
	})
	t.Run("interrupting an answer", func(t *testing.T) {
		c := startChat(t, p.url)
		c.types("wait\n")
		eventually(t, waitLimit, "the answer begins", func() bool { return c.out.String() == "Well" })
		_ = c.cmd.Process.Signal(syscall.SIGINT)
		eventually(t, waitLimit, "the answer is aborted",
			func() bool { return strings.Contains(c.err.String(), "aborted") })
		c.types("again\n")
		c.end(0, "Well\nYou said again.\n", "farhand: the answer was aborted\n")
	})
	t.Run("interrupting the wait for a line", func(t *testing.T) {
		c := startChat(t, p.url)
		c.types("hello\n")
		eventually(t, waitLimit, "it has answered", func() bool { return strings.HasSuffix(c.out.String(), ".\n") })
		left := make(chan error, 1)
		go func() { left <- c.cmd.Wait() }()
		for { // the first interrupt aborts the answer if its end has not been read yet
			_ = c.cmd.Process.Signal(syscall.SIGINT)
			select {
			case err := <-left:
				if err != nil {
					t.Errorf("it left with %v", err)
				}
				return
			case <-time.After(time.Second):
			}
		}
	})
}
