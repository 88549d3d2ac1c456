package pairing_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tenant = registry.DefaultTenant

// fixture is a service on a store in memory.
type fixture struct {
	*testing.T
	*pairing.Service
	store *memory.Store
	next  byte // source
}

func newFixture(t *testing.T, change ...func(*pairing.Config)) *fixture {
	t.Helper()
	cfg := pairing.Config{Store: memory.New(memory.Options{})}
	for _, c := range change {
		c(&cfg)
	}
	s, err := pairing.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	store, _ := cfg.Store.(*memory.Store)
	if i, ok := cfg.Store.(*interrupted); ok {
		store = i.Store
	}
	return &fixture{T: t, Service: s, store: store}
}

func source(n byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 32) }

// ask asks from a source of its own.
func (f *fixture) ask(r pairing.Request) pairing.Asked {
	f.Helper()
	f.next++
	asked, err := f.Ask(f.Context(), r, source(f.next))
	f.must(err)
	return asked
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// want checks the code of an error; empty: there is none.
func (f *fixture) want(what string, err error, code registry.Code) {
	f.Helper()
	if err == nil && code == "" {
		return
	}
	if err == nil || registry.AsError(err).Code != code {
		f.Errorf("%s: %v, want %q", what, err, code)
	}
}

// pair asks, approves and collects, and returns the device's credential as the store has it, and its identity.
func (f *fixture) pair(r pairing.Request) (registry.Credential, auth.Identity) {
	f.Helper()
	asked := f.ask(r)
	_, err := f.Decide(f.Context(), admin(), "", asked.Code, pairing.Decision{Approve: true})
	f.must(err)
	got, err := f.Collect(f.Context(), asked.Secret)
	f.must(err)
	c, err := f.store.CredentialByDigest(f.Context(), auth.SecretDigest(got.Credential))
	f.must(err)
	return c, auth.Identity{
		Tenant: c.Tenant, Device: c.DeviceID, Roles: auth.RoleDevice,
		Credential: auth.CredentialName(registry.CredentialDevice, c.ID),
	}
}

func admin() pairing.Approver {
	return pairing.Approver{
		Identity: auth.Identity{Tenant: tenant, Admin: true, Credential: auth.CredentialToken}, Source: "10.1.0.1/32",
	}
}

func approver(user string, change ...func(*auth.Identity)) pairing.Approver {
	a := pairing.Approver{
		Identity: auth.Identity{Tenant: tenant, User: user, Roles: auth.RoleApprover, Credential: "key:" + user},
		Source:   "10.1.0.2/32",
	}
	for _, c := range change {
		c(&a.Identity)
	}
	return a
}

// spec returns a definition of a tool as it is admitted.
func (f *fixture) spec(name, description string) registry.ToolSpec {
	f.Helper()
	s, err := registry.ToolSpec{
		Name: name, Description: description, Parameters: []byte(`{"type":"object"}`),
	}.Normalize()
	f.must(err)
	return s
}

func names[T any](all []T, name func(T) string) []string {
	var list []string
	for _, v := range all {
		list = append(list, name(v))
	}
	return list
}

// noted keeps audit lines.
type noted []registry.AuditEntry

func (n *noted) Note(e registry.AuditEntry) { *n = append(*n, e) }

// interrupted is a store of which the next step with a name fails, once.
type interrupted struct {
	*memory.Store
	step string
}

func (i *interrupted) at(step string) error {
	if i.step != step {
		return nil
	}
	i.step = ""
	return registry.StoreUnavailable(step, errors.New("away"))
}

func (i *interrupted) CreateCredential(ctx context.Context, c registry.Credential) (registry.Credential, error) {
	if err := i.at("create"); err != nil {
		return registry.Credential{}, err
	}
	return i.Store.CreateCredential(ctx, c)
}

func (i *interrupted) PairSetup(ctx context.Context, digest, credential string) error {
	if err := i.at("note"); err != nil {
		return err
	}
	return i.Store.PairSetup(ctx, digest, credential)
}

func (i *interrupted) RevokeCredential(ctx context.Context, tenant, id string) (registry.Credential, error) {
	if err := i.at("revoke"); err != nil {
		return registry.Credential{}, err
	}
	return i.Store.RevokeCredential(ctx, tenant, id)
}

// failing is a store of which one step fails.
type failing struct {
	*memory.Store
	change error
}

func (f failing) AppendChange(context.Context, registry.CredentialChange) (registry.CredentialChange, error) {
	return registry.CredentialChange{}, f.change
}
