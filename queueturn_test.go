package farhand_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/testkit"
)

// patientModel calls echo in its first answer, and then only talks. It keeps what it read.
type patientModel struct {
	mu    sync.Mutex
	reads [][]provider.Message
}

func (*patientModel) Name() string { return "patient" }

func (m *patientModel) Generate(
	_ context.Context, r provider.Request, emit func(provider.Delta),
) (provider.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = append(m.reads, r.Messages)
	said := provider.Message{Role: provider.RoleAssistant, Content: "ok"}
	if len(m.reads) == 1 {
		said.ToolCalls = []provider.ToolCall{{ID: "c1", Name: "echo", Args: `{"text":"seen"}`}}
		return provider.Answer{Message: said, Stop: provider.StopToolCalls}, nil
	}
	emit(provider.Delta{Text: "ok"})
	return provider.Answer{Message: said, Stop: provider.StopEnd}, nil
}

// results returns the tool results that the model read last.
func (m *patientModel) results() (texts []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range m.reads[len(m.reads)-1] {
		if message.Role == provider.RoleTool {
			texts = append(texts, message.Content)
		}
	}
	return texts
}

// TestATurnGoesOnWithoutASleepingDevice: the model learns that its call waits, and the outcome once in a later turn.
func TestATurnGoesOnWithoutASleepingDevice(t *testing.T) {
	model := &patientModel{}
	url := start(t, farhand.Config{Token: adminToken}, farhand.WithModel(model))
	q := queuePods{T: t, a: url, b: url}
	q.slept("phone", `[{"name":"echo","parameters":{"type":"object"}}]`)
	say := func(text, more string) {
		t.Helper()
		body := fmt.Sprintf(`{"content":%q%s}`, text, more)
		if status, text := send(t, url+"/api/sessions/phone/messages", body, adminToken); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	say("look", `,"queue":{"ttl_ms":600000}`)
	if got := model.results(); len(got) != 1 || !strings.Contains(got[0], "queued at position 1") ||
		!strings.HasSuffix(got[0], "a later message has the outcome.") { // a note of the gateway, outside the mark
		t.Fatalf("the model read %q", got)
	}
	say("and now?", "") // still asleep
	if got := model.results(); len(got) != 1 {
		t.Errorf("the model read %q", got)
	}
	phone := wakePhone(t, url, "phone", adminToken, echoTools, true)
	testkit.Eventually(t, "the call has run", func() bool {
		_, text := send(t, url+"/api/devices/phone/queue", "", adminToken)
		return !strings.Contains(text, "call_id")
	})
	for range 2 {
		say("and now?", "")
		if got := model.results(); len(got) != 2 || !strings.Contains(got[1], `"text":"seen"`) ||
			!strings.Contains(got[1], "outcome of an earlier call") {
			t.Errorf("the model read %q", got)
		}
	}
	if len(phone.seen()) != 1 {
		t.Errorf("the device got %v", phone.seen())
	}
}

// TestV1QueuesCalls: the header offers the tools of a sleeping device to a conversation that the caller keeps.
func TestV1QueuesCalls(t *testing.T) {
	model := &patientModel{}
	url := start(t, farhand.Config{Token: adminToken}, farhand.WithModel(model))
	q := queuePods{T: t, a: url, b: url}
	q.slept("phone", echoTools)
	said := ""
	ask := func(queue string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions",
			strings.NewReader(`{"model":"farhand","messages":[{"role":"user","content":"look"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+adminToken)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Farhand-Session", "phone")
		if queue != "" {
			r.Header.Set("X-Farhand-Queue", queue)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		said = string(text)
		return resp.StatusCode
	}
	if status := ask("soon"); status != http.StatusBadRequest {
		t.Errorf("a wrong header: %d", status)
	}
	if status := ask("600000"); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	if got := model.results(); len(got) != 1 || !strings.Contains(got[0], "queued at position 1") ||
		!strings.Contains(got[0], "the record of the call ") {
		t.Fatalf("the model read %q", got)
	}
	if !strings.Contains(said, `"finish_reason":"stop"`) {
		t.Errorf("the caller read %s", said)
	}
	_, id, _ := strings.Cut(model.results()[0], "the record of the call ")
	id, _, _ = strings.Cut(id, " ")
	wakePhone(t, url, "phone", adminToken, echoTools, true)
	testkit.Eventually(t, "the record has the outcome", func() bool {
		_, text := send(t, url+"/api/calls/"+id, "", adminToken)
		return strings.Contains(text, `"state":"succeeded"`) && strings.Contains(text, "seen")
	})
	if status := ask("600000"); status != http.StatusOK || len(model.results()) != 0 {
		t.Errorf("%d: a later turn of a conversation that the caller keeps read %q", status, model.results())
	}
}
