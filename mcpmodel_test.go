package farhand_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
)

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// mcpClient connects the client of the Go SDK.
func mcpClient(t *testing.T, url, token string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: bearer(token)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // its streams may have ended before
	return s
}

// offered lists the tools that an MCP client is shown.
func offered(t *testing.T, s *mcp.ClientSession) (names []string) {
	t.Helper()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// calledOverMCP calls a tool, and returns why it did not run; empty: it did.
func calledOverMCP(t *testing.T, s *mcp.ClientSession, tool string) string {
	t.Helper()
	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return string(e.Data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

const aboutModels = `tools:
  - {id: no-models, names: door, forbid: asked by a model}
  - {id: only-models, names: diary, forbid: asked directly}
`

// TestMCPClientsAreModels: what a policy says of models holds for the clients of MCP, with whatever credential, in
// lists and in calls; who calls over HTTP calls directly. An answer about one is not taken for one about the other.
func TestMCPClientsAreModels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, path, aboutModels)
	url := start(t, farhand.Config{Token: adminToken, PolicyFile: path})
	answering(t, url, "phone", adminToken, `[{"name":"door"},{"name":"diary"},{"name":"lamp"},`+
		`{"name":"wipe","security_level":"admin_only"}]`)
	for who, token := range map[string]string{
		"an admin": adminToken, "a caller": makeKey(t, url, `{}`).Key,
		"a user": makeKey(t, url, `{"user_id":"ann"}`).Key,
	} {
		s := mcpClient(t, url, token)
		for range 2 { // what is remembered is the same
			if names := offered(t, s); !slices.Equal(names, []string{"diary", "lamp"}) {
				t.Errorf("%s is offered %v", who, names)
			}
			for tool, rule := range map[string]string{"door": "no-models", "diary": "", "lamp": "",
				"wipe": "admin-only"} {
				why := calledOverMCP(t, s, tool)
				if (why == "") != (rule == "") || who == "an admin" && rule != "" &&
					!strings.Contains(why, `"policy_denied"`) {
					t.Errorf("%s calls %s over MCP: %s", who, tool, why)
				}
			}
			for tool, want := range map[string]int{"door": 200, "diary": 403, "lamp": 200} {
				if got, text := send(t, url+"/api/tools/"+tool+"/call", `{}`, token); got != want {
					t.Errorf("%s calls %s over HTTP: %d %s", who, tool, got, text)
				}
				enabled := fmt.Sprintf(`"enabled":%t`, want == 200)
				if _, text := send(t, url+"/api/tools?name="+tool, "", token); !strings.Contains(text, enabled) {
					t.Errorf("%s is listed %s over HTTP: %s", who, tool, text)
				}
			}
		}
		read, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "farhand://sessions/phone"})
		if err != nil || strings.Count(read.Contents[0].Text, `"enabled":true`) != 2 {
			t.Errorf("%s reads %+v, %v", who, read, err)
		}
	}
	if status, text := send(t, url+"/api/tools/wipe/call", `{}`, adminToken); status != http.StatusOK {
		t.Errorf("an admin over HTTP: %d %s", status, text)
	}
}

// TestKeyOfAPersonsProgram: the calls of a key that is a person's over MCP are no model's, on every pod; what is said
// of MCP holds for them, and nothing changes over HTTP.
func TestKeyOfAPersonsProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, path, aboutModels+"  - {id: closed, names: vault, forbid: over MCP}\n")
	url := start(t, farhand.Config{Token: adminToken, PolicyFile: path})
	answering(t, url, "phone", adminToken, `[{"name":"door"},{"name":"diary"},{"name":"vault"},`+
		`{"name":"wipe","security_level":"admin_only"}]`)
	plain := makeKey(t, url, `{"roles":["admin"],"person":false}`)
	person := makeKey(t, url, `{"roles":["admin"],"person":true}`)
	for token, want := range map[string]string{plain.Key: "diary", person.Key: "door wipe"} {
		s := mcpClient(t, url, token)
		if names := strings.Join(offered(t, s), " "); names != want {
			t.Errorf("offered %s, want %s", names, want)
		}
		for _, tool := range []string{"door", "diary", "vault", "wipe"} {
			if why := calledOverMCP(t, s, tool); (why == "") != strings.Contains(want, tool) {
				t.Errorf("%s over MCP, want %s: %s", tool, want, why)
			}
			status, text := send(t, url+"/api/tools/"+tool+"/call", `{}`, token)
			if (status == http.StatusOK) != (tool != "diary") {
				t.Errorf("%s over HTTP: %d %s", tool, status, text)
			}
		}
	}
	var list struct {
		Keys []struct {
			ID     string
			Person bool
		}
	}
	_, text := send(t, url+"/api/keys", "", adminToken)
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Keys) != 2 {
		t.Fatalf("%s, %v", text, err)
	}
	for _, k := range list.Keys {
		if k.Person != (k.ID == person.ID) {
			t.Errorf("listed %+v", k)
		}
	}
	if status, text := send(t, url+"/api/keys", `{"person":"yes"}`, adminToken); status != http.StatusBadRequest {
		t.Errorf("no truth value: %d %s", status, text)
	}
	testkit.Eventually(t, "the audit log says so", func() bool {
		_, audit := send(t, url+"/api/audit?action=key.create", "", adminToken)
		return strings.Count(audit, "a person's program over MCP") == 1
	})
}
