package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// own are the tools of the gateway itself.
type own []registry.ToolSpec

func (o own) Specs() []registry.ToolSpec { return o }

func (own) Tool(_ policy.Context, name string) agent.Tool {
	return stub{foreign{name: name}, new(atomic.Value)}
}

// stub is one of them. What it stands on may be away.
type stub struct {
	agent.Tool
	away *atomic.Value // why; nothing: it is there
}

func (s stub) Resting() string {
	why, _ := s.away.Load().(string)
	return why
}

// furnished is threeDevices with three built-in tools, out of order.
func furnished(t *testing.T) *fleet {
	f := newFleet(t, setup{
		policy: agent.PolicyRules{CallDeny: []string{"time"}},
		change: func(c *api.Config) { c.Builtins = own(tools("time", "sessions", "zone")) },
	})
	for i, user := range []string{"anna", "ben"} {
		s := session(fmt.Sprintf("s%d", i+1))
		s.UserID = user
		f.connect(0, s, echo, tools("locate", "time")...)
	}
	return f
}

func TestBuiltinTools(t *testing.T) {
	f := furnished(t)
	row := decode[toolList](f.get("/api/tools?name=time"), 200).Tools[0]
	if row.SourceType != "builtin" || row.Source != "builtin" || row.Enabled || row.Description != "does time" ||
		row.SessionID != "" || row.Pod != "" {
		t.Errorf("row %+v", row)
	}
	const all = "/sessions /time /zone"
	for query, want := range map[string]string{
		"":                                           all + " s1/locate s1/time s2/locate s2/time",
		"source_type=builtin":                        all,
		"source_type=builtin&q=ES":                   "/sessions /time /zone",
		"q=zon":                                      "/zone",
		"name=time":                                  "/time s1/time s2/time",
		"source_type=remote&name=time":               "s1/time s2/time",
		"source_type=mcp":                            "",
		"user_id=anna":                               "s1/locate s1/time",
		"session_id=s2":                              "s2/locate s2/time",
		"source_type=builtin&user_id=anna":           "",
		"label=a=b":                                  "",
		"view=grouped":                               all + " /locate /time",
		"view=grouped&source_type=builtin":           all,
		"view=grouped&source_type=remote":            "/locate /time",
		"view=grouped&name=zone":                     "/zone",
		"view=grouped&user_id=anna":                  "/locate /time",
		"view=grouped&user_id=anna&q=zone":           "",
		"format=mcp":                                 "/locate /sessions /zone",
		"format=mcp&source_type=builtin":             "/sessions /zone",
		"format=mcp&source_type=remote":              "/locate",
		"format=mcp&q=e&name=zone":                   "/zone",
		"format=mcp&user_id=anna":                    "/locate",
		"format=mcp&source_type=mcp":                 "",
		"view=grouped&source_type=mcp":               "",
		"source_type=builtin&view=grouped&label=a=b": "",
	} {
		if got := strings.Join(at(f.pages("/api/tools?"+query, nil)), " "); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
		for limit := 1; limit <= 8; limit++ {
			if got := strings.Join(at(f.pages(fmt.Sprintf("/api/tools?limit=%d&%s", limit, query), nil)),
				" "); got != want {
				t.Errorf("limit %d, %s: got %s, want %s", limit, query, got, want)
			}
		}
	}
	for _, g := range decode[toolList](f.get("/api/tools?view=grouped"), 200).Tools {
		if wantSessions := map[string]int{"remote": 2}[g.SourceType]; g.Sessions != wantSessions {
			t.Errorf("group %+v", g)
		}
	}
}

func TestBrokenBuiltin(t *testing.T) {
	newFleet(t, setup{change: func(c *api.Config) {
		broken := *c
		broken.Builtins = own{{Name: "no name"}}
		if _, err := api.NewHandler(broken); err == nil || !strings.Contains(err.Error(), "no name") {
			t.Errorf("a tool nobody can call was taken: %v", err)
		}
	}})
}

// lame has one tool, which does not work in a sandbox.
type lame struct{ own }

func (lame) Tool(in policy.Context, name string) agent.Tool {
	if in == policy.Sandboxed {
		return foreign{name, "There is no engine."}
	}
	return foreign{name: name}
}

// tired has one tool, whose engine comes and goes.
type tired struct {
	own
	away *atomic.Value
}

func (t tired) Tool(_ policy.Context, name string) agent.Tool {
	return stub{foreign{name: name}, t.away}
}

// A list says of a tool whose engine has gone that it does not work, and why, and that it works again once the engine
// is back, also to those who have the list.
func TestRestingBuiltin(t *testing.T) {
	away := new(atomic.Value)
	f := newFleet(t, setup{change: func(c *api.Config) { c.Builtins = tired{own(tools("exec")), away} }})
	var tags []string
	for _, why := range []string{"", "The engine is gone.", ""} {
		away.Store(why)
		answer := f.get("/api/tools")
		tags = append(tags, answer.header.Get("ETag"))
		for _, path := range []string{"/api/tools", "/api/tools?view=grouped"} {
			rows := decode[toolList](f.get(path), 200).Tools
			if len(rows) != 1 || rows[0].Enabled != (why == "") || rows[0].Reason != why {
				t.Errorf("%s with %q: %+v", path, why, rows)
			}
		}
		for _, format := range []string{"openai", "anthropic", "mcp"} {
			text := string(f.get("/api/tools?format=" + format).body)
			if strings.Contains(text, "exec") != (why == "") {
				t.Errorf("%s with %q: %s", format, why, text)
			}
		}
	}
	if tags[0] == tags[1] || tags[0] != tags[2] {
		t.Errorf("tags %q", tags)
	}
}

// What cannot work where the asker is, is listed as not enabled, says why, and is not handed to a model.
func TestUnavailableBuiltin(t *testing.T) {
	for in, enabled := range map[policy.Context]bool{policy.Main: true, policy.Sandboxed: false} {
		f := newFleet(t, setup{change: func(c *api.Config) {
			c.Builtins, c.Auth = lame{own(tools("exec"))}, within(in)
		}})
		rows := decode[toolList](f.get("/api/tools"), 200).Tools
		if len(rows) != 1 || rows[0].Enabled != enabled || enabled == (rows[0].Reason == "There is no engine.") {
			t.Errorf("in %q: %+v", in, rows)
		}
		if n := len(decode[toolList](f.get("/api/tools?format=mcp"), 200).Tools); (n == 1) != enabled {
			t.Errorf("in %q a model gets %d tools", in, n)
		}
	}
}

// within takes everybody for an admin in a context.
type within policy.Context

func (w within) Authenticate(context.Context, *http.Request, string) (auth.Identity, error) {
	return auth.Identity{Tenant: registry.DefaultTenant, Admin: true, Context: string(w)}, nil
}

// upstream is tools of MCP servers beside the gateway's own.
type upstream struct {
	own
	set *agent.LiveSet
}

func (u upstream) Live() agent.LiveSet { return *u.set }

func (upstream) Owns(name string) bool {
	return strings.HasPrefix(name, "files__") && !strings.Contains(name, ".") // as package upstream says
}

func (upstream) Await(context.Context, string, time.Time) error { return nil }

// foreign is a tool of an MCP server.
type foreign struct{ name, down string }

func (f foreign) Spec() registry.ToolSpec {
	spec, _ := registry.ToolSpec{Name: f.name}.Normalize()
	return spec
}

func (foreign) Execute(context.Context, json.RawMessage) (registry.Result, error) {
	return registry.Result{}, nil
}

func (foreign) Source() string { return registry.SourceMCP + "files" }

func (f foreign) Unavailable() string { return f.down }

// Tools of MCP servers come and go in the lists, which say whose they are and why one cannot be called.
func TestToolsOfMCPServersAreListed(t *testing.T) {
	u := upstream{own(tools("time")), new(agent.LiveSet)}
	f := newFleet(t, setup{change: func(c *api.Config) { c.Builtins = u }})
	if n := len(decode[toolList](f.get("/api/tools"), 200).Tools); n != 1 {
		t.Errorf("%d tools before the server answers", n)
	}
	list, put := foreign{name: "files__list"}, foreign{"files__put", "it is down"}
	*u.set = agent.LiveSet{Version: 1, Tools: []agent.Tool{list, put}}
	for query, want := range map[string]string{
		"": "files__list files__put time", "?source_type=mcp": "files__list files__put", "?source_type=builtin": "time",
		"?view=grouped&source_type=mcp": "files__list files__put", "?source_type=remote": "",
		"?source_type=mcp&limit=1": "files__list",
	} {
		var names []string
		for _, row := range decode[toolList](f.get("/api/tools"+query), 200).Tools {
			names = append(names, row.Name)
			if row.Name == "files__put" && (row.Enabled || row.Reason != "it is down") {
				t.Errorf("%s: %+v", query, row)
			}
			mcp := strings.HasPrefix(row.Name, "files")
			flat := !strings.Contains(query, "grouped")
			if mcp != (row.SourceType == "mcp") || mcp && flat && row.Source != "mcp:files" {
				t.Errorf("%s: %+v", query, row)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	text := string(f.get("/api/tools?format=mcp").body)
	if strings.Contains(text, "files__put") || !strings.Contains(text, "files__list") {
		t.Errorf("for models: %s", text)
	}
	*u.set = agent.LiveSet{Version: 2, Tools: []agent.Tool{list, returning{put}}}
	if text := string(f.get("/api/tools?format=mcp").body); !strings.Contains(text, "files__put") {
		t.Errorf("for models, while its server restarts: %s", text)
	}
	for _, row := range decode[toolList](f.get("/api/tools"), 200).Tools {
		if row.Enabled == (row.Name == "files__put") {
			t.Errorf("while its server restarts: %+v", row)
		}
	}
}

// returning is a tool of a server that restarts.
type returning struct{ foreign }

func (returning) Returning() bool { return true }
