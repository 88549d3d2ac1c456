package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// TestToolsOfDeviceAndCallerOnTwoPods has OpenAI's package run tools of its own beside those of a device, each request
// to another pod: a device's tool never runs twice in an answer, and the model reads everything.
func TestToolsOfDeviceAndCallerOnTwoPods(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("this test needs Node.js 18 or later, then: %s (%v)", installOpenAI, err)
	}
	var read atomic.Int32
	reading := fmt.Sprintf("%d °C", rand.Uint64())
	w := &weather{model: scripted.OpenAIFunc(t, mixedScript)}
	pods := startFleet(t, 2, redistest.Single(t), agentSettings(providerOpenAI, w.model)...)
	connectDevice(t, pods[1].url, "thermometer", client.WithTool(client.Tool{Name: "temperature",
		Description: "reads it"},
		func(context.Context, client.Call) (any, error) {
			read.Add(1)
			return reading, nil
		}))
	lines := w.client(t, node, "testdata/openai/mixed.js", pods[0].url+"/v1", pods[1].url+"/v1", fleetToken,
		"thermometer")
	for i, what := range []string{"one after the other", "side by side", "streamed"} {
		want := fmt.Sprintf("%s: %q in %d requests", what, "It is "+reading+", and it will be rain today.", 2*i+2)
		if got := nextLine(t, lines); got != want {
			t.Fatalf("the client printed\n\t%s, want\n\t%s", got, want)
		}
		if n := read.Load(); int(n) != i+1 {
			t.Fatalf("%s: the device was called %d times in all, want %d", what, n, i+1)
		}
	}
}

// mixedScript is a model that wants to know what a device and the caller can tell, and asks for what it has not read.
func mixedScript(r scripted.Request) scripted.Step {
	said := map[string]string{} // by tool
	for _, m := range r.Messages {
		if m.Role == "tool" {
			said[m.ToolName] = m.Content
			if lines := strings.Split(m.Content, "\n"); len(lines) == 3 { // between the marks of what a device said
				said[m.ToolName] = lines[1]
			}
		}
	}
	temperature := scripted.Call{Name: "temperature", Args: `{}`}
	forecast := scripted.Call{Name: "forecast", Args: `{"day":"today"}`}
	switch {
	case said["temperature"] == "" && said["forecast"] == "" && r.Messages[0].Content == "side by side":
		return scripted.Reply(scripted.Text("Both. "), scripted.Calls(temperature, forecast))
	case said["temperature"] == "":
		return scripted.Reply(scripted.Calls(temperature))
	case said["forecast"] == "":
		return scripted.Reply(scripted.Calls(forecast))
	default:
		return scripted.Reply(scripted.Text("It is ", said["temperature"], ", and it will be ", said["forecast"], "."))
	}
}
