package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

const installOpenAI = "npm ci --prefix cmd/farhand/testdata/openai"

// weather is a fleet for clients of OpenAI's API: a thermometer is connected to the second pod, and they ask the first.
type weather struct {
	asked   *pod
	model   *scripted.Server
	reading string // what only the thermometer knows

	obeys bool // the model does as the options of a request say, instead

	begun   chan struct{} // receives when a streamed answer has begun
	proceed chan struct{} // lets it go on
	mu      sync.Mutex
	calls   []string // arguments the thermometer was called with
}

// newWeather starts the fleet. Its model does as the last words of the user say.
func newWeather(t *testing.T) *weather {
	t.Helper()
	return startWeather(t, false)
}

func startWeather(t *testing.T, obeys bool) *weather {
	t.Helper()
	w := &weather{
		obeys:   obeys,
		reading: fmt.Sprintf("%d °C", rand.Uint64()), begun: make(chan struct{}, 1), proceed: make(chan struct{}),
	}
	w.model = scripted.OpenAIFunc(t, w.script)
	pods := startFleet(t, 2, redistest.Single(t), agentSettings(providerOpenAI, w.model)...)
	w.asked = pods[0]
	connectDevice(t, pods[1].url, "thermometer", client.WithTool(client.Tool{Name: "temperature",
		Description: "reads it", OutputSchema: json.RawMessage(`{"type":"string"}`)},
		func(_ context.Context, call client.Call) (any, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls = append(w.calls, string(call.Args))
			return w.reading, nil
		}))
	return w
}

func (w *weather) script(r scripted.Request) scripted.Step {
	if w.obeys {
		return obedientScript(r)
	}
	role, said := lastOf(r)
	temperature := scripted.Calls(scripted.Call{ID: "read", Name: "temperature", Args: `{"room":"kitchen"}`})
	switch {
	case role == "tool":
		// Beside its wrapper it is what a tool said, which only its caller knows.
		said = toolOutputMark.ReplaceAllString(said, "")
		return scripted.Reply(scripted.Text("It is ", said, "."), scripted.Usage(20, 7))
	case said == "live": // the first words must have arrived before there are more
		return scripted.Reply(scripted.Text("Let me see. "), scripted.Do(func() { w.begun <- struct{}{} }),
			scripted.Hold(w.proceed), temperature, scripted.Usage(10, 5))
	case said == "at once":
		return scripted.Reply(scripted.Text("Let me see. "), temperature, scripted.Usage(10, 5))
	case said == "your own":
		return scripted.Reply(scripted.Text("Hm. "),
			scripted.Calls(scripted.Call{ID: "own", Name: "forecast", Args: `{"day":"today"}`}))
	default:
		return scripted.Reply(scripted.Text("I was asked something else: " + said))
	}
}

// wantCalls checks that the thermometer was read this often.
func (w *weather) wantCalls(t *testing.T, n int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) != n {
		t.Errorf("the device was called %d times, want %d", len(w.calls), n)
	}
	for _, args := range w.calls {
		if args != `{"room":"kitchen"}` {
			t.Errorf("the device was called with %s", args)
		}
	}
}

// client starts a program that talks to the fleet, and returns the lines it prints.
func (w *weather) client(t *testing.T, name string, args ...string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, done := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			lines <- in.Text()
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, stderr.Bytes())
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			cancel() // whatever it waits for will not come
		}
		<-done
		cancel()
	})
	return lines
}

// promptly is shorter than it takes until a stream that stands still is given a sign of life, which would bring along
// what was held back.
const promptly = 10 * time.Second

// nextLine returns the next line of a program. It fails when there is none.
func nextLine(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line, ok := <-lines:
		if !ok {
			t.Fatal("the program ended early")
		}
		return line
	case <-time.After(promptly):
		t.Fatal("the program says nothing")
	}
	return ""
}

// TestOpenAIPackage has OpenAI's own package for Node use the gateway as it would use OpenAI.
func TestOpenAIPackage(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("this test needs Node.js 18 or later, then: %s (%v)", installOpenAI, err)
	}
	if _, err := os.Stat("testdata/openai/node_modules/openai"); err != nil {
		t.Fatalf("OpenAI's package is missing; install it with: %s", installOpenAI)
	}
	w := newWeather(t)
	lines := w.client(t, node, "testdata/openai/client.js", w.asked.url+"/v1", fleetToken, "thermometer")
	const usage = `{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42}`
	answer := "Let me see. It is " + w.reading + "."
	for _, want := range []string{
		`models: ["` + modelName + `"]`,
		`model farhand: "` + modelName + `"`,
		`piece: "Let me see. "`, // and nothing more, until it has been printed
		"", `piece: "It is "`, `piece: "` + w.reading + `"`, `piece: "."`,
		`streamed: "` + answer + `" stop usage ` + usage,
		`whole: "` + answer + `" stop usage ` + usage,
		`own tools: "Hm. " tool_calls ["own forecast {\"day\":\"today\"}"]`,
		`own tools, streamed: "Hm. " tool_calls ["own forecast {\"day\":\"today\"}"]`,
		`with its result: "It is sunny." stop`,
		`listed: ["temperature"] {"temperature":{"type":"string"}}`,
		`handed on: tool_calls ["read temperature {\"room\":\"kitchen\"}"]`,
		`wrong key: AuthenticationError 401 invalid_api_key`,
		`wrong model: NotFoundError 404 model_not_found`,
		`many choices: BadRequestError 400 n`,
	} {
		if want == "" {
			w.goOn(t)
			continue
		}
		if got := nextLine(t, lines); got != want {
			t.Fatalf("the client printed\n\t%s, want\n\t%s", got, want)
		}
	}
	if line, more := <-lines; more {
		t.Errorf("the client printed more: %s", line)
	}
	w.wantCalls(t, 2)
}

// goOn lets a streamed answer that has begun go on.
func (w *weather) goOn(t *testing.T) {
	t.Helper()
	deadline := time.After(waitLimit)
	select {
	case <-w.begun:
	case <-deadline:
		t.Fatal("the model was not asked")
	}
	select {
	case w.proceed <- struct{}{}:
	case <-deadline:
		t.Fatal("the model has gone away")
	}
}

// TestCurl has curl print an answer as it comes.
func TestCurl(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err)
	}
	w := newWeather(t)
	lines := w.client(t, curl, "-N", "-sS", "--fail-with-body", w.asked.url+"/v1/chat/completions", "-H",
		"Authorization: Bearer "+fleetToken,
		"-H", "Content-Type: application/json", "-H", "X-Farhand-Session: thermometer",
		"-d", `{"model":"farhand","stream":true,"messages":[{"role":"user","content":"live"}]}`)
	var said strings.Builder
	for finish := ""; finish == ""; {
		var chunk struct {
			Object  string
			Choices []struct {
				Delta        struct{ Content string }
				FinishReason string `json:"finish_reason"`
			}
		}
		data, ok := strings.CutPrefix(nextLine(t, lines), "data: ")
		if !ok {
			continue // what separates events
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || len(chunk.Choices) != 1 ||
			chunk.Object != "chat.completion.chunk" {
			t.Fatalf("%v: %s", err, data)
		}
		said.WriteString(chunk.Choices[0].Delta.Content)
		finish = chunk.Choices[0].FinishReason
		if said.String() == "Let me see. " && finish == "" {
			w.goOn(t)
		}
	}
	if want := "Let me see. It is " + w.reading + "."; said.String() != want {
		t.Errorf("curl printed %q, want %q", said.String(), want)
	}
	rest := ""
	for line := range lines {
		rest += line
	}
	if rest != "data: [DONE]" {
		t.Errorf("the stream ends with %q", rest)
	}
	w.wantCalls(t, 1)
}
