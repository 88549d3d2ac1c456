package ws_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
	"github.com/farhand/farhand/ws/node/nodetest"
)

// connectHost connects a node with commands, of which as many become tools.
func (g *gateway) connectHost(tools int, connect nodetest.Connect, commands ...string) *nodePeer {
	g.t.Helper()
	key := newKey(g.t)
	p, nonce := g.dialNode(key)
	connect.Key, connect.Nonce, connect.Commands = key, nonce, commands
	connect.Auth = map[string]string{"token": testToken}
	p.send(string(connect.Frame()))
	p.response("1:connect")
	eventually(g.t, "the node offers its commands", func() bool {
		local := g.pod.Hub.Get(registry.Key{Tenant: registry.DefaultTenant, Session: key.ID})
		return local != nil && len(local.Tools()) == tools
	})
	return p
}

// A node whose rules ask gives the call back, and runs it when a person has decided, by the plan that it made.
func TestNodeRunsByItsPlan(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	p := g.connectHost(1, nodetest.Connect{Platform: "linux", Family: "Linux"}, "system.run", "system.run.prepare")
	const plan = `{"argv":["/bin/sh","-lc","id"],"cwd":null,"commandText":"/bin/sh -lc id","policySnapshot":{}}`
	prepared := `"ok":true,"payload":{"plan":` + plan + `,"execPolicy":{"security":"full","ask":"always"}}`
	for _, approved := range []bool{false, true} {
		done := g.callContext(context.Background(), p.key.ID, registry.Call{
			ID: registry.NewCallID(), Args: registry.MustJSON(`{"command":"id"}`), Approved: approved,
		}, "run")
		const denied = `"ok":false,"error":{"code":"SYSTEM_RUN_DENIED","message":"SYSTEM_RUN_DENIED: approval required"}`
		id, invoke := p.invoked("system.run")
		if strings.Contains(fmt.Sprint(invoke["paramsJSON"]), "approved") {
			t.Errorf("approved %t: %v", approved, invoke["paramsJSON"])
		}
		ack := p.response(p.result(id, denied))
		if !approved {
			if o := await(t, done); ack["ok"] != true || !errors.Is(o.err, registry.CodeAsksPerson) ||
				registry.AsError(o.err).Dispatched != registry.DispatchedNo {
				t.Errorf("%v, %+v", ack, o)
			}
			continue
		}
		id, _ = p.invoked("system.run.prepare")
		p.response(p.result(id, prepared))
		id, invoke = p.invoked("system.run")
		var params struct {
			Approved         bool
			ApprovalDecision string
			SystemRunPlan    json.RawMessage
		}
		must(t, json.Unmarshal([]byte(fmt.Sprint(invoke["paramsJSON"])), &params))
		if !params.Approved || params.ApprovalDecision != "allow-once" || string(params.SystemRunPlan) != plan {
			t.Errorf("%v", invoke["paramsJSON"])
		}
		p.response(p.result(id, `"ok":true,"payload":{"exitCode":0,"stdout":"root","stderr":"","timedOut":false}`))
		if o := await(t, done); o.err != nil || !o.result.Success || !strings.Contains(o.result.Output, "root") {
			t.Errorf("%+v", o)
		}
	}
}

// A picture that is too large for a result becomes a file, or is described if the gateway stores none.
func TestNodeLargePictures(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte{0xff, 0xd8, 0}, 1<<19)
	for _, stores := range []bool{true, false} {
		var files *blobs.Service
		g := newGateway(t, func(c *ws.Config) {
			if !stores {
				return
			}
			var err error
			files, err = blobs.Open(t.Context(), blobs.Config{URL: "file://" + t.TempDir(), Store: memory.New(memory.Options{})})
			must(t, err)
			t.Cleanup(func() { must(t, files.Close()) })
			c.Uploads = files
		})
		p := g.connectHost(1, nodetest.Connect{Platform: "ios"}, "camera.snap")
		done := g.call(p.key.ID, "camera_snap", `{}`)
		id, _ := p.invoked("camera.snap")
		p.response(p.result(id, `"ok":true,"payload":{"format":"jpg","base64":"`+
			base64.StdEncoding.EncodeToString(large)+`","width":1,"height":1}`))
		o := await(t, done)
		if o.err != nil || !o.result.Success || len(o.result.Parts) != 1 || o.result.Parts[0].Data != nil ||
			o.result.Parts[0].Size != int64(len(large)) {
			t.Fatalf("%v, %q, %d parts", o.err, o.result.Output, len(o.result.Parts))
		}
		url := o.result.Parts[0].URL
		if !stores {
			if url != "" || !strings.Contains(o.result.Output, "FARHAND_BLOB_URL") {
				t.Errorf("%q %q", url, o.result.Output)
			}
			continue
		}
		b, err := files.Find(t.Context(), strings.TrimPrefix(url, registry.PathBlob))
		must(t, err)
		r, err := files.Open(t.Context(), b)
		must(t, err)
		stored, err := io.ReadAll(r)
		must(t, errors.Join(err, r.Close()))
		if !bytes.Equal(stored, large) {
			t.Errorf("the file has %d bytes", len(stored))
		}
	}
}

// What the operating system of a node permits is visible.
func TestNodePermissions(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	p := g.connectHost(1, nodetest.Connect{
		Platform: "macos", Permissions: map[string]bool{"screenRecording": false, "camera": true},
	}, "screen.snapshot")
	s := g.pod.Hub.Get(registry.Key{Tenant: registry.DefaultTenant, Session: p.key.ID}).Session()
	if s.Labels["permission/screenRecording"] != "denied" || s.Labels["permission/camera"] != "granted" {
		t.Errorf("%v", s.Labels)
	}
}
