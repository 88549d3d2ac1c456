package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
)

// TestHistoryBytes: when a tenant's conversations have grown as far as they may, no turn begins, on any pod, and
// whoever asks learns when to ask again.
func TestHistoryBytes(t *testing.T) {
	t.Parallel()
	model := scripted.OpenAIFunc(t, func(scripted.Request) scripted.Step {
		return scripted.Reply(scripted.Text("done"))
	})
	settings := append(agentSettings(providerOpenAI, model), envPrefix+"HISTORY_BYTES=1MiB")
	for name, pods := range map[string][]*pod{
		"redis": startFleet(t, 2, redistest.Single(t), settings...), "memory": {startPod(t, settings...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connectDevice(t, pods[0].url, "phone")
			said := `{"content":"` + strings.Repeat("x", 60<<10) + `"}`
			for i := range 20 {
				resp, body := pods[i%len(pods)].post(t, "/api/sessions/phone/messages", said)
				if resp.StatusCode == http.StatusOK {
					continue
				}
				if i < 5 || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" ||
					!strings.Contains(string(body), "FARHAND_HISTORY_BYTES") {
					t.Errorf("after %d turns: %d %s, Retry-After %q", i, resp.StatusCode, body,
						resp.Header.Get("Retry-After"))
				}
				_, kept := request(t, http.MethodGet, pods[0].url+"/api/sessions/phone/messages?limit=1", "")
				if want := fmt.Sprintf(`"message_count":%d,`, 2*i); !strings.Contains(string(kept), want) {
					t.Errorf("%d turns ran, and there is %.200s", i, kept)
				}
				return
			}
			t.Error("conversations grow without a bound")
		})
	}
}
