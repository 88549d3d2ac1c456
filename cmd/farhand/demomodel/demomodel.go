// Package demomodel stands in for a language model in `farhand demo --chat`. It is a script that knows a few words,
// calls the demo device's tools when it reads them, and says in every answer that it is a script.
package demomodel

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

// Model is the script. It has no state.
type Model struct{}

// Name returns the name of the model in conversations and lists.
func (Model) Name() string { return "script" }

// Generate answers the last message, or says what the tools returned that this turn called.
func (Model) Generate(
	ctx context.Context, r provider.Request, emit func(provider.Delta),
) (provider.Answer, error) {
	said := answer(r)
	for piece := range strings.SplitAfterSeq(said.Content, " ") {
		if ctx.Err() != nil {
			return provider.Answer{}, ctx.Err()
		}
		emit(provider.Delta{Text: piece})
	}
	stop := provider.StopEnd
	if len(said.ToolCalls) > 0 {
		stop = provider.StopToolCalls
	}
	return provider.Answer{Message: said, Stop: stop}, nil
}

func answer(r provider.Request) provider.Message {
	m := provider.Message{Role: provider.RoleAssistant}
	var results []string
	last := len(r.Messages) - 1
	for ; last >= 0 && r.Messages[last].Role == provider.RoleTool; last-- {
		results = append(results, report(r.Messages[last]))
	}
	if len(results) > 0 {
		slices.Reverse(results)
		m.Content = "(Scripted answer.) " + strings.Join(results, "\n")
		return m
	}
	asked := ""
	if last >= 0 {
		asked = r.Messages[last].Content
	}
	for _, rule := range rules {
		words := rule.words.FindStringSubmatch(asked)
		if words != nil && offered(r.Tools, rule.tool) {
			m.Content = "(Scripted: no language model runs here.) I call " + rule.tool + "."
			id := fmt.Sprintf("script-%d", len(r.Messages))
			m.ToolCalls = []provider.ToolCall{{ID: id, Name: rule.tool, Args: rule.args(words)}}
			return m
		}
	}
	m.Content = help
	return m
}

const help = "I am a script, not a language model. I know a few questions: \"what is this machine called?\", \"how " +
	"busy is it?\", \"how much memory has it?\", \"echo hello\", \"wait 3 seconds\". For a real model, " +
	"set FARHAND_MODEL."

// rule says which tool to call when a message has certain words.
type rule struct {
	words *regexp.Regexp
	tool  string
	args  func(words []string) string
}

var rules = []rule{
	{regexp.MustCompile(`(?is)^\s*(?:echo|say|repeat)\b[\s:]*(.+)$`), "echo", func(words []string) string {
		return object("text", strings.Trim(strings.TrimSpace(words[1]), `"'`))
	}},
	{regexp.MustCompile(`(?i)\b(?:wait|sleep)\D{0,20}(\d{1,2})\b`), "sleep", func(words []string) string {
		return `{"seconds":` + cmp.Or(strings.TrimLeft(words[1], "0"), "0") + `}`
	}},
	{regexp.MustCompile(`(?i)\b(memory|temperature|battery|load|busy|warm|hot)\b`), "sensors", sensor},
	{regexp.MustCompile(`(?i)\b(name|named|called|host|hostname|machine|computer|device|system|version)\b`),
		"device_info", func([]string) string { return "{}" }},
}

func sensor(words []string) string {
	name := strings.ToLower(words[1])
	switch name {
	case "busy":
		name = "load"
	case "warm", "hot":
		name = "temperature"
	}
	return object("type", name)
}

func object(name, value string) string {
	text, _ := json.Marshal(map[string]string{name: value}) // cannot fail
	return string(text)
}

func offered(tools []provider.Tool, name string) bool {
	return slices.ContainsFunc(tools, func(t provider.Tool) bool { return t.Name == name })
}

// report says what a tool returned. The gateway puts a line before and after the tool's own text.
func report(result provider.Message) string {
	text := result.Content
	if _, rest, ok := strings.Cut(text, "\n"); ok && strings.HasPrefix(text, "<") {
		text = rest[:max(0, strings.LastIndex(rest, "\n"))]
	}
	var info struct {
		Hostname string `json:"hostname"`
		OS       string `json:"os"`
	}
	switch {
	case result.Failed:
		return result.ToolName + " failed: " + text
	case json.Unmarshal([]byte(text), &info) == nil && info.Hostname != "":
		return fmt.Sprintf("This machine is called %s and runs %s.", info.Hostname, info.OS)
	default:
		return result.ToolName + " returned: " + text
	}
}
