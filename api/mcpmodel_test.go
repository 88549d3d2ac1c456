package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// TestMCPAsksAsAModel: a person is asked about a call over MCP as about any other call of a model, also if its caller
// could approve it and would not be asked over HTTP. Who has the one token is asked in the form of the client. The key
// of a person's program calls as it does over HTTP.
func TestMCPAsksAsAModel(t *testing.T) {
	f, d := withSnap(t, false, "")
	for who, asks := range map[string]bool{"ann": true, token: true, "boss": true, "program": false} {
		decode[answer](<-f.call(who, "/api/tools/snap/call", `{}`, 0), 200) // nobody is asked over HTTP
		before := len(d.calls)
		const hers = "/mcp/users/ann" // where she has one phone, for those who see others' also
		got := f.ask(ask{who: who, path: hers, params: snapIt, caps: capsForm})
		if !asks {
			if res := got.tool(t); res.IsError || len(d.calls) != before+1 {
				t.Errorf("%s: %+v", who, res)
			}
			continue
		}
		q := got.question(t)
		a := f.waiting("anne", 1)[0]
		if !a.Requester.Model || a.Rule != "default:confirm-model" || len(d.calls) != before {
			t.Errorf("%s: %+v", who, a)
		}
		decides := q.InputRequests["approval"].Params.RequestedSchema.Properties["decision"] != nil
		if decides != (who == token) {
			t.Errorf("%s decides in the form: %t", who, decides)
		}
		if !decides { // another approver does
			f.decide("anne", a.ID, allowOnce, 1).want(200)
		}
		again := retry(snapIt, q.RequestState, allows)
		res := f.ask(ask{who: who, path: hers, params: again, caps: capsForm, pod: 1}).tool(t)
		if res.IsError || len(d.calls) != before+1 {
			t.Errorf("%s: %+v", who, res)
		}
	}
}

// TestMCPTasksAreAModels: a call that became a task stays a model's when it starts at last, on whatever pod.
func TestMCPTasksAreAModels(t *testing.T) {
	f, d := withSnap(t, false, "")
	begun := f.ask(ask{who: "ann", params: snapIt, caps: capsTasks}).task(t)
	a := f.waiting("anne", 1)[0]
	if !a.Requester.Model || a.Mode != registry.ModeAsync {
		t.Errorf("%+v", a)
	}
	f.decide("anne", a.ID, allowOnce, 1).want(200)
	if is := f.ended("ann", begun.TaskID, 1); is.Status != "completed" || len(d.calls) != 1 {
		t.Errorf("%+v", is)
	}
}

// TestMCPModelsInEveryScope: what a model may not call is neither listed nor found nor called in any scope, under any
// name, in any revision; nothing that a request says of itself changes that.
func TestMCPModelsInEveryScope(t *testing.T) {
	f := newFleet(t, setup{change: withDeciders, policyFile: "version: 1\ntools:\n" +
		"  - {id: no-models, names: door, forbid: asked by a model}\n" +
		"  - {id: closed, names: vault, forbid: over MCP}\n"})
	d := f.connect(0, ofAnn("phone"), echo, tools("door", "lamp", "vault")...)
	for who, want := range map[string]string{"agent": "lamp", "program": "door lamp"} {
		for _, path := range []string{"/mcp", "/mcp/users/ann", "/mcp/sessions/phone"} {
			list := f.ask(ask{who: who, path: path, method: "tools/list", params: `"x":0`, caps: `{}`}).names(t)
			if got := strings.Join(list, " "); got != want {
				t.Errorf("%s at %s: listed %s", who, path, got)
			}
			found := f.ask(ask{
				who: who, path: path + "?tools=search", params: `"name":"search_tools","arguments":{}`, caps: `{}`,
			}).tool(t).Content[0].Text
			for tool, mark := range map[string]string{"door": `"name":"door"`, "vault": `"name":"vault"`} {
				if strings.Contains(found, mark) != strings.Contains(want, tool) {
					t.Errorf("%s at %s: finds %s", who, path, found)
				}
				for _, a := range []ask{
					{path: path, params: `"name":"` + tool + `"`},
					{path: path, params: `"name":"` + tool + `","model":false,"person":true`},
					{path: path + "?tools=search", params: `"name":"call_tool","arguments":{"name":"` + tool + `"}`},
				} {
					a.who, a.caps = who, `{}`
					got := f.ask(a)
					if runs := strings.Contains(want, tool); runs != (got.Error == nil) ||
						!runs && got.Error.Data.Code != registry.CodePolicyDenied {
						t.Errorf("%s at %s: %s: %s %+v", who, a.path, a.params, got.Result, got.Error)
					}
				}
			}
			legacy := f.earlier(who, path, `"method":"tools/call","params":{"name":"door"}`)
			if (legacy.Error == nil) != (who == "program") {
				t.Errorf("%s at %s, of an earlier revision: %+v", who, path, legacy.Error)
			}
		}
		var read struct{ Contents []struct{ Text string } }
		f.earlier(who, "/mcp", `"method":"resources/read","params":{"uri":"farhand://sessions"}`).into(t, &read)
		_, disabled, _ := strings.Cut(read.Contents[0].Text, `"tools_disabled":`)
		for _, tool := range []string{"door", "lamp", "vault"} {
			if strings.Contains(disabled, `"name":"`+tool+`"`) == strings.Contains(want, tool) {
				t.Errorf("%s reads %s", who, read.Contents[0].Text)
			}
		}
		f.earlier(who, "/mcp", `"method":"resources/read","params":{"uri":"farhand://sessions/phone"}`).into(t, &read)
		var shown struct {
			Tools []struct {
				Name    string
				Enabled bool
			}
		}
		f.must(json.Unmarshal([]byte(read.Contents[0].Text), &shown))
		for _, tool := range shown.Tools {
			if tool.Enabled != strings.Contains(want, tool.Name) {
				t.Errorf("%s reads %+v", who, shown)
			}
		}
	}
	for _, tool := range []string{"door", "vault"} {
		decode[answer](<-f.call("agent", "/api/tools/"+tool+"/call", `{}`, 0), 200)
	}
	if n := len(d.calls); n == 0 {
		t.Error("nothing ran")
	}
}

// earlier sends a request of an earlier revision.
func (f *fleet) earlier(who, path, asks string) rpc {
	f.Helper()
	return f.rpc(request{
		method: http.MethodPost, path: path, header: http.Header{"Authorization": {"Bearer " + who}},
		body: `{"jsonrpc":"2.0","id":1,` + asks + `}`,
	})
}
