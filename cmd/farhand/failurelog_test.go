package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
)

// TestAFailingModelLeavesALine: by default, with what an operator needs, and without what was said or the key.
func TestAFailingModelLeavesALine(t *testing.T) {
	t.Parallel()
	model := scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		if _, said := lastOf(r); said == "refused" {
			return scripted.Fail(http.StatusBadRequest, "you said: my diary")
		}
		return scripted.Fail(http.StatusServiceUnavailable, "overloaded").With("Retry-After", "60")
	})
	p := startPod(t, agentSettings(providerOpenAI, model)...)
	connectDevice(t, p.url, "phone")
	for _, said := range []string{"failed", "refused"} {
		for path, body := range map[string]string{
			"/v1/chat/completions":         strings.Replace(completionHello, "hello", said, 1),
			"/api/sessions/phone/messages": `{"content":"` + said + `"}`,
		} {
			if resp, text := p.post(t, path, body); resp.StatusCode < 400 {
				t.Errorf("%s: %d %s", path, resp.StatusCode, text)
			}
		}
	}
	eventually(t, waitLimit, "each turn has left a line", func() bool {
		return strings.Count(p.out.String(), "a turn ended early") >= 4
	})
	text := p.out.String()
	for _, want := range []string{`"a turn ended early"`, `"model request failed"`, `"status":503`, `"status":400`,
		`"level":"WARN"`, `"code":"PROVIDER_ERROR"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	for _, secret := range []string{"my diary", "of-nobody"} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}
