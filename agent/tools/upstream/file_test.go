package upstream_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/tools/upstream"
)

// load reads a file of this text, where SECRET is the only variable.
func load(t testing.TB, text string) ([]upstream.Server, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "servers.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return upstream.Load(path, func(name string) (string, bool) { return "hunter2", name == "SECRET" })
}

func TestFile(t *testing.T) {
	servers, err := load(t, `{"mcpServers": {
		"web": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${SECRET}"},
			"tools": {"allow": ["a*"], "deny": ["ab"]}, "timeout_ms": 1500, "max_concurrent": 3, "optional": true},
		"files": {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "${SECRET}", "A": "$5"}, "cwd": "/srv"},
		"off": {"command": "x", "disabled": true}
	}}`)
	if err != nil || len(servers) != 2 {
		t.Fatalf("%+v, %v", servers, err)
	}
	files, web := servers[0], servers[1]
	if !slices.Equal(files.Command, []string{"npx", "-y", "x"}) || files.Dir != "/srv" ||
		!slices.Equal(files.Env, []string{"A=$5", "KEY=hunter2"}) || files.MaxCalls != 8 {
		t.Errorf("%+v", files)
	}
	if string(web.Headers["Authorization"]) != "Bearer hunter2" || web.Timeout.Milliseconds() != 1500 ||
		web.MaxCalls != 3 || !web.Optional {
		t.Errorf("%+v", web)
	}
}

func TestFileRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`{}`:                             "1 to 32 servers",
		`{"mcpServers":{},"servers":{}}`: "unknown field",
		`{"mcpServers":{"a":{"command":"x","comand":1}}}`:                              `unknown field "comand"`,
		`{"mcpServers":{"a":{"command":"x"},"a":{"command":"y"}}}`:                     "twice",
		`{"mcpServers":{"a":{}}}`:                                                      "either command or url",
		`{"mcpServers":{"a":{"command":"x","url":"https://b"}}}`:                       "either command or url",
		`{"mcpServers":{"A_b":{"command":"x"}}}`:                                       "lower-case letters",
		`{"mcpServers":{"a":{"command":"x","args":[1]}}}`:                              "args",
		`{"mcpServers":{"a":{"command":"x","env":{"K":"${MISSING}"}}}}`:                "${MISSING} is not set",
		`{"mcpServers":{"a":{"url":"ftp://b"}}}`:                                       "http",
		`{"mcpServers":{"a":{"url":"https://u:hunter2@b"}}}`:                           "put credentials in headers",
		`{"mcpServers":{"a":{"url":"https://b","headers":{"X":"a\nb"}}}}`:              "not a valid header",
		`{"mcpServers":{"a":{"url":"https://b","sandbox":true}}}`:                      "need a command",
		`{"mcpServers":{"a":{"type":"sse","url":"https://b"}}}`:                        "sse",
		`{"mcpServers":{"a":{"command":"x","sandbox":true,"cwd":"../up"}}}`:            "below the workspace",
		`{"mcpServers":{"a":{"command":"x","tools":{"deny":["["]}}}}`:                  "not a valid glob",
		`{"mcpServers":{"a":{"command":"x","timeout_ms":-1}}}`:                         "timeout_ms",
		`{"mcpServers":{"a":{"command":"x","timeout_ms":18446744073710}}}`:             "timeout_ms", // wraps around in ns
		`{"mcpServers":{"a":{"command":"x","env":{"K":"${SECRET}"},"timeout_ms":-1}}}`: "timeout_ms",
		`[`: "JSON",
	} {
		_, err := load(t, text)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add(`{"mcpServers":{"a":{"command":"x","args":["${SECRET}"]}}}`)
	f.Add(`{"mcpServers":{"a":{"url":"https://b","headers":{"X":"y"}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		servers, err := load(t, text)
		if err != nil && strings.Contains(err.Error(), "hunter2") && !strings.Contains(text, "hunter2") {
			t.Errorf("a secret in %v", err)
		}
		for _, s := range servers {
			if err == nil && (len(s.Command) == 0) == (s.URL == "") {
				t.Errorf("%+v", s)
			}
		}
	})
}
