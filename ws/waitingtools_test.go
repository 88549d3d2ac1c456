package ws_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
)

// pairedAuth is boundAuth for devices whose credentials come from pairing.
type pairedAuth struct{ boundAuth }

func (a pairedAuth) Authenticate(ctx context.Context, r *http.Request, token string) (auth.Identity, error) {
	id, err := a.boundAuth.Authenticate(ctx, r, token)
	id.Credential = auth.CredentialName(registry.CredentialDevice, id.Device)
	return id, err
}

// offers returns the names of the tools that the session of a device offers to callers.
func (g *gateway) offers(device string) string {
	g.t.Helper()
	page, _, err := g.store.List(g.t.Context(), registry.Query{
		Tenant: registry.DefaultTenant, Target: registry.Target{DeviceID: device},
	})
	must(g.t, err)
	var names []string
	for _, e := range page {
		for _, spec := range e.Tools {
			names = append(names, spec.Name)
		}
	}
	return strings.Join(names, " ")
}

// registers sends definitions and returns how many tools the device then offers, and what became of the others.
func (d *device) registers(tools ...string) (offered float64, rejected string) {
	d.t.Helper()
	var defs []string
	for _, tool := range tools {
		name, description, _ := strings.Cut(tool, ":")
		defs = append(defs,
			fmt.Sprintf(`{"name":%q,"description":%q,"parameters":{"type":"object"}}`, name, description))
	}
	d.send(`{"type":"register_tools","tools":[` + strings.Join(defs, ",") + `]}`)
	answer := d.expect("tools_registered")
	return answer["registered"].(float64), fmt.Sprint(answer["rejected"])
}

// A paired device offers what was approved, as it was defined when it was approved. What else it registers waits, and
// is offered on the same connection as soon as somebody approves it, or taken away when somebody rejects it.
func TestToolsOfAPairedDeviceWaitForApproval(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	service, err := pairing.New(pairing.Config{Store: store})
	must(t, err)
	g := newGatewayOn(t, store, func(c *ws.Config) { c.Auth, c.Pairing = pairedAuth{}, service })
	_, err = store.CreateCredential(t.Context(), registry.Credential{
		Tenant: registry.DefaultTenant, ID: "phone", Kind: registry.CredentialDevice, DeviceID: "phone",
		Digest: strings.Repeat("0", 64), Approved: []registry.ApprovedTool{{Name: "echo"}},
	})
	must(t, err)
	d := g.dialAs("device/anna/phone", query("session_id", "s1"))
	d.expect("session_start")

	n, rejected := d.registers("echo:first", "torch:light")
	if n != 1 || !strings.Contains(rejected, "waits for approval") {
		t.Fatalf("%v offered, rejected %s", n, rejected)
	}
	if got := g.offers("phone"); got != "echo" {
		t.Fatalf("offered: %s", got)
	}

	admin := pairing.Approver{Identity: auth.Identity{Tenant: registry.DefaultTenant, Admin: true}}
	decide := func(approve []registry.ApprovedTool, reject ...string) map[string]any {
		t.Helper()
		_, err := service.ApproveTools(t.Context(), admin, "phone", approve, reject)
		must(t, err)
		g.server.CredentialsChanged([]registry.CredentialChange{
			{Tenant: registry.DefaultTenant, Kind: registry.ChangeCredential, ID: "another"},
			{Tenant: registry.DefaultTenant, Kind: registry.ChangeUser, ID: "phone"},
			{Tenant: registry.DefaultTenant, Kind: registry.ChangeCredential, ID: "phone"},
		})
		return d.expect("tools_registered")
	}
	waiting, err := service.Device(t.Context(), admin, "phone")
	must(t, err)
	torch := registry.ApprovedTool{Name: "torch", Hash: waiting.Waiting[0].Hash()}
	if told := decide([]registry.ApprovedTool{torch}); told["registered"] != 2.0 {
		t.Errorf("after the approval: %v", told)
	}
	if got := g.offers("phone"); got != "echo torch" && got != "torch echo" {
		t.Errorf("after the approval: %s", got)
	}

	if n, rejected := d.registers("echo:second"); n != 1 || !strings.Contains(rejected, "another definition") {
		t.Errorf("%v offered, rejected %s", n, rejected)
	}
	if got := g.offers("phone"); got != "torch" {
		t.Errorf("what is offered has another definition than what was approved: %s", got)
	}
	if told := decide(nil, "torch"); told["registered"] != 0.0 {
		t.Errorf("after the rejection: %v", told)
	}
	if n, rejected := d.registers("torch:light"); n != 0 || !strings.Contains(rejected, "rejected by an approver") {
		t.Errorf("%v offered, rejected %s", n, rejected)
	}
	d.alive()
}

// slowApprovals tells of each read of approvals, and holds it up.
type slowApprovals struct {
	ws.Pairing
	begun, read chan struct{}
}

func (s *slowApprovals) Approvals(ctx context.Context, id auth.Identity) (pairing.Approvals, error) {
	s.begun <- struct{}{}
	<-s.read
	return s.Pairing.Approvals(ctx, id)
}

// One change of a device's credential is one read for all its connections, and changes that come meanwhile are one
// more: an approver who renames devices does not have the pod read for each of a thousand connections.
func TestAChangeIsReadOnce(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	service, err := pairing.New(pairing.Config{Store: store})
	must(t, err)
	slow := &slowApprovals{Pairing: service, begun: make(chan struct{}), read: make(chan struct{})}
	g := newGatewayOn(t, store, func(c *ws.Config) { c.Auth, c.Pairing = pairedAuth{}, slow })
	_, err = store.CreateCredential(t.Context(), registry.Credential{
		Tenant: registry.DefaultTenant, ID: "phone", Kind: registry.CredentialDevice, DeviceID: "phone",
		Digest: strings.Repeat("0", 64),
	})
	must(t, err)
	var devices []*device
	for i := range 10 {
		d := g.dialAs("device/anna/phone", query("session_id", fmt.Sprint("s", i)))
		d.expect("session_start")
		if n, rejected := d.registers("torch:light"); n != 0 {
			t.Fatalf("%v offered, rejected %s", n, rejected)
		}
		devices = append(devices, d)
	}
	change := func() {
		g.server.CredentialsChanged([]registry.CredentialChange{
			{Tenant: registry.DefaultTenant, Kind: registry.ChangeCredential, ID: "phone"},
		})
	}
	change()
	<-slow.begun
	for range 20 {
		change()
	}
	slow.read <- struct{}{}
	<-slow.begun // for those 20
	select {
	case slow.read <- struct{}{}:
	case <-slow.begun:
		t.Error("there is more than one read at a time")
	}
	admin := pairing.Approver{Identity: auth.Identity{Tenant: registry.DefaultTenant, Admin: true}}
	waiting, err := service.Device(t.Context(), admin, "phone")
	must(t, err)
	torch := registry.ApprovedTool{Name: "torch", Hash: waiting.Waiting[0].Hash()}
	_, err = service.ApproveTools(t.Context(), admin, "phone", []registry.ApprovedTool{torch}, nil)
	must(t, err)
	close(slow.read)
	go func() { // for the change, and for each connection that has other tools then
		for range 11 {
			<-slow.begun
		}
	}()
	change()
	for i, d := range devices {
		if told := d.expect("tools_registered"); told["registered"] != 1.0 {
			t.Errorf("connection %d: %v", i, told)
		}
	}
}
