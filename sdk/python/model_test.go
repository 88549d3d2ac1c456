package python_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
)

// startWhole starts a server of chat completions that also answers requests without a stream, as agents make them: it
// asks the scripted server, which only streams, and joins the pieces.
func startWhole(t *testing.T, s *scripted.Server) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request map[string]any
		if err != nil || json.Unmarshal(body, &request) != nil || request["stream"] == true {
			r.Body = io.NopCloser(bytes.NewReader(body))
			s.ServeHTTP(w, r)
			return
		}
		request["stream"] = true
		if body, err = json.Marshal(request); err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		record := httptest.NewRecorder()
		s.ServeHTTP(record, r)
		w.Header().Set("Content-Type", "application/json")
		if record.Code != http.StatusOK {
			w.WriteHeader(record.Code)
			_, _ = w.Write(record.Body.Bytes())
			return
		}
		_ = json.NewEncoder(w).Encode(joined(t, record.Body)) // fails if the client has disconnected
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

type completionCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// joined returns the completion whose chunks are in a stream.
func joined(t *testing.T, stream io.Reader) map[string]any {
	t.Helper()
	var text strings.Builder
	var calls []completionCall
	finish := ""
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
					Calls   []struct {
						Index int `json:"index"`
						completionCall
					} `json:"tool_calls"`
				} `json:"delta"`
				Finish string `json:"finish_reason"`
			} `json:"choices"`
		}
		must(t, json.Unmarshal([]byte(data), &chunk))
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Delta.Content)
			finish += choice.Finish
			for _, call := range choice.Delta.Calls {
				if call.Index == len(calls) {
					calls = append(calls, call.completionCall)
					continue
				}
				calls[call.Index].Function.Arguments += call.Function.Arguments
			}
		}
	}
	message := map[string]any{"role": "assistant", "content": text.String()}
	if len(calls) > 0 {
		message["tool_calls"] = calls
	}
	return map[string]any{
		"id": "chatcmpl-scripted", "object": "chat.completion", "created": 0, "model": "scripted",
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish}},
		"usage":   map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
	}
}
