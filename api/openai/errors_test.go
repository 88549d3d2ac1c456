package openai

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// Errors are in OpenAI's format byte for byte, with the headers that its clients act upon.
func TestWriteError(t *testing.T) {
	coded := func(code registry.Code, retry time.Duration) error {
		return &registry.Error{Code: code, Message: "m <&>", RetryAfter: retry}
	}
	refused := &registry.Error{Code: registry.CodeProvider, Message: "m",
		Cause: &provider.Error{Kind: provider.KindRequest, Param: "top_p"}}
	limited := &registry.Error{
		Code: registry.CodeProvider, Message: "m", Cause: &provider.Error{Kind: provider.KindLimit,
			RetryAfter: 3 * time.Second},
	}
	ran := chat.Reply{Calls: []chat.CallReport{{ID: "c1"}}}
	for name, tt := range map[string]struct {
		err                error
		status             int
		body               string
		retry, final, auth string
	}{
		"field": {badParam("n", "m %d", 1), 400,
			`{"message":"m 1","type":"invalid_request_error","param":"n","code":"invalid_request_error"}`, "", "", ""},
		"token": {coded(registry.CodeUnauthenticated, 0), 401,
			`{"message":"m <&>","type":"invalid_request_error","param":null,"code":"invalid_api_key"}`, "", "",
			"Bearer"},
		"model": {unknownModel("x"), 404,
			`{"message":"The model \"x\" does not exist. GET /v1/models lists all models.",` +
				`"type":"invalid_request_error","param":"model","code":"model_not_found"}`, "", "", ""},
		"several sessions": {&registry.Error{Code: registry.CodeAmbiguousTarget, Message: "m.",
			Candidates: []registry.Candidate{
				{SessionID: "a"}, {SessionID: "b"}}}, 409,
			`{"message":"m. Sessions: a, b.","type":"invalid_request_error","param":null,"code":"ambiguous_target"}`,
			"", "false", ""},
		"busy": {coded(registry.CodeBusy, 1500*time.Millisecond), 429,
			`{"message":"m <&>","type":"rate_limit_error","param":null,"code":"busy"}`, "2", "", ""},
		"draining": {coded(registry.CodeDraining, 0), 503,
			`{"message":"m <&>","type":"server_error","param":null,"code":"draining"}`, "1", "", ""},
		"tools ran": {turnFailure(coded(registry.CodeDraining, 0), ran), 503,
			`{"message":"m <&>","type":"server_error","param":null,"code":"draining"}`, "1", "false", ""},
		"the provider refuses a field": {turnFailure(refused, chat.Reply{}), 400,
			`{"message":"m","type":"invalid_request_error","param":"top_p","code":"invalid_request_error"}`, "", "",
			""},
		"the provider's limit": {turnFailure(limited, chat.Reply{}), 429,
			`{"message":"m","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}`, "3", "", ""},
	} {
		w := httptest.NewRecorder()
		WriteError(w, tt.err)
		h := w.Header()
		if want := `{"error":` + tt.body + "}\n"; w.Code != tt.status || w.Body.String() != want {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, w.Body, tt.status, want)
		}
		if h.Get("Retry-After") != tt.retry || h.Get(HeaderRetry) != tt.final || h.Get("WWW-Authenticate") != tt.auth ||
			h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", name, h)
		}
	}
}
