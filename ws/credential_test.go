package ws_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
)

// keyAuth takes every token for the name of an API key that names no user.
type keyAuth struct{}

func (keyAuth) Authenticate(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	return auth.Identity{Tenant: registry.DefaultTenant, Roles: auth.RoleDevice, Credential: "key:" + token}, nil
}

// endings ends the connections of an API key when a test says so. It implements ws.Live.
type endings struct {
	mu    sync.Mutex
	byKey map[string][]func(error)
}

func (e *endings) Watch(id *auth.Identity, end func(error)) (release func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byKey == nil {
		e.byKey = make(map[string][]func(error))
	}
	e.byKey[id.Credential] = append(e.byKey[id.Credential], end)
	return func() {}
}

func (e *endings) revoke(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, end := range e.byKey["key:"+key] {
		end(registry.Errorf(registry.CodeUnauthenticated, "revoked"))
	}
}

// watched returns how often somebody has begun to watch an API key.
func (e *endings) watched(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.byKey["key:"+key])
}

// heldBy connects a device with an API key and waits until it has the session.
func (g *gateway) heldBy(key, session, connect string) (d *living, token string) {
	g.t.Helper()
	d = g.dialAs(key, query("session_id", session)).live()
	d.send(connect)
	d.send(`{"type":"register_tools","tools":[{"name":"own"}]}`)
	token, _ = d.await("session_start")["resume_token"].(string)
	d.await("tools_registered")
	return d, token
}

// TestOnlyTheSameCredentialResumes: what a device was asked is answered on its next connection if that has the same
// credential, by its resume token or without one; never on one of another credential, whatever it knows.
func TestOnlyTheSameCredentialResumes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		key       string // of the next connection; the first has "old"
		withToken bool
		counts    bool
	}{{"old", false, true}, {"old", true, true}, {"new", false, false}, {"new", true, false}} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			t.Parallel()
			memory := memory.New(memory.Options{})
			keys := func(c *ws.Config) { c.Auth = keyAuth{} }
			a, b := newGatewayOn(t, memory, keys), newGatewayOn(t, memory, keys)
			const connect = `{"type":"connect","device_id":"d1","capabilities":["resume"]`
			first, token := a.heldBy("old", "mine", connect+`}`)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			call := registry.Call{ID: registry.NewCallID(), Args: registry.MustJSON(`{}`)}
			done := a.callContext(ctx, "mine", call, "own")
			id := first.await("tool_call_request")["id"].(string)
			must(t, first.conn.NetConn().Close())
			a.waitReleased()
			again := connect + `}`
			if tc.withToken {
				again = connect + `,"resume_token":"` + token + `"}`
			}
			next, _ := b.heldBy(tc.key, "mine", again)
			next.send(`{"type":"tool_result","id":"` + id + `","output":"answer"}`)
			if ack := next.await("result_acknowledged"); (ack["ignored"] != true) != tc.counts {
				t.Errorf("acknowledged with %v", ack)
			}
			if !tc.counts {
				leave() // rather than wait for as long as the device may take to come back
			}
			if o := await(t, done); (o.err == nil) != tc.counts {
				t.Errorf("call: %+v", o)
			}
		})
	}
}

// TestCallsEndWithTheirCredential: the calls of a device whose credential was revoked fail, although the device can
// resume, and no other connection answers them.
func TestCallsEndWithTheirCredential(t *testing.T) {
	t.Parallel()
	memory, revoked := memory.New(memory.Options{}), new(endings)
	keys := func(c *ws.Config) { c.Auth, c.Live = keyAuth{}, revoked }
	a, b := newGatewayOn(t, memory, keys), newGatewayOn(t, memory, keys)
	const connect = `{"type":"connect","device_id":"d1","capabilities":["resume"]}`
	first, _ := a.heldBy("old", "mine", connect)
	done := b.call("mine", "own", `{}`)
	id := first.await("tool_call_request")["id"].(string)
	revoked.revoke("old")
	first.closedWith(ws.CloseEnded)
	a.waitReleased()
	next, _ := b.heldBy("old", "mine", connect) // also one that was let in a moment before
	next.send(`{"type":"tool_result","id":"` + id + `","output":"forged"}`)
	if ack := next.await("result_acknowledged"); ack["ignored"] != true {
		t.Errorf("acknowledged with %v", ack)
	}
	if o := await(t, done); !errors.Is(o.err, registry.CodeConnectionLost) ||
		registry.AsError(o.err).Dispatched != registry.DispatchedYes {
		t.Errorf("call: %+v", o)
	}
}

// TestCallsThatWaitForADeviceEndWithItsCredential: calls that a pod keeps for a device that has lost its connection, or
// has moved to another pod, fail when the device's credential is revoked. Those of another device go on waiting.
func TestCallsThatWaitForADeviceEndWithItsCredential(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{false, true} {
		t.Run(fmt.Sprintf("moves %t", moves), func(t *testing.T) {
			t.Parallel()
			memory, revoked := memory.New(memory.Options{}), new(endings)
			keys := func(c *ws.Config) { c.Auth, c.Live = keyAuth{}, revoked }
			a, b := newGatewayOn(t, memory, keys), newGatewayOn(t, memory, keys)
			const connect = `{"type":"connect","capabilities":["resume"]}`
			calls, devices := make(map[string]<-chan outcome), make(map[string]*living)
			for _, key := range []string{"other", "old"} {
				devices[key], _ = a.heldBy(key, key, connect)
				calls[key] = a.call(key, "own", `{}`)
				devices[key].await("tool_call_request")
			}
			for _, key := range []string{"other", "old"} { // so the call of the other device waits no longer than this one
				must(t, devices[key].conn.NetConn().Close())
				a.waitReleased()
				eventually(t, "calls of "+key+" wait with its credential", func() bool { return revoked.watched(key) == 2 })
			}
			if moves {
				b.heldBy("old", "old", connect)
			}
			revoked.revoke("old")
			select {
			case o := <-calls["old"]:
				if !errors.Is(o.err, registry.CodeConnectionLost) {
					t.Errorf("call: %+v", o)
				}
			case o := <-calls["other"]:
				t.Errorf("a call of another device ended first: %+v", o)
			}
		})
	}
}
