package farhand_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
)

// writePolicy replaces a policy file.
func writePolicy(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte("version: 1\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// byRole takes the token for the roles of one user.
var byRole = auth.AuthenticatorFunc(func(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	id := auth.Identity{User: "ada"}
	return id, id.SetRoles(strings.Split(token, "+")...)
})

const dangerous = `calls: [{id: no-danger, deny: danger}]
tools: [{id: lowered, names: lowered, level: admin_only}]
`

// TestPolicyAtEveryEndpoint asks for tools that an identity may not call wherever one can ask: by name, by session,
// asynchronously, in every listing, in a conversation and over OpenAI's API. A device cannot lower a level.
func TestPolicyAtEveryEndpoint(t *testing.T) {
	path, model := filepath.Join(t.TempDir(), "policy.yaml"), &toolModel{}
	writePolicy(t, path, dangerous)
	// Nobody answers who is asked about pay.
	cfg := farhand.Config{PolicyFile: path, CallTimeout: 300 * time.Millisecond, ApprovalTime: 300 * time.Millisecond}
	url := start(t, cfg, farhand.WithModel(model), farhand.WithAuthenticator(byRole))
	conn := connect(t, url, "phone", "device+caller")
	if err := conn.WriteMessage(1, []byte(`{"type":"register_tools","tools":[`+
		`{"name":"wipe","description":"d","security_level":"admin_only"},{"name":"danger","description":"d"},`+
		`{"name":"pay","description":"d","security_level":"user_confirm"},`+
		`{"name":"lowered","description":"d","security_level":"safe"},`+
		`{"name":"lamp","description":"d"}]}`)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.ReadMessage(); err != nil {
		t.Fatal(err)
	}
	for tool, code := range map[string]string{
		"wipe": "forbidden", "lowered": "forbidden", "danger": "policy_denied", "pay": "approval_denied",
	} {
		for _, at := range []string{"/api/tools/", "/api/sessions/phone/tools/"} {
			for _, body := range []string{`{"args":{}}`, `{"args":{},"mode":"async"}`} {
				status, text := send(t, url+at+tool+"/call", body, "caller")
				if tool == "pay" && strings.Contains(body, "async") { // it waits for a person
					if status != http.StatusAccepted || !strings.Contains(text, `"approval_id":"`) {
						t.Errorf("%s%s %s: %d %s", at, tool, body, status, text)
					}
					continue
				}
				if status != http.StatusForbidden ||
					!strings.Contains(text, `"`+code+`"`) || !strings.Contains(text, `"dispatched":"no"`) {
					t.Errorf("%s%s %s: %d %s", at, tool, body, status, text)
				}
			}
		}
	}
	for _, list := range []string{"/api/tools?name=", "/api/tools?view=grouped&name="} {
		for tool, want := range map[string]string{
			"wipe":    `"enabled":false,"reason":"The tool \"wipe\" is for admins only, and your`,
			"lowered": `"enabled":false,"reason":"The tool \"lowered\" is for admins only`,
			"danger": `"enabled":false,"reason":"The policy of this gateway does not allow calls of ` +
				`\"danger\" (rule no-danger).`,
			"lamp": `"enabled":true,"schema_hash"`,
		} {
			if _, text := send(t, url+list+tool, "", "caller"); !strings.Contains(text, want) {
				t.Errorf("%s%s: %s", list, tool, text)
			}
		}
		if _, text := send(t, url+list+"wipe", "", "admin"); strings.Contains(text, `"reason"`) {
			t.Errorf("for an admin: %s", text)
		}
	}
	for _, format := range []string{"openai", "anthropic", "mcp"} {
		_, text := send(t, url+"/api/tools?format="+format, "", "caller")
		for _, tool := range []string{"wipe", "danger", "lowered"} {
			if strings.Contains(text, tool) || !strings.Contains(text, "lamp") {
				t.Errorf("%s: %s", format, text)
			}
		}
	}
	for at, body := range map[string]string{
		"/api/sessions/phone/messages": `{"content":"hi"}`,
		"/v1/chat/completions":         `{"model":"farhand","messages":[{"role":"user","content":"hi"}]}`,
	} {
		for _, role := range []string{"caller", "admin"} {
			if status, text := send(t, url+at, body, role); status != http.StatusOK {
				t.Fatalf("%s: %d %s", at, status, text)
			}
			if slices.ContainsFunc(model.tools, func(tool provider.Tool) bool {
				return slices.Contains([]string{"wipe", "danger", "lowered"}, tool.Name)
			}) {
				t.Errorf("%s as %s offers %v", at, role, model.tools)
			}
		}
	}
}

// policyLines is a log that tells of each line about a policy file.
type policyLines chan string

func (policyLines) Enabled(context.Context, slog.Level) bool { return true }
func (p policyLines) WithAttrs([]slog.Attr) slog.Handler     { return p }
func (p policyLines) WithGroup(string) slog.Handler          { return p }

func (p policyLines) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "policy file") {
		p <- r.Message
	}
	return nil
}

// TestPolicyFileIsReadAnew changes the file of a gateway that runs: what may be called changes, and the tags of lists.
// A bad file changes nothing, and readiness says so. A gateway does not start with one.
func TestPolicyFileIsReadAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, path, "")
	read := make(policyLines, 10)
	url := start(t, farhand.Config{PolicyFile: path}, farhand.WithLogger(slog.New(read)), farhand.WithToolFunc("danger",
		"d", func(context.Context, struct{}) (any, error) { return "done", nil }))
	tag := func() string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/tools", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Header.Get("ETag")
	}
	want := func(what, path, body, part string) {
		t.Helper()
		if _, text := send(t, url+path, body, ""); !strings.Contains(text, part) {
			t.Fatalf("%s: %s", what, text)
		}
	}
	replace := func(text string) {
		t.Helper()
		writePolicy(t, path, text)
		select {
		case <-read:
		case <-time.After(limit):
			t.Fatalf("the file is not read: %s", text)
		}
	}
	before := tag()
	want("no rule", "/api/tools/danger/call", `{"args":{}}`, `"done"`)
	replace(dangerous)
	want("a rule", "/api/tools/danger/call", `{"args":{}}`, "rule no-danger")
	if tag() == before {
		t.Error("the tag of a list is that of another policy")
	}
	want("a good file", "/readyz", "", `{"status":"ready"}`)
	replace("cals: []")
	want("a bad file", "/readyz", "", `{"status":"ready","warnings":["policy_file_refused"]}`)
	want("the former rule", "/api/tools/danger/call", `{"args":{}}`, "rule no-danger")
	if _, err := farhand.New(t.Context(), farhand.Config{PolicyFile: path}, quiet); err == nil ||
		!strings.Contains(err.Error(), "2:1: there is no field \"cals\"; did you mean \"calls\"?") {
		t.Errorf("a start with a bad file: %v", err)
	}
}
