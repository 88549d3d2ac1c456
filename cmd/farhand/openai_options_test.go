package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

// TestOptionsOfOpenAIsPackage has OpenAI's package ask for structured answers, tool choices, images and the rest.
func TestOptionsOfOpenAIsPackage(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("this test needs Node.js 18 or later, then: %s (%v)", installOpenAI, err)
	}
	w := startWeather(t, true)
	lines := w.client(t, node, "testdata/openai/options.js", w.asked.url+"/v1", fleetToken, "thermometer")
	reading := fmt.Sprintf(`{"reading":%q}`, w.reading)
	for _, want := range []string{
		"parsed: " + reading, "streamed: " + reading,
		`none: "nothing" stop`, `required: forecast tool_calls`, `named: forecast tool_calls`,
		`image: "data:image/png;base64,iVBORw0KGgo= low"`,
		`options: "7 0.5 1 1 low false {\"a\":\"b\"} {\"5\":-1}"`,
		`refused: "I must not." null stop`, `refused, streamed: "I must not." stop`,
		`{"logprobs":true}: BadRequestError 400 logprobs`, `{"top_k":4}: BadRequestError 400 top_k`,
		`{"store":true}: BadRequestError 400 store`,
		`{"audio":{"voice":"alloy","format":"mp3"}}: BadRequestError 400 audio`,
	} {
		if got := nextLine(t, lines); got != want {
			t.Fatalf("the client printed\n\t%s, want\n\t%s", got, want)
		}
	}
	w.wantCalls(t, 2)
}

// obedientScript is a model that does what the options of a request say, and tells what they were.
func obedientScript(r scripted.Request) scripted.Step {
	var asked struct {
		ToolChoice json.RawMessage `json:"tool_choice"`
		Format     struct {
			Type   string
			Schema struct{ Strict bool } `json:"json_schema"`
		} `json:"response_format"`
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(r.Raw, &asked) != nil || json.Unmarshal(r.Raw, &all) != nil {
		return scripted.Fail(400, "not understood")
	}
	last := r.Messages[len(r.Messages)-1]
	temperature := scripted.Calls(scripted.Call{Name: "temperature", Args: `{"room":"kitchen"}`})
	switch {
	case last.Role == provider.RoleTool:
		said := strings.Split(last.Content, "\n")[1] // between the marks
		return scripted.Reply(scripted.Text(`{"reading":`, fmt.Sprintf("%q}", said)))
	case last.Content == "do harm":
		return scripted.Reply(scripted.Refusal("I must ", "not."))
	case asked.Format.Type == "json_schema" && asked.Format.Schema.Strict:
		return scripted.Reply(scripted.Text("Let me look. "), temperature)
	case len(r.Tools) == 0 && last.Content == "what can you call?":
		return scripted.Reply(scripted.Text("nothing"))
	case string(asked.ToolChoice) == `"required"`, strings.Contains(string(asked.ToolChoice), `"forecast"`):
		return scripted.Reply(scripted.Calls(scripted.Call{Name: "forecast", Args: `{}`}))
	case len(last.Parts) > 0:
		image := last.Parts[1].Image
		return scripted.Reply(scripted.Text(image.URL, " ", image.Detail))
	}
	var told []string
	for _, name := range []string{"seed", "top_p", "presence_penalty", "frequency_penalty", "reasoning_effort",
		"parallel_tool_calls", "metadata", "logit_bias"} {
		told = append(told, strings.Trim(string(all[name]), `"`))
	}
	return scripted.Reply(scripted.Text(strings.Join(told, " ")))
}
