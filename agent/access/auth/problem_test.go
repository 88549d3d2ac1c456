package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// TestEveryCodeHasAProblem walks the whole vocabulary.
func TestEveryCodeHasAProblem(t *testing.T) {
	for _, code := range registry.Codes() {
		kind, ok := problemKinds[code]
		if !ok || kind.status < 400 || kind.title == "" {
			t.Errorf("%s has no status and title", code)
			continue
		}
		e := registry.Errorf(code, "say %s", code).With(registry.DispatchedNo)
		p := ProblemOf(e)
		if p.Code != code || p.Status != kind.status || p.Type != problemType+string(code) || p.Title != kind.title {
			t.Errorf("%s became %+v", code, p)
		}
		if p.Retryable == nil || *p.Retryable != e.Retryable() {
			t.Errorf("%s: retryable is wrong", code)
		}
		if hidden := p.Detail == internalDetail; hidden != (code == registry.CodeInternal) {
			t.Errorf("%s: detail %q", code, p.Detail)
		}
	}
	if len(problemKinds) != len(registry.Codes()) {
		t.Errorf("%d problems for %d codes", len(problemKinds), len(registry.Codes()))
	}
	for _, e := range []*registry.Error{
		{Code: "not_owner", Message: "secret"}, {Code: "", Message: "secret"}, registry.AsError(http.ErrAbortHandler),
	} {
		if p := ProblemOf(e); p.Code != registry.CodeInternal || p.Detail != internalDetail || p.Status != 500 {
			t.Errorf("%v became %+v", e, p)
		}
	}
}

// Codes that will be over some time say when, in whole seconds; a model's provider that failed and a device that is
// away only if that is known.
func TestProblemHeaders(t *testing.T) {
	for _, code := range registry.Codes() {
		for wait, want := range map[time.Duration]string{0: "1", time.Second: "1", 1001 * time.Millisecond: "2",
			time.Minute: "60"} {
			w := httptest.NewRecorder()
			p := ProblemOf(&registry.Error{Code: code, RetryAfter: wait})
			if err := WriteProblem(w, p); err != nil {
				t.Fatal(err)
			}
			known := code == registry.CodeProvider || code == registry.CodeNotConnected
			if advised := known && wait > 0; !advised &&
				p.Status != http.StatusTooManyRequests &&
				p.Status != http.StatusServiceUnavailable {
				want = ""
			}
			if got := w.Header().Get("Retry-After"); got != want {
				t.Errorf("%s, %v: Retry-After %q, want %q", code, wait, got, want)
			}
			if got := w.Header().Get("WWW-Authenticate"); (got == "Bearer") != (code == registry.CodeUnauthenticated) {
				t.Errorf("%s: WWW-Authenticate %q", code, got)
			}
			if w.Code != p.Status || w.Header().Get("Content-Type") != "application/problem+json" ||
				w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: status %d, headers %v", code, w.Code, w.Header())
			}
		}
	}
}

// What is no call's failure says nothing about calls.
func TestProblemWithoutCall(t *testing.T) {
	w := httptest.NewRecorder()
	if err := WriteProblem(w, ProblemOf(registry.Errorf(registry.CodeTimeout, "late"))); err != nil {
		t.Fatal(err)
	}
	for _, member := range []string{"call_id", "dispatched", "retryable", "errors", "candidates"} {
		if strings.Contains(w.Body.String(), member) {
			t.Errorf("the problem has %s: %s", member, w.Body)
		}
	}
}
