package provider_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
)

// FuzzStream feeds both models with whatever a server might send: nothing may panic, no answer may pass its bound, and
// what is emitted is what is answered.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		"", "data: [DONE]\n\n", "data: {\"error\":\"x\"}\n\n", ": ping\n\n", "event: error\ndata: null\n\n",
		delta(`{"content":"a"}`) + toolCallsEnd,
		delta(`{"reasoning":"a","reasoning_content":7}`),
		calls(`{"index":0,"function":{"name":"a","arguments":"{\"a\\\"}"}},{"id":"x"},{"index":-1}`) + toolCallsEnd,
		event("message_start", `{"type":"message_start","message":{"usage":{"input_tokens":1}}}`) +
			event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use",`+
				`"input":[]}}`) +
			event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta",`+
				`"partial_json":"{"}}`) +
			event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
			event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`),
		event("error", `["`+key+`"]`), event("error", key), "data: {\"error\":[\"" + key + "\"]}\n\n", "data: " + key +
			"\n\n",
		event("error", `{"type":"error","error":{"type":"overloaded_error","message":"`+key+`"}}`),
	} {
		f.Add(seed)
	}
	const bound = 500
	f.Fuzz(func(t *testing.T, stream string) {
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: 200, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}},
				Body: io.NopCloser(strings.NewReader(stream)),
			}, nil
		})}
		once := provider.Retry{Attempts: 1}
		for _, m := range []provider.Model{
			provider.NewOpenAI(provider.Config{Name: "m", APIKey: key, HTTPClient: client, Retry: once,
				MaxBytes: bound}),
			provider.NewAnthropic(provider.Config{Name: "m", APIKey: key, HTTPClient: client, Retry: once,
				MaxBytes: bound}),
		} {
			var h heard
			a, err := m.Generate(t.Context(), ask("hi"), h.emit)
			if h.said() != a.Message.Content || len(h.said())+len(h.thought()) > bound {
				t.Fatalf("emitted %q, answered %q", h.said(), a.Message.Content)
			}
			if err == nil {
				checkCalls(t, a)
				continue
			}
			if e, ok := errors.AsType[*provider.Error](err); !ok || strings.Contains(e.Error(), key) ||
				len([]rune(e.Error())) > 900 {
				t.Fatalf("error %v", err)
			}
		}
	})
}

func checkCalls(t *testing.T, a provider.Answer) {
	t.Helper()
	ids := map[string]bool{}
	for _, c := range a.Message.ToolCalls {
		if c.ID == "" || ids[c.ID] || c.Args == "" {
			t.Fatalf("calls %+v", a.Message.ToolCalls)
		}
		ids[c.ID] = true
	}
	if a.Stop == "" || (a.Stop == provider.StopToolCalls) != (len(a.Message.ToolCalls) > 0) &&
		a.Stop != provider.StopLength && a.Stop != provider.StopRefusal {
		t.Fatalf("stop %q with %d calls", a.Stop, len(a.Message.ToolCalls))
	}
}
