package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/provider/scripted"
)

// The vendors whose model servers are played.
const (
	providerOpenAI    = farhand.ProviderOpenAI
	providerAnthropic = farhand.ProviderAnthropic
)

// modelName is the model of the pods with an agent.
const modelName = "scripted-model"

// agentSettings make a pod talk to a scripted model.
func agentSettings(vendor string, model *scripted.Server) []string {
	return []string{
		envPrefix + "MODEL=" + modelName, envPrefix + "MODEL_PROVIDER=" + vendor, envPrefix + "MODEL_URL=" + model.URL,
		envPrefix + "MODEL_KEY=of-nobody",
	}
}

// lastOf returns who spoke last in a request to a model, and what was said.
func lastOf(r scripted.Request) (role, content string) {
	if len(r.Messages) == 0 {
		return "", ""
	}
	m := r.Messages[len(r.Messages)-1]
	return string(m.Role), m.Content
}

// turnOverHTTP says something to a session's agent and returns the events of the turn, and the bytes they came in.
func turnOverHTTP(t testing.TB, url, session, content string) ([]chatEvent, []byte) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"content": content, "stream": true})
	if err != nil {
		t.Fatal(err)
	}
	status, raw := request(t, http.MethodPost, url+"/api/sessions/"+session+"/messages", string(body))
	if status != http.StatusOK {
		t.Fatalf("%q: %d %s", content, status, raw)
	}
	var events []chatEvent
	for data := range dataLines(raw) {
		var e chatEvent
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v: %.200s", err, data)
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		t.Fatalf("%q: no events: %.200s", content, raw)
	}
	return events, raw
}

// dataLines are the data of server-sent events.
func dataLines(raw []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		in := bufio.NewReader(bytes.NewReader(raw))
		for {
			line, err := in.ReadString('\n')
			if data, ok := strings.CutPrefix(line, "data: "); ok && !yield(strings.TrimSuffix(data, "\n")) {
				return
			}
			if err == io.EOF {
				return
			}
		}
	}
}

// eventsOf returns the events of one type.
func eventsOf(all []chatEvent, kind string) []chatEvent {
	var found []chatEvent
	for _, e := range all {
		if e.Type == kind {
			found = append(found, e)
		}
	}
	return found
}

// transcriptMessage is a message of a conversation as GET …/messages shows it.
type transcriptMessage struct {
	Role     string `json:"role"`
	Content  string `json:"content"`
	ToolName string `json:"tool_name"`
	Failed   bool   `json:"failed"`
}

// transcriptOf returns the newest messages of a conversation, oldest first.
func transcriptOf(t testing.TB, url, session string) []transcriptMessage {
	t.Helper()
	var transcript struct {
		Busy     bool                `json:"busy"`
		Messages []transcriptMessage `json:"messages"`
	}
	getJSON(t, url+"/api/sessions/"+session+"/messages?limit=1000", &transcript)
	if transcript.Busy {
		t.Errorf("the conversation of %s is still busy", session)
	}
	return transcript.Messages
}
