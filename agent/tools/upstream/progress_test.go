package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/registry"
)

// reports is a Router that keeps what the calls of this pod report.
type reports struct {
	agent.Router
	told []string
}

func (r *reports) RunLocal(
	ctx context.Context, _ registry.Call,
	run func(context.Context, func(registry.Report)) (registry.Result, error),
) (registry.Result, error) {
	return run(ctx, func(p registry.Report) {
		text := p.Message + p.Chunk
		if p.Progress != nil {
			text += fmt.Sprintf(" %g", *p.Progress)
		}
		if p.Total != nil {
			text += fmt.Sprintf(" of %g", *p.Total)
		}
		r.told = append(r.told, text)
	})
}

// callLog keeps nothing.
type callLog struct{ agent.CallLog }

func (callLog) AmendWith(registry.Amend, func(string) bool)     {}
func (callLog) Finish(*registry.Record, registry.Result, error) {}

// reported calls a tool as every API does, and returns what it reports.
func reported(t *testing.T, tool agent.Tool) []string {
	t.Helper()
	rules, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	r := &reports{}
	invoker := agent.NewInvoker(agent.Config{Router: r, CallLog: callLog{}, Policy: rules})
	out, err := invoker.Invoke(t.Context(), agent.Request{
		Caller: auth.Identity{Tenant: registry.DefaultTenant, Admin: true}, Tool: tool.Spec().Name, Local: tool,
	})
	if err != nil || !out.Result.Success {
		t.Fatalf("%+v, %v", out, err)
	}
	return r.told
}

// Every report of a call is told before its answer, with its numbers: also the last one, which comes together with it.
func TestReportsComeBeforeTheAnswer(t *testing.T) {
	server := newServer()
	mcp.AddTool(server, &mcp.Tool{Name: "steps"},
		func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			token := req.Params.GetProgressToken()
			for i, total := range []float64{0, 4, 4} {
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: token, Message: fmt.Sprint("step ", i), Progress: float64(i) + 0.5, Total: total,
				})
			}
			return &mcp.CallToolResult{}, nil, nil
		})
	for name, s := range map[string]upstream.Server{
		"with sessions": {Name: "far", URL: streamable(t, server, false)},
		"stateless":     {Name: "far", URL: streamable(t, server, true)},
	} {
		t.Run(name, func(t *testing.T) {
			tool := until(t, open(t, nil, s), has("far__steps"))["far__steps"]
			for range 20 {
				want := "[step 0 0.5 step 1 1.5 of 4 step 2 2.5 of 4]"
				if got := fmt.Sprint(reported(t, tool)); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
		})
	}
	t.Run("a program", func(t *testing.T) {
		tool := until(t, open(t, withHost(t), stdio(t, "good")), has("prog__work"))["prog__work"]
		for range 20 {
			if got := fmt.Sprint(reported(t, tool)); got != "[half 1 of 2]" {
				t.Error(got)
			}
		}
	})
}

// Of reports that come too fast some are dropped, but never the last.
func TestLastOfTooManyReports(t *testing.T) {
	url := serve(t, evil{call: func(w http.ResponseWriter, _ *http.Request, m message) {
		send := events(w)
		for i := range 500 {
			_ = send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications\/progress","params":`+
				`{"progressToken":%s,"progress":%d}}`, m.Params.Meta.Token, i))
		}
		_ = send(fmt.Sprintf(fine, m.ID))
	}})
	tool := until(t, open(t, nil, upstream.Server{Name: "far", URL: url}), has("far__do"))["far__do"]
	told := reported(t, tool)
	if n := len(told); n > 100 || n == 0 || told[n-1] != " 499" {
		t.Errorf("%d reports: %q", n, told)
	}
}

// Tools that run as a task only are not offered, in whatever form the list comes.
func TestToolsThatRequireATask(t *testing.T) {
	const list = `{"tools":[{"name":"slow","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}},` +
		`{"name":"may","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}},` + oneTool + `]}`
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request, m message){
		"JSON": func(w http.ResponseWriter, _ *http.Request, m message) { reply(w, m, list) },
		"a stream": func(w http.ResponseWriter, _ *http.Request, m message) {
			_ = events(w)(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, list))
		},
	} {
		t.Run(name, func(t *testing.T) {
			servers := open(t, nil, upstream.Server{Name: "far", URL: serve(t, evil{list: answer})})
			tools := until(t, servers, has("far__do"))
			if tools["far__slow"] != nil || tools["far__may"] == nil {
				t.Errorf("offered: %v", tools)
			}
			if notes := fmt.Sprint(servers.Status()[0].Notes); notes != `["slow": it runs only as an MCP task, `+
				`which the gateway does not start]` {
				t.Error(notes)
			}
		})
	}
}
