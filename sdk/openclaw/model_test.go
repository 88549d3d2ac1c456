package openclaw_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
)

// startModel starts a language model that calls the tool that a message names: "call NAME ARGUMENTS". Then it repeats
// the result.
func startModel(t testing.TB) *scripted.Server {
	t.Helper()
	return scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		last := r.Messages[len(r.Messages)-1]
		words, ok := strings.CutPrefix(last.Content, "call ")
		if !ok {
			return scripted.Reply(scripted.Text("It said: " + last.Content))
		}
		name, args, _ := strings.Cut(words, " ")
		return scripted.Reply(scripted.Calls(scripted.Call{ID: "call_1", Name: name, Args: args}))
	})
}

// message is what a user says so that the model calls a tool.
func message(t testing.TB, tool string, args object) string {
	t.Helper()
	text, err := json.Marshal(args)
	must(t, err)
	return "call " + tool + " " + string(text)
}
