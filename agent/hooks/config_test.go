package hooks_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/hooks"
)

// write makes a file of hooks.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hooks.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	path := write(t, `# Two hooks.
hooks:
  - name: guard
    url: https://hooks.example.com/farhand
    secret: `+secret+`
    phase: both
  - name: no-faces
    url: http://10.0.0.7:9000/faces
    secret_file: key
    phase: after
    tools: ["camera_*", screenshot]
    timeout: 500ms
    on_failure: pass
    allow_private: true
    max_concurrent: 8
`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "key"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := hooks.Load(path)
	want := []hooks.Config{
		{Name: "guard", URL: "https://hooks.example.com/farhand", Secret: secret, Before: true, After: true},
		{Name: "no-faces", URL: "http://10.0.0.7:9000/faces", Secret: secret, After: true,
			Tools: []string{"camera_*", "screenshot"}, Timeout: 500 * time.Millisecond, FailOpen: true,
			AllowPrivate: true, Concurrent: 8},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Everything that is wrong is said, with its place, and without the secret.
func TestBadFiles(t *testing.T) {
	good := "name: a\n    url: https://h.example.com\n    phase: before\n    secret: " + secret + "\n"
	for text, want := range map[string]string{
		"":          "hooks: must be a list",
		"hooks: []": "hooks: must be a list",
		"hooks: 3":  "line 1",
		"hooks:\n  - " + good + "    colour: red\n": `line 6: field colour ` +
			`is not a field of a hook`,
		"other: 1\nhooks:\n  - " + good:                                               `line 1: field other`,
		"hooks:\n  - " + good + "    name: b\n":                                       `already defined`,
		"hooks:\n  - " + good + "  - " + good:                                         "another hook has this name",
		"hooks:\n  - " + good + "---\nhooks:\n  - " + good:                            "one YAML document",
		"hooks:\n  - " + strings.Replace(good, "before", "during", 1):                 "phase: must be",
		"hooks:\n  - " + strings.Replace(good, "phase: before", "timeout: 2", 1):      "timeout: must be",
		"hooks:\n  - " + good + "    timeout: 11s\n":                                  "timeout: must be",
		"hooks:\n  - " + good + "    timeout: 0s\n":                                   "timeout: must be",
		"hooks:\n  - " + good + "    on_failure: maybe\n":                             "on_failure: must be",
		"hooks:\n  - " + good + "    max_concurrent: 0\n":                             "max_concurrent: must be",
		"hooks:\n  - " + good + "    tools: [\"[a]\"]\n":                              "tools:",
		"hooks:\n  - " + good + "    secret_file: x\n":                                "set only one",
		"hooks:\n  - " + strings.Replace(good, secret, "whsec_c2hvcnQ=", 1):           "secret: must be",
		"hooks:\n  - " + strings.Replace(good, secret, secret[6:], 1):                 "secret: must be",
		"hooks:\n  - " + strings.Replace(good, "name: a", "name: A b", 1):             "name: must be",
		"hooks:\n  - " + strings.Replace(good, "https://", "http://", 1):              "must be https",
		"hooks:\n  - " + strings.Replace(good, "https://", "ftp://", 1):               "must be an https URL",
		"hooks:\n  - " + strings.Replace(good, "h.example", "u:p@h.example", 1):       "neither a user",
		"hooks:\n  - " + strings.Replace(good, "h.example.com", "169.254.169.254", 1): "not allowed for hooks",
		"hooks:\n  - " + strings.Replace(good, "h.example.com", "127.0.0.1", 1):       "allow_private",
		"hooks:\n" + strings.Repeat("  - "+good, 17):                                  "1 to 16",
		strings.Repeat("#", 1<<20+1):                                                  "longer than",
	} {
		_, err := hooks.Load(write(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "hooks.yaml") {
			t.Errorf("%.200s\n  %v\n  does not say %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret[6:]) {
			t.Errorf("the error has the secret: %v", err)
		}
	}
	if _, err := hooks.Load("/does/not/exist"); err == nil {
		t.Error("no file is one")
	}
}

// A configuration shows its secret in no format.
func TestConfigHidesItsSecret(t *testing.T) {
	c := hooks.Config{Name: "a", Secret: secret}
	text := fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Secret)
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "config", c, "secret", c.Secret)
	if strings.Contains(text+logged.String(), secret[6:]) {
		t.Errorf("%s %s", text, logged.String())
	}
}
