package python_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

// agentProgram is an example or a test program that is an agent.
type agentProgram struct {
	name, path string
	anthropic  bool
	pictures   bool // its model sees images
}

var agentPrograms = []agentProgram{
	{name: "openai", path: "agent-openai-python", pictures: true},
	{name: "anthropic", anthropic: true, pictures: true},
	{name: "langchain", path: "agent-langchain-python"},
	{name: "openai-agents", path: "agent-openai-agents"},
	{name: "pydantic-ai", path: "agent-pydantic-ai", pictures: true},
	{name: "mcp", path: "agent-mcp-python"},
}

// TestAgents runs an agent with each library, with a device that stays and with one that moves to another pod while it
// takes the picture: the model sees the same, and the agent prints the same. The tool runs once.
func TestAgents(t *testing.T) {
	t.Parallel()
	pods := startPods(t, 2)
	for _, agent := range agentPrograms {
		t.Run(agent.name, func(t *testing.T) {
			staySeen, stayPrinted := runAgent(t, pods, agent, false)
			moveSeen, movePrinted := runAgent(t, pods, agent, true)
			if !slices.Equal(staySeen, moveSeen) || !slices.Equal(stayPrinted, movePrinted) {
				t.Errorf("with a device that stays:\n%q\n%q\nwith one that moves:\n%q\n%q", staySeen, stayPrinted,
					moveSeen, movePrinted)
			}
			all := strings.Join(staySeen, "\n")
			if !strings.Contains(all, "A picture.") || strings.Contains(all, " image data:") != agent.pictures {
				t.Errorf("the model saw %q", all)
			}
			if n := len(stayPrinted); n == 0 || stayPrinted[n-1] != "I see a cat." {
				t.Errorf("the agent printed %q", stayPrinted)
			}
		})
	}
}

// runAgent returns what the model saw, and what the agent printed.
func runAgent(t *testing.T, pods []*pod, agent agentProgram, moves bool) (seen, printed []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	through := startBalancer(t, pods[0])
	name := fmt.Sprintf("phone-%s-%v", agent.name, moves)
	began, release := make(chan struct{}, 16), make(chan struct{})
	connected := startDevice(t, through.url, name, tool("snap", "Take a picture.", `{"type":"object"}`,
		func(context.Context, client.Call) (any, error) {
			began <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
			part := client.Part{Type: client.PartImage, MIMEType: "image/png", Data: []byte("\x89PNG")}
			return client.Result{Output: "A picture.", Parts: []client.Part{part}}, nil
		}))
	testkit.Receive(t, "the device is connected", connected)
	script := func(r scripted.Request) scripted.Step {
		if slices.ContainsFunc(r.Messages, func(m provider.Message) bool { return m.Role == provider.RoleTool }) {
			return scripted.Reply(scripted.Text("I see ", "a cat."))
		}
		return scripted.Reply(scripted.Calls(scripted.Call{ID: "call_1", Name: "snap", Args: "{}"}))
	}
	env := append(clientEnv("http://"+pods[0].addr), "MODEL=scripted", "OPENAI_API_KEY=none",
		"OPENAI_AGENTS_DISABLE_TRACING=1", "LANGSMITH_TRACING=false")
	path := repository + "/examples/" + agent.path + "/agent.py"
	var model *scripted.Server
	if agent.anthropic {
		model, path = scripted.AnthropicFunc(t, script), "testdata/agent_anthropic.py"
		env = append(env, "ANTHROPIC_BASE_URL="+model.URL)
	} else {
		model = scripted.OpenAIFunc(t, script)
		env = append(env, "OPENAI_BASE_URL="+startWhole(t, model))
	}
	p := python(t, env, path, name, "What does the camera see?")
	testkit.Receive(t, "the call begins", began)
	if moves {
		through.move(pods[1])
		testkit.Receive(t, "the device is connected to the other pod", connected)
	}
	close(release)
	printed = p.end(t)
	if len(began) > 0 {
		t.Error("the tool ran again")
	}
	return sights(model), printed
}

// sights returns the messages of each request to a model, in short.
func sights(model *scripted.Server) (seen []string) {
	for _, r := range model.Requests() {
		seen = append(seen, fmt.Sprintf("request with the tools %v: %s", r.Tools, r.Refused))
		for _, m := range r.Messages {
			line := fmt.Sprintf("%s: %s", m.Role, m.Content)
			for _, call := range m.ToolCalls {
				line += fmt.Sprintf(" calls %s %s", call.Name, call.Args)
			}
			for _, part := range m.Parts {
				if part.Image != nil {
					line += " image " + part.Image.URL
				}
			}
			seen = append(seen, line)
		}
	}
	return seen
}
