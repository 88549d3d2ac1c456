package farhand

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWeakTokens(t *testing.T) {
	t.Parallel()
	for token, weak := range map[string]bool{
		"":                                 true,
		"x":                                true,
		"secret":                           true,
		"0123456789abcde":                  true, // 15
		strings.Repeat("a", 64):            true,
		strings.Repeat("ab", 32):           true,
		strings.Repeat("letmein", 9):       true,
		"aaaaaaaaaaaaaaaaaaaaaaaab":        true,
		"fleet-test-token-0123456789":      false,
		"3f9a0c7be1d24586":                 false,
		"q0eVJYw5hYQeY0mXvQq3nq7T8Zr1Qk5V": false,
	} {
		if got := weakToken(token); got != weak {
			t.Errorf("%q: weak %v", token, got)
		}
	}
}

// TestTokenRotation: while FARHAND_TOKEN is rotated, both tokens work on a gateway, and its metrics and its log show
// that the previous one is still used. Secrets come from files.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	const current, previous = "current-token-0123456789", "previous-token-9876543210"
	files := make(map[string]string)
	for name, content := range map[string]string{
		"TOKEN": current, "TOKEN_PREVIOUS": "older-token-0123456789\n" + previous,
	} {
		files[name] = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(files[name], []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := LoadConfig([]string{"FARHAND_TOKEN_FILE=" + files["TOKEN"],
		"FARHAND_TOKEN_PREVIOUS_FILE=" + files["TOKEN_PREVIOUS"], "FARHAND_ADDR=0.0.0.0:0"})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	g, err := New(t.Context(), cfg, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, token string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for token, want := range map[string]int{
		current: http.StatusOK, previous: http.StatusOK, "unknown-token-0123456789": http.StatusUnauthorized,
	} {
		if status, body := ask("/api/tools", token); status != want {
			t.Errorf("%s: %d %s", token, status, body)
		}
	}
	if _, text := ask("/metrics", current); !strings.Contains(text, "\nfarhand_auth_previous_token_total 1\n") {
		t.Error("the metric does not count the use of the previous token")
	}
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Count(text, "FARHAND_TOKEN_PREVIOUS is still used") != 1 ||
		strings.Contains(text, previous) {
		t.Errorf("log: %s", text)
	}
}

func TestPreviousTokensThatAreWrong(t *testing.T) {
	t.Parallel()
	const token = "current-token-0123456789"
	for name, tt := range map[string]struct{ environ, want string }{
		"no current token":  {"FARHAND_TOKEN=", "FARHAND_TOKEN_PREVIOUS: requires FARHAND_TOKEN"},
		"the current token": {"FARHAND_TOKEN=old-token-9876543210", "contains FARHAND_TOKEN itself"},
		"a weak one":        {"FARHAND_TOKEN_PREVIOUS=x", "FARHAND_TOKEN_PREVIOUS is short or repetitive"},
		"an API key":        {"FARHAND_TOKEN_PREVIOUS=fhk_x", "must not contain an API key"},
	} {
		_, err := LoadConfig([]string{"FARHAND_ADDR=0.0.0.0:0", "FARHAND_TOKEN=" + token,
			"FARHAND_TOKEN_PREVIOUS=old-token-9876543210", tt.environ})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
