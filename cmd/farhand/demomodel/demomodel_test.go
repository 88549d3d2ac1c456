package demomodel

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
)

var tools = []provider.Tool{{Name: "device_info"}, {Name: "sensors"}, {Name: "echo"}, {Name: "sleep"}}

func ask(t *testing.T, tools []provider.Tool, messages ...provider.Message) provider.Message {
	t.Helper()
	streamed := ""
	a, err := Model{}.Generate(t.Context(), provider.Request{Messages: messages, Tools: tools},
		func(d provider.Delta) { streamed += d.Text })
	if err != nil || streamed != a.Message.Content ||
		(a.Stop == provider.StopToolCalls) != (a.Message.ToolCalls != nil) {
		t.Errorf("%+v, streamed %q, %v", a, streamed, err)
	}
	if !strings.Contains(strings.ToLower(a.Message.Content), "script") {
		t.Errorf("does not say that it is a script: %q", a.Message.Content)
	}
	return a.Message
}

func TestTheScriptCallsTools(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"What is this machine called?":   `device_info {}`,
		"which machine is this":          `device_info {}`,
		"how busy is this machine?":      `sensors {"type":"load"}`,
		"How much MEMORY has it?":        `sensors {"type":"memory"}`,
		`echo "hello, name"`:             `echo {"text":"hello, name"}`,
		"wait 3 seconds":                 `sleep {"seconds":3}`,
		"sleep for 07 s":                 `sleep {"seconds":7}`,
		"wait 00":                        `sleep {"seconds":0}`,
		"hello":                          "",
		"":                               "",
		strings.Repeat("nothing ", 1000): "",
	} {
		m := ask(t, tools, provider.Message{Role: provider.RoleUser, Content: said})
		got := ""
		for _, c := range m.ToolCalls {
			got = c.Name + " " + c.Args
			if !json.Valid([]byte(c.Args)) {
				t.Errorf("%q: %s", said, c.Args)
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
		if none := ask(t, nil, provider.Message{Role: provider.RoleUser, Content: said}); none.ToolCalls != nil {
			t.Errorf("%q: calls what nothing offers", said)
		}
	}
	if m := ask(t, tools); m.ToolCalls != nil {
		t.Errorf("%+v", m)
	}
}

func TestTheScriptReportsResults(t *testing.T) {
	t.Parallel()
	const begin, end = "<tool_output nonce=\"q\" tool=\"echo\">\n", "\n</tool_output nonce=\"q\">"
	for text, said := range map[string]string{
		begin + `{"hostname":"vm","os":"linux"}` + end: "This machine is called vm and runs linux.",
		begin + end: "echo returned: ",
		"plain":     "echo returned: plain",
		"<\n":       "echo returned: ",
		"<":         "echo returned: <",
		"":          "echo returned: ",
	} {
		want := "(Scripted answer.) " + said
		m := ask(t, tools, provider.Message{Role: provider.RoleTool, ToolName: "echo", Content: text})
		if m.Content != want {
			t.Errorf("%q: %q, want %q", text, m.Content, want)
		}
	}
	failed := ask(t, tools, provider.Message{Role: provider.RoleTool, ToolName: "echo", Content: "no", Failed: true})
	if !strings.Contains(failed.Content, "echo failed: no") {
		t.Errorf("%q", failed.Content)
	}
}

func TestTheScriptEndsWithItsTurn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Model{}).Generate(ctx, provider.Request{}, func(provider.Delta) {}); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
}
