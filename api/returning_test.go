package api_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// A call that waits for a device that is expected back can be found by its id, and cancelled, on every pod.
func TestCancelWhileADeviceIsAway(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"memory": "", "Redis": redistest.Single(t)} {
		t.Run(name, func(t *testing.T) {
			var invokers []*agent.Invoker
			f := newFleet(t, setup{pods: 2, redis: url,
				change: func(c *api.Config) { invokers = append(invokers, c.Invoker) }})
			f.connect(0, session("s1"), echo, tools("t")...).local.Leave(t.Context(), registry.ReturnWait)
			for pod, target := range []registry.Target{{}, {SessionID: "s1"}} {
				id, ended := registry.NewCallID(), make(chan error, 1)
				go func() {
					_, err := invokers[0].Invoke(t.Context(), agent.Request{
						CallID: id, Caller: auth.Identity{Tenant: registry.DefaultTenant, Admin: true}, Tool: "t",
						Target: target, Timeout: testTimeout, Endpoint: agent.EndpointAPI,
					})
					ended <- err
				}()
				type record struct {
					CallID     string              `json:"call_id"`
					State      registry.State      `json:"state"`
					Dispatched registry.Dispatched `json:"dispatched"`
				}
				path := "/api/calls/" + id
				f.eventually("the call is found", func() bool {
					r := f.send(request{pod: 1, path: path})
					return r.status == http.StatusOK && decode[record](r, 200).State == registry.StateAccepted
				})
				r := decode[record](f.send(request{pod: pod, method: http.MethodDelete, path: path}), 200)
				if r.State != registry.StateCancelled || r.CallID != id {
					t.Errorf("cancelled on pod %d: %+v", pod, r)
				}
				err := await(t, "the caller's answer", ended)
				e := registry.AsError(err)
				if !errors.Is(err, registry.CodeCancelled) || e.Dispatched != registry.DispatchedNo || e.CallID != id {
					t.Errorf("the caller of pod %d: %+v", pod, e)
				}
				if r := decode[record](f.send(request{pod: 1, path: path}), 200); r.State != registry.StateCancelled ||
					r.Dispatched != registry.DispatchedNo {
					t.Errorf("the record, cancelled on pod %d: %+v", pod, r)
				}
			}
			if n := f.pods[0].Stats().Returns; n != 0 {
				t.Errorf("%d calls wait still", n)
			}
		})
	}
}

// A call whose device is not back in time says that it may be made again, and when, over HTTP and MCP.
func TestCallOfADeviceThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...).local.Leave(t.Context(), registry.ReturnWait)
	for _, path := range []string{"/api/tools/t/call", "/api/sessions/s1/tools/t/call"} {
		wantRetry(f.send(request{method: http.MethodPost, path: path, body: `{"timeout_ms":100}`}))
	}
	const meta = `"_meta":{"farhand/timeout_ms":100`
	for name, got := range map[string]rpc{
		"2025-11-25": f.legacy(0, "/mcp", "tools/call", `"name":"t",`+meta+`}`),
		"2026-07-28": f.rpc(request{method: http.MethodPost, path: "/mcp", header: http.Header{
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"t"},
			"Accept": {"application/json, text/event-stream"},
		}, body: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t",` +
			strings.Replace(mcpMeta, `"_meta":{`, meta+",", 1) + `}}`}),
	} {
		if e := got.Error; e == nil || e.Data.Code != registry.CodeNotConnected || !e.Data.Retryable ||
			e.Data.RetryAfterMS <= 0 || e.Data.Dispatched != registry.DispatchedNo {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// wantRetry checks the answer of a call whose device is away.
func wantRetry(r reply) {
	r.Helper()
	p := wantProblem(r, http.StatusConflict, registry.CodeNotConnected)
	if !*p.Retryable || p.Dispatched != registry.DispatchedNo || r.header.Get("Retry-After") == "" {
		r.Errorf("%v %+v", r.header, p)
	}
}

// One that is not cancelled goes on when the device is there, and its record says how it ended.
func TestCallOfADeviceThatComesBack(t *testing.T) {
	t.Parallel()
	var invoker *agent.Invoker
	f := newFleet(t, setup{redis: redistest.Single(t), change: func(c *api.Config) { invoker = c.Invoker }})
	f.connect(0, session("s1"), echo, tools("t")...).local.Leave(t.Context(), registry.ReturnWait)
	id, ended := registry.NewCallID(), make(chan error, 1)
	go func() {
		out, err := invoker.Invoke(t.Context(), agent.Request{
			CallID: id, Caller: auth.Identity{Tenant: registry.DefaultTenant, Admin: true}, Tool: "t",
			Timeout: testTimeout, Endpoint: agent.EndpointAPI,
		})
		if err == nil && !out.Result.Success {
			err = errors.New(out.Result.Error)
		}
		ended <- err
	}()
	f.eventually("the call waits", func() bool { return f.pods[0].Stats().Returns == 1 })
	f.connect(0, session("s1"), echo, tools("t")...)
	f.must(await(t, "the answer", ended))
	f.eventually("the record", func() bool {
		r := f.get("/api/calls/" + id)
		return r.status == 200 && decode[struct {
			State     registry.State `json:"state"`
			SessionID string         `json:"session_id"`
		}](r, 200).State == registry.StateSucceeded
	})
}
