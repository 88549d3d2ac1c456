package pairing_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

const sharedToken = "a-shared-token-of-the-fleet"

// newNodes returns a service behind the authenticators of a gateway.
func newNodes(t *testing.T, change ...func(*pairing.Config)) *fixture {
	t.Helper()
	f := newFixture(t, change...)
	live := auth.NewLive(auth.LiveConfig{Store: f.store, Poll: 5 * time.Millisecond})
	f.must(live.Start(t.Context()))
	t.Cleanup(live.Close)
	var sources auth.Sources
	f.Serve(pairing.NodeConfig{
		Auth: auth.Chain{
			Keys:      auth.NewKeys(auth.KeysConfig{Store: f.store, Live: live, Prove: f.Prove}),
			Otherwise: auth.NewStaticToken(sharedToken), Live: live,
		},
		Refusals: auth.NewRefusals(sources, slog.New(slog.DiscardHandler)), Sources: sources,
	})
	return f
}

// node returns a node with a key of its own.
func (f *fixture) node(change ...func(*pairing.Node)) pairing.Node {
	f.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	f.must(err)
	n := pairing.Node{
		PublicKey: public, DeviceID: pairing.NodeID(public), DeviceName: "Desk", Platform: "linux",
		Client: "node-host 2026.9.6", Tools: []string{"run", "camera_snap"},
	}
	for _, c := range change {
		c(&n)
	}
	return n
}

// from returns a request of a source.
func from(n byte) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/ws/node", nil)
	r.RemoteAddr = fmt.Sprintf("10.0.1.%d:1000", n)
	return r
}

func (f *fixture) admit(n pairing.Node) (pairing.AdmittedNode, error) {
	return f.AdmitNode(f.Context(), from(1), n)
}

// pending checks that the node waits, and returns its request.
func (f *fixture) pending(n pairing.Node) *pairing.NodePending {
	f.Helper()
	_, err := f.admit(n)
	var p *pairing.NodePending
	if !errors.As(err, &p) {
		f.Fatalf("the node does not wait: %v", err)
	}
	return p
}

// refused checks why the node is refused.
func (f *fixture) refused(what string, n pairing.Node, want pairing.NodeReason) {
	f.Helper()
	a, err := f.admit(n)
	var refused *pairing.NodeRefused
	if !errors.As(err, &refused) || refused.Reason != want {
		f.Errorf("%s: %+v, %v, want refused for %q", what, a, err, want)
	}
}

// paired pairs a node by its code and returns it with its credential.
func (f *fixture) paired(n pairing.Node) pairing.Node {
	f.Helper()
	_, err := f.Decide(f.Context(), admin(), "", f.pending(n).Code, pairing.Decision{Approve: true})
	f.must(err)
	admitted, err := f.admit(n)
	f.must(err)
	n.DeviceToken = admitted.Token
	return n
}

func TestNodeIsPairedByItsCode(t *testing.T) {
	f := newNodes(t)
	n := f.node()
	first := f.pending(n)
	if again := f.pending(n); again.ID != first.ID || again.Code != first.Code {
		t.Errorf("asked again: %+v, before %+v", again, first)
	}
	if got, err := f.Collect(t.Context(), "fhr_"+strings.Repeat("a", 43)); err == nil {
		t.Errorf("collected by a secret: %+v", got)
	}
	if _, err := f.Find(t.Context(), admin(), first.ID); err != nil {
		t.Errorf("by the id, which the node host shows: %v", err)
	}
	v, err := f.Find(t.Context(), admin(), first.Code)
	f.must(err)
	if v.DeviceID != n.DeviceID || v.Client != n.Client || len(v.Tools) != 2 {
		t.Errorf("approvers see %+v", v)
	}
	_, err = f.Decide(t.Context(), admin(), first.ID, first.Code, pairing.Decision{Approve: true})
	f.must(err)

	got, err := f.admit(n)
	f.must(err)
	if got.Token == "" || got.Identity.Device != n.DeviceID || !pairing.IsPaired(got.Identity) ||
		got.Identity.Tenant != tenant || got.Identity.Use == nil {
		t.Fatalf("admitted: %+v", got)
	}
	c, err := f.store.CredentialByDigest(t.Context(), auth.SecretDigest(got.Token))
	f.must(err)
	if !pairing.IsNode(c) || len(c.Approved) != 2 || c.Name != "Desk" {
		t.Errorf("stored: %+v", c)
	}
	n.DeviceToken = got.Token
	if got, err = f.admit(n); err != nil || got.Token != "" {
		t.Errorf("with its credential: %+v, %v", got, err)
	}
	n.DeviceToken, n.Token = "", n.DeviceToken
	if got, err = f.admit(n); err != nil || got.Token != "" {
		t.Errorf("with its credential as the token: %+v, %v", got, err)
	}
}

func TestNodeCredentialIsForItsKeyOnly(t *testing.T) {
	f := newNodes(t)
	n, other := f.paired(f.node()), f.node()
	other.DeviceToken = n.DeviceToken
	f.refused("another key", other, pairing.NodeDeviceToken)
	lied := n
	lied.PublicKey = other.PublicKey
	_, err := f.admit(lied)
	f.want("a device id of another key", err, registry.CodeInvalidRequest)

	native, _ := f.pair(pairing.Request{DeviceID: other.DeviceID})
	_, secret, err := rotated(f, native)
	f.must(err)
	other.DeviceToken = secret
	f.refused("a credential without a key", other, pairing.NodeDeviceToken)

	n.DeviceToken = auth.NewSecret(registry.CredentialDevice)
	f.refused("an unknown credential", n, pairing.NodeDeviceToken)
	n.DeviceToken, n.Token = "", sharedToken
	f.refused("the shared token of a paired node", n, pairing.NodeOwnToken)
}

func rotated(f *fixture, c registry.Credential) (registry.Credential, string, error) {
	secret, c, err := auth.Issuer{Store: f.store}.RotateDevice(f.Context(), c, 0, "")
	return c, secret, err
}

func TestNodeWithAToken(t *testing.T) {
	f := newNodes(t)
	key := func(r auth.KeyRequest) string {
		t.Helper()
		secret, _, err := auth.Issuer{Store: f.store}.CreateFirstKey(t.Context(), r)
		f.must(err)
		return secret
	}
	n := f.node()
	n.Token = sharedToken
	if got, err := f.admit(n); err != nil || got.Token != "" || !got.Identity.Admin {
		t.Errorf("the shared token: %+v, %v", got, err)
	}
	n.DeviceToken = "of-another-gateway"
	if _, err := f.admit(n); err != nil {
		t.Errorf("also with a credential of another gateway: %v", err)
	}
	n.DeviceToken = ""
	n.Token = key(auth.KeyRequest{Roles: []string{auth.NameDevice}, User: "ann"})
	if got, err := f.admit(n); err != nil || got.Identity.User != "ann" {
		t.Errorf("a key of a user: %+v, %v", got, err)
	}
	n.Token = key(auth.KeyRequest{Roles: []string{auth.NameCaller}})
	f.refused("a caller's key", n, pairing.NodeRole)
	n.Token = key(auth.KeyRequest{Roles: []string{auth.NameDevice}, Device: "another"})
	f.refused("a key bound to another device", n, pairing.NodeToken)
	n.Token = key(auth.KeyRequest{Roles: []string{auth.NameDevice}, Device: n.DeviceID})
	if _, err := f.admit(n); err != nil {
		t.Errorf("a key bound to the node: %v", err)
	}
	n.Token = "wrong"
	f.refused("a wrong token", n, pairing.NodeToken)
	for range 200 {
		_, _ = f.admit(n)
	}
	f.refused("many wrong tokens", n, pairing.NodeLimited)
}

func TestNodeRequestIsSupersededByAnother(t *testing.T) {
	f := newNodes(t)
	n := f.node()
	first := f.pending(n)
	n.Tools = append(n.Tools, "sms_send")
	second := f.pending(n)
	if second.ID == first.ID || second.Code == first.Code {
		t.Fatalf("superseded: %+v by %+v", first, second)
	}
	_, err := f.Decide(t.Context(), admin(), first.ID, first.Code, pairing.Decision{Approve: true})
	f.want("the earlier request", err, registry.CodeNotFound)
	_, err = f.Decide(t.Context(), admin(), "", second.Code, pairing.Decision{Approve: true})
	f.must(err)
}

func TestRejectedNodeDoesNotFillTheQueue(t *testing.T) {
	f := newNodes(t, func(c *pairing.Config) { c.Mode = pairing.ModeOpen })
	n := f.node()
	_, err := f.Decide(t.Context(), admin(), "", f.pending(n).Code, pairing.Decision{})
	f.must(err)
	n.DeviceName = "Another name"
	f.refused("a rejected node", n, pairing.NodeRejected)
	if waiting, err := f.Waiting(t.Context(), admin()); err != nil || len(waiting) != 0 {
		t.Errorf("waiting: %+v, %v", waiting, err)
	}
	made, err := f.MakeSetup(t.Context(), admin(), pairing.SetupRequest{})
	f.must(err)
	n.BootstrapToken = made.Secret
	if _, err := f.admit(n); err != nil {
		t.Errorf("a setup code after all: %v", err)
	}
}

func TestNodesOfOneSourceHaveFewPlaces(t *testing.T) {
	f := newNodes(t)
	var err error
	for range registry.MaxPairingsOfSource {
		_, err = f.admit(f.node())
	}
	if waits := (*pairing.NodePending)(nil); !errors.As(err, &waits) {
		t.Fatal(err)
	}
	_, err = f.admit(f.node())
	f.want("one more node of the source", err, registry.CodeRateLimited)
}

func TestNodeWhosePairingIsOff(t *testing.T) {
	f := newNodes(t, func(c *pairing.Config) { c.Mode = pairing.ModeOff })
	f.refused("without a token", f.node(), pairing.NodeUnknown)
	f.refused("a setup code", f.node(func(n *pairing.Node) { n.BootstrapToken = "fhs_x" }), pairing.NodeSetup)
	_, err := f.MakeSetup(t.Context(), admin(), pairing.SetupRequest{})
	f.want("make a setup code", err, registry.CodeNotFound)
	if _, err := f.admit(f.node(func(n *pairing.Node) { n.Token = sharedToken })); err != nil {
		t.Errorf("a token: %v", err)
	}
}

// TestNodeThatLostItsCredential: its connection ended before it got the credential.
func TestNodeThatLostItsCredential(t *testing.T) {
	f := newNodes(t)
	n := f.paired(f.node())
	lost := n.DeviceToken
	n.DeviceToken = ""
	again, err := f.admit(n)
	f.must(err)
	if again.Token == "" || again.Token == lost {
		t.Fatalf("given again: %+v", again)
	}
	f.must(f.Revoke(t.Context(), admin(), n.DeviceID))
	f.pending(n)
}

func TestNodeGetsANewSecretOnItsNextConnection(t *testing.T) {
	f := newNodes(t)
	n := f.paired(f.node())
	_, err := f.Renew(t.Context(), admin(), n.DeviceID)
	f.must(err)
	second, err := f.admit(n)
	f.must(err)
	if second.Token == "" || second.Token == n.DeviceToken {
		t.Fatalf("no new secret: %+v", second)
	}
	third, err := f.admit(n) // it did not get the second
	f.must(err)
	if third.Token == "" || third.Token == second.Token {
		t.Fatalf("no other secret: %+v", third)
	}
	former := n
	n.DeviceToken = third.Token
	if got, err := f.admit(n); err != nil || got.Token != "" {
		t.Fatalf("with the new secret: %+v, %v", got, err)
	}
	f.eventually("the former secret ends with the use of the new one", func() bool {
		_, err := f.admit(former)
		var refused *pairing.NodeRefused
		return errors.As(err, &refused) && refused.Reason == pairing.NodeDeviceToken
	})
	if got, err := f.admit(n); err != nil || got.Token != "" {
		t.Errorf("and the new one stays: %+v, %v", got, err)
	}
}

// A leaked secret ends whether or not its node comes back, and gets the node another until then.
func TestNodeGetsANewSecretInPlaceOfALeakedOne(t *testing.T) {
	f := newNodes(t)
	n := f.paired(f.node())
	before := time.Now()
	d, err := f.RenewLeaked(t.Context(), admin(), n.DeviceID)
	f.must(err)
	if life := d.FormerEnds.Sub(before); d.Former != auth.SecretDigest(n.DeviceToken) || life > 11*time.Minute {
		t.Errorf("the leaked secret works for %v: %+v", life, d.Credential)
	}
	again, err := f.RenewLeaked(t.Context(), admin(), n.DeviceID)
	f.must(err)
	if again.Former != d.Former || !again.FormerEnds.Equal(d.FormerEnds) {
		t.Errorf("asked again: %+v, before %+v", again.Credential, d.Credential)
	}
	second, err := f.admit(n)
	f.must(err)
	if second.Token == "" {
		t.Fatal("no new secret")
	}
	c, err := f.store.Credential(t.Context(), tenant, d.ID)
	f.must(err)
	if !c.FormerEnds.Equal(d.FormerEnds) || c.Renew {
		t.Errorf("the node's connection prolongs it: %v, before %v; %+v", c.FormerEnds, d.FormerEnds, c)
	}
	leaked := n
	n.DeviceToken = second.Token
	if got, err := f.admit(n); err != nil || got.Token != "" {
		t.Fatalf("with the new secret: %+v, %v", got, err)
	}
	f.eventually("the leaked secret ends with the use of the new one", func() bool {
		_, err := f.admit(leaked)
		var refused *pairing.NodeRefused
		return errors.As(err, &refused) && refused.Reason == pairing.NodeDeviceToken
	})
}

func (f *fixture) eventually(what string, is func() bool) {
	f.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatal("not: " + what)
		}
	}
}

func TestSetupCodePairsOneNode(t *testing.T) {
	f := newNodes(t)
	made, err := f.MakeSetup(t.Context(), approver("ann"), pairing.SetupRequest{Name: "Ann's phone"})
	f.must(err)
	n := f.node(func(n *pairing.Node) { n.BootstrapToken = made.Secret })
	got, err := f.admit(n)
	f.must(err)
	c, err := f.store.CredentialByDigest(t.Context(), auth.SecretDigest(got.Token))
	f.must(err)
	if c.User != "ann" || c.Name != "Ann's phone" || len(c.Approved) != 2 || c.CreatedBy != "key:ann" {
		t.Errorf("stored: %+v", c)
	}
	f.refused("a second node", f.node(func(n *pairing.Node) { n.BootstrapToken = made.Secret }), pairing.NodeSetup)
	again, err := f.admit(n)
	f.must(err)
	n.BootstrapToken, n.DeviceToken = "", again.Token
	if got, err := f.admit(n); err != nil || got.Token != "" {
		t.Errorf("after the code was used again: %+v, %v", got, err)
	}
	if devices, _, err := f.Devices(t.Context(), admin(), "", 0); err != nil || len(devices) != 1 {
		t.Errorf("devices: %+v, %v", devices, err)
	}
	f.refused("a made-up code", f.node(func(n *pairing.Node) { n.BootstrapToken = "fhs_none" }), pairing.NodeSetup)
}

// A node whose credential was revoked does not pair itself again with the setup code that it has.
func TestARevokedNodeCannotUseItsSetupCodeAgain(t *testing.T) {
	f := newNodes(t)
	made, err := f.MakeSetup(t.Context(), approver("ann"), pairing.SetupRequest{})
	f.must(err)
	n := f.node(func(n *pairing.Node) { n.BootstrapToken = made.Secret })
	for range 2 { // it may not have got the first answer
		_, err = f.admit(n)
		f.must(err)
	}
	f.must(f.Revoke(t.Context(), approver("ann"), n.DeviceID))
	f.refused("a revoked node", n, pairing.NodeSetup)
	if devices, _, err := f.Devices(t.Context(), admin(), "", 0); err != nil || len(devices) != 0 {
		t.Errorf("devices: %+v, %v", devices, err)
	}
}

// A node may use its setup code again after the store failed at any step of its pairing, and has one credential then.
func TestASetupCodeWorksAfterTheStoreFailed(t *testing.T) {
	for _, step := range []string{"create", "note", "revoke"} {
		t.Run(step, func(t *testing.T) {
			store := &interrupted{Store: memory.New(memory.Options{})}
			f := newNodes(t, func(c *pairing.Config) { c.Store = store })
			made, err := f.MakeSetup(t.Context(), approver("ann"), pairing.SetupRequest{})
			f.must(err)
			n := f.node(func(n *pairing.Node) { n.BootstrapToken = made.Secret })
			_, err = f.admit(n)
			f.must(err)
			store.step = step
			_, err = f.admit(n)
			f.want("the code again, "+step+" fails", err, registry.CodeStoreUnavailable)
			got, err := f.admit(n)
			f.must(err)
			n.BootstrapToken, n.DeviceToken = "", got.Token
			if _, err := f.admit(n); err != nil {
				t.Errorf("with its token: %v", err)
			}
			if devices, _, err := f.Devices(t.Context(), admin(), "", 0); err != nil || len(devices) != 1 {
				t.Errorf("devices: %+v, %v", devices, err)
			}
		})
	}
}

// A node that uses its setup code again and again, while its device is revoked, is not paired afterwards.
func TestARepeatedSetupCodeDoesNotOutliveARevocation(t *testing.T) {
	for range 20 {
		f := newNodes(t)
		made, err := f.MakeSetup(t.Context(), approver("ann"), pairing.SetupRequest{})
		f.must(err)
		n := f.node(func(n *pairing.Node) { n.BootstrapToken = made.Secret })
		_, err = f.admit(n)
		f.must(err)
		var repeating sync.WaitGroup
		for range 3 {
			repeating.Go(func() {
				for err := error(nil); err == nil || !errors.As(err, new(*pairing.NodeRefused)); {
					_, err = f.admit(n)
				}
			})
		}
		ended := make(chan struct{})
		go func() { repeating.Wait(); close(ended) }()
		for more := true; more; {
			err := f.Revoke(t.Context(), approver("ann"), n.DeviceID) // not found: between two credentials
			select {
			case <-ended:
				more = false
			default:
				more = err != nil
			}
		}
		<-ended
		if devices, _, err := f.Devices(t.Context(), admin(), "", 0); err != nil || len(devices) != 0 {
			t.Fatalf("devices after the revocation: %+v, %v", devices, err)
		}
	}
}

func TestSetupCodeHasTheRightsOfItsApprover(t *testing.T) {
	f := newNodes(t)
	restricted := approver("ann", func(id *auth.Identity) { id.Tools = "camera_*" })
	_, err := f.MakeSetup(t.Context(), restricted, pairing.SetupRequest{Tools: []string{"run"}})
	f.want("a tool outside its own", err, registry.CodeForbidden)
	_, err = f.MakeSetup(t.Context(), approver("ann"), pairing.SetupRequest{User: "bob"})
	f.want("for another user", err, registry.CodeForbidden)
	made, err := f.MakeSetup(t.Context(), restricted, pairing.SetupRequest{})
	f.must(err)
	got, err := f.admit(f.node(func(n *pairing.Node) { n.BootstrapToken = made.Secret }))
	f.must(err)
	c, err := f.store.CredentialByDigest(t.Context(), auth.SecretDigest(got.Token))
	f.must(err)
	if len(c.Approved) != 1 || c.Approved[0].Name != "camera_snap" {
		t.Errorf("approved: %+v", c.Approved)
	}

	bobs := f.paired(f.node())
	_, err = f.store.RevokeCredential(t.Context(), tenant, credentialOf(f, bobs).ID)
	f.must(err)
	bobs.DeviceToken = ""
	byAdmin, err := f.MakeSetup(t.Context(), admin(), pairing.SetupRequest{User: "bob"})
	f.must(err)
	bobs.BootstrapToken = byAdmin.Secret
	_, err = f.admit(bobs)
	f.must(err)
	made, err = f.MakeSetup(t.Context(), approver("ann"), pairing.SetupRequest{})
	f.must(err)
	bobs.BootstrapToken = made.Secret
	f.refused("another user's node", bobs, pairing.NodeSetup)

	for range registry.MaxSetupsOfApprover {
		_, err = f.MakeSetup(t.Context(), approver("ann"), pairing.SetupRequest{})
	}
	f.want("too many codes", err, registry.CodeRateLimited)
}

func credentialOf(f *fixture, n pairing.Node) registry.Credential {
	f.Helper()
	c, err := f.store.CredentialByDigest(f.Context(), auth.SecretDigest(n.DeviceToken))
	f.must(err)
	return c
}

// TestImportedNodeKeepsItsCredentialOnce: it connects with the credential of the gateway that it comes from.
func TestImportedNodeKeepsItsCredentialOnce(t *testing.T) {
	f := newNodes(t)
	n := f.node(func(n *pairing.Node) { n.DeviceToken = strings.Repeat("t0ken", 9) })
	_, err := f.store.CreateCredential(t.Context(), registry.Credential{
		Tenant: tenant, ID: "imported", Kind: registry.CredentialDevice, Digest: auth.SecretDigest(n.DeviceToken),
		Roles: []string{auth.NameDevice}, DeviceID: n.DeviceID, PublicKey: n.PublicKey,
	})
	f.must(err)
	thief := f.node(func(t *pairing.Node) { t.DeviceToken = n.DeviceToken })
	f.pending(thief)
	got, err := f.admit(n)
	f.must(err)
	if got.Token == "" || got.Identity.Device != n.DeviceID {
		t.Fatalf("admitted: %+v", got)
	}
	n.DeviceToken = got.Token
	if got, err := f.admit(n); err != nil || got.Token != "" {
		t.Errorf("with its new credential: %+v, %v", got, err)
	}
}

// TestLogsHaveNoCodeOfANode: the id of its request has it.
func TestLogsHaveNoCodeOfANode(t *testing.T) {
	var log strings.Builder
	var audit noted
	f := newNodes(t, func(c *pairing.Config) {
		c.Log, c.Audit = slog.New(slog.NewTextHandler(&log, nil)), &audit
	})
	p := f.pending(f.node())
	code := strings.ToLower(strings.ReplaceAll(p.Code, "-", ""))
	if !strings.HasSuffix(p.ID, "."+code) || strings.Contains(log.String(), code) || log.Len() == 0 {
		t.Errorf("id %s, log %s", p.ID, log.String())
	}
	if len(audit) != 1 || strings.Contains(audit[0].Target, code) {
		t.Errorf("audit: %+v", audit)
	}
}

func TestImportPairsANodeOnce(t *testing.T) {
	f := newNodes(t)
	n := f.node(func(n *pairing.Node) { n.DeviceToken = strings.Repeat("t0ken", 9) })
	in := pairing.Imported{
		PublicKey: n.PublicKey, TokenDigest: auth.SecretDigest(n.DeviceToken), Name: "Desk", Tools: []string{"run"},
	}
	for _, want := range []pairing.ImportState{pairing.ImportDone, pairing.ImportExists} {
		if got, err := f.Import(t.Context(), admin(), in); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if got, err := f.admit(n); err != nil || got.Token == "" {
		t.Errorf("admitted: %+v, %v", got, err)
	}
	in.PublicKey = f.node().PublicKey
	_, err := f.Import(t.Context(), admin(), in)
	f.want("the token of another node", err, registry.CodeInvalidRequest)
	in.TokenDigest = "abc"
	_, err = f.Import(t.Context(), admin(), in)
	f.want("a malformed digest", err, registry.CodeInvalidRequest)
	in.PublicKey = nil
	_, err = f.Import(t.Context(), admin(), in)
	f.want("no key", err, registry.CodeInvalidRequest)
}
