package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand"
)

// TestDoctorOnline: one document, with what is used; exit code 1 if something is missing, and 2 for a wrong command.
func TestDoctorOnline(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.NotFoundHandler())
	file := filepath.Join(t.TempDir(), "hooks.yaml")
	text := "hooks:\n- {name: guard, phase: before, allow_private: true, url: " + service.URL + ", secret: whsec_" +
		strings.Repeat("c2VjcmV0", 6) + "}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := quietEnvironment(t, "FARHAND_HOOKS_FILE="+file)
	online := func() (code int, of map[string]farhand.Finding) {
		code, out, errOut := command(t, environ, "doctor", "--online", "--json")
		var findings []farhand.Finding
		if err := json.Unmarshal([]byte(out), &findings); err != nil {
			t.Fatalf("%v\n%s%s", err, out, errOut)
		}
		of = make(map[string]farhand.Finding)
		for _, f := range findings {
			of[f.Part] = f
		}
		return code, of
	}
	if code, of := online(); code != 0 || !of["hooks"].OK || !of["files"].OK || of["websocket"].Needed {
		t.Errorf("exits %d: %+v", code, of)
	}
	service.Close()
	if code, of := online(); code != 1 || of["hooks"].OK || !of["hooks"].Needed {
		t.Errorf("without the service of the hook: exits %d: %+v", code, of["hooks"])
	}
	for _, args := range [][]string{{"--url", "http://127.0.0.1:1"}, {"--online", "--ca", "/nonexistent"}} {
		if code, _, errOut := command(t, environ, append([]string{"doctor"}, args...)...); code != 2 || errOut == "" {
			t.Errorf("%v: exits %d: %s", args, code, errOut)
		}
	}
}
