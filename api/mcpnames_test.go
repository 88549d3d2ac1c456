package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// A name means one device. One that has become another's, or several ones', is refused.
func TestMCPNames(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("b"), answers(registry.Result{Success: true, Output: "a of b"}), tool("a", ""),
		tool("größe", ""))
	c := f.connect(0, session("c"), answers(registry.Result{Success: true, Output: "a__b of c"}), tool("a__b", ""))
	long := strings.Repeat("l", 128)
	f.connect(0, session(long), answers(registry.Result{Success: true, Output: "long"}), tool("größe", ""))
	listed := f.mcp(0, "/mcp", "tools/list", "").names(t)
	if len(listed) != 4 || listed[0] != "a" || listed[1] != "a__b__c" || !strings.HasSuffix(listed[3], "__b") &&
		!strings.HasSuffix(listed[2], "__b") {
		t.Errorf("%q", listed)
	}
	said := func(name string) string {
		got := f.mcp(0, "/mcp", "tools/call", `"name":"`+name+`"`)
		if got.Error != nil {
			return string(got.Error.Data.Code)
		}
		return got.tool(t).Content[0].Text
	}
	for name, want := range map[string]string{
		"a": "a of b", "a__b": "a of b", "a__b__c": "a__b of c", "a__c": "tool_not_found",
		"a__ghost": "session_not_found",
	} {
		if got := said(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for _, name := range listed[2:] {
		if got := said(name); (got == "long") != strings.Contains(name, ".h") || got == "tool_not_found" {
			t.Errorf("%s: %s", name, got)
		}
	}
	c.gone()
	if got := said("a__b__c"); got != string(registry.CodeNotConnected) {
		t.Errorf("of a device that has gone: %s", got)
	}
}

// A name that stands for one that MCP does not allow says whose it is, though nobody else has it: another device, which
// registers a tool of that very name afterwards, is not called in its place.
func TestMCPNamesBeyondASCII(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("b"), answers(registry.Result{Success: true, Output: "b"}), tool("größe", ""))
	listed := f.mcp(0, "/mcp", "tools/list", "").names(t)
	own := f.mcp(0, "/mcp/sessions/b", "tools/list", "").names(t)
	if len(listed) != 1 || len(own) != 1 || listed[0] != own[0]+"__b" {
		t.Fatalf("%q, %q", listed, own)
	}
	f.connect(0, session("c"), answers(registry.Result{Success: true, Output: "c"}), tool(own[0], ""))
	if got := f.mcp(0, "/mcp", "tools/call", `"name":"`+listed[0]+`"`).tool(t); got.Content[0].Text != "b" {
		t.Errorf("%+v", got)
	}
}

// Who sees the devices of several users finds each tool with its session, even one that a single device offers: when
// that device is away, another user's device that offers the same is not called in its place. One user's have their own
// names.
func TestMCPNamesOfSeveralUsers(t *testing.T) {
	f := newFleet(t, setup{change: func(cfg *api.Config) { cfg.Auth = people{} }})
	of := func(id, user string) registry.Session {
		s := session(id)
		s.UserID = user
		return s
	}
	says := func(text string) func(routing.DeviceCall) (registry.Result, bool) {
		return answers(registry.Result{Success: true, Output: text})
	}
	annas := f.connect(0, of("a", "anna"), says("anna's"), tool("unlock", ""))
	f.connect(0, of("n", ""), echo, tool("light", ""))
	all := request{method: http.MethodPost, path: "/mcp", header: http.Header{"Authorization": {"Bearer root"}}}
	ask := func(method, params string) rpc {
		all.body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s}}`, method, params)
		return f.rpc(all)
	}
	equal(t, "everybody's", ask("tools/list", "").names(t), []string{"light", "unlock__a"})
	equal(t, "her own", f.mcp(0, "/mcp", "tools/list", "").names(t), []string{"light", "unlock"})
	for name, want := range map[string]string{"unlock": "tool_not_found", "light": ""} {
		if got := ask("tools/call", `"name":"`+name+`"`); want == "" != (got.Error == nil) ||
			want != "" && string(got.Error.Data.Code) != want {
			t.Errorf("everybody's %s: %+v", name, got.Error)
		}
	}
	all.path = "/mcp?tools=search"
	for args, reached := range map[string]bool{
		`{"name":"unlock"}`: false, `{"name":"unlock","session":"a"}`: true, `{"name":"light"}`: true,
	} {
		if got := ask("tools/call", `"name":"call_tool","arguments":`+args); reached != (got.Error == nil) {
			t.Errorf("everybody's search, %s: %+v", args, got.Error)
		}
	}
	all.path = "/mcp/users/anna"
	if got := ask("tools/call", `"name":"unlock"`); got.Error != nil {
		t.Errorf("one user's unlock: %+v", got.Error)
	}
	equal(t, "one user's", ask("tools/list", "").names(t), []string{"unlock"})
	all.path = "/mcp"
	f.connect(0, of("m", "mallory"), says("mallory's"), tool("unlock", ""))
	if got := ask("tools/call", `"name":"unlock__a"`).tool(t); got.Content[0].Text != "anna's" {
		t.Errorf("%+v", got)
	}
	annas.gone()
	if got := ask("tools/call", `"name":"unlock__a"`); got.Error == nil ||
		got.Error.Data.Code != registry.CodeNotConnected {
		t.Errorf("%+v", got)
	}
}

// A gateway's own tool keeps its name, and is called by it, whatever devices and their tools are called.
func TestMCPNamesOfTheGateway(t *testing.T) {
	box, err := agent.NewLocalTools(agent.Registration{
		Names: []string{"fs__read"}, Make: func(agent.SessionContext) []agent.Tool { return []agent.Tool{reader{}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, setup{builtins: box, change: func(c *api.Config) { c.Builtins = own{reader{}.Spec()} }})
	for _, id := range []string{"read", "s2"} {
		f.connect(0, session(id), answers(registry.Result{Success: true, Output: id}), tool("fs", ""))
	}
	listed := f.mcp(0, "/mcp", "tools/list", "").names(t)
	if len(listed) != 3 || listed[0] == listed[1] || !strings.HasPrefix(listed[0], "fs__.h") ||
		listed[1] != "fs__read" || listed[2] != "fs__s2" {
		t.Fatalf("%q", listed)
	}
	for i, want := range []string{"read", "the gateway", "s2"} {
		got := f.mcp(0, "/mcp", "tools/call", `"name":"`+listed[i]+`"`).tool(t)
		if got.IsError || got.Content[0].Text != want {
			t.Errorf("%s: %+v", listed[i], got)
		}
	}
}

// A qualified name of a device's tool never becomes that of an MCP server's: it keeps its meaning when the server adds
// a tool, or is refused because both could be meant.
func TestMCPNamesOfAServerThatAddsTools(t *testing.T) {
	servers := upstream{own{}, new(agent.LiveSet)}
	local, err := agent.NewLocalTools()
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, setup{
		builtins: local.WithLive(servers), change: func(c *api.Config) { c.Builtins = servers },
	})
	// The tools of devices that a pod without the server has let register.
	for _, id := range []string{"lap", "top"} {
		f.connect(0, session(id), answers(registry.Result{Success: true, Output: id}), tool("files", ""))
	}
	listed := f.mcp(0, "/mcp", "tools/list", "").names(t)
	if len(listed) != 2 {
		t.Fatalf("%q", listed)
	}
	call := func(name string) (said string, code registry.Code) {
		got := f.mcp(0, "/mcp", "tools/call", `"name":"`+name+`"`)
		if got.Error != nil {
			return "", got.Error.Data.Code
		}
		return got.tool(t).Content[0].Text, ""
	}
	added := []agent.Tool{foreign{name: "files__lap"}, foreign{name: "files__read"}}
	for _, tools := range [][]agent.Tool{nil, added} {
		*servers.set = agent.LiveSet{Version: uint64(len(tools)), Tools: tools}
		for i, name := range listed {
			if said, code := call(name); code != "" || said != []string{"lap", "top"}[i] &&
				said != []string{"top", "lap"}[i] {
				t.Errorf("%s with %d tools of the server: %q %s", name, len(tools), said, code)
			}
		}
		if said, code := call("files__lap"); code != registry.CodeAmbiguousTarget {
			t.Errorf("files__lap with %d tools of the server: %q %s", len(tools), said, code)
		}
	}
	if said, code := call("files__read"); code != "" || said != "" {
		t.Errorf("a name that no device's tool has: %q %s", said, code)
	}
}

// reader is a tool of the gateway's own that is called as those of MCP servers are.
type reader struct{}

func (reader) Spec() registry.ToolSpec { return tool("fs__read", "") }

func (reader) Execute(context.Context, json.RawMessage) (registry.Result, error) {
	return registry.Result{Success: true, Output: "the gateway"}, nil
}
