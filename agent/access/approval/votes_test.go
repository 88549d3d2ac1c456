package approval_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// people are the keys of approvers that there are, and the users that were revoked.
type people struct {
	keys    map[string]registry.Credential
	revoked []string
	err     error // of the store
}

func (p *people) Credential(_ context.Context, _, id string) (registry.Credential, error) {
	c, ok := p.keys[id]
	if !ok && p.err == nil {
		return c, registry.Errorf(registry.CodeNotFound, "no such credential")
	}
	return c, p.err
}

func (*people) Credentials(context.Context, registry.CredentialQuery) ([]registry.Credential, string, error) {
	return nil, "", nil
}

func (p *people) verify(_ context.Context, who *auth.Identity) error {
	if slices.Contains(p.revoked, who.User) || who.Expired(time.Now()) {
		return registry.Errorf(registry.CodeUnauthenticated, "revoked")
	}
	return nil
}

// The first of two who have allowed a call counts only while he may: not once his key or he was revoked, or the key is
// no approver's any more. Then the next one is the first.
func TestTheFirstOfTwoMustStand(t *testing.T) {
	for name, c := range map[string]struct {
		between func(*people) // what happens between the first vote and the second
		first   auth.Identity
		counts  bool
	}{
		"nothing happens":     {func(*people) {}, ann, true},
		"the key is revoked":  {func(p *people) { delete(p.keys, "ann") }, ann, false},
		"the user is revoked": {func(p *people) { p.revoked = []string{"ann"} }, ann, false},
		"the key has another role": {func(p *people) {
			p.keys["ann"] = registry.Credential{ID: "ann", Kind: registry.CredentialKey, Tenant: "t", User: "ann",
				Roles: []string{"caller"}}
		}, ann, false},
		"the key has other tools": {func(p *people) {
			p.keys["ann"] = registry.Credential{ID: "ann", Kind: registry.CredentialKey, Tenant: "t", User: "ann",
				Roles: []string{"approver"}, Tools: "lamp"}
		}, ann, false},
		"a token has expired since": {func(*people) {}, auth.Identity{Tenant: "t", User: "ann",
			Roles: auth.RoleApprover, Credential: "jwt:1", Expires: time.Now().Add(-time.Second)}, true},
		"who had a token is revoked": {func(p *people) { p.revoked = []string{"ann"} }, auth.Identity{Tenant: "t",
			User: "ann", Roles: auth.RoleApprover, Credential: "jwt:1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &people{keys: map[string]registry.Credential{
				"ann": {ID: "ann", Kind: registry.CredentialKey, Tenant: "t", User: "ann", Roles: []string{"approver"}},
			}}
			k := approval.New(approval.Config{
				Store: memory.New(memory.Options{}), Credentials: p, Verify: p.verify,
			})
			defer k.Close()
			asked := question(registry.NewApprovalID())
			asked.By, asked.Owner = registry.ApproveTwo, ""
			a, err := k.Ask(t.Context(), asked, time.Minute, nil)
			if err != nil {
				t.Fatal(err)
			}
			allow := func(who auth.Identity) registry.Approval {
				t.Helper()
				answer, err := k.Decide(t.Context(), who, a.ID, approval.Decision{Allow: true})
				if err != nil || !answer.Decided {
					t.Fatalf("%s: %+v, %v", who.User, answer, err)
				}
				return answer.Approval
			}
			allow(c.first)
			c.between(p)
			ben := auth.Identity{Tenant: "t", User: "ben", Roles: auth.RoleApprover}
			if got := allow(ben); got.Final() != c.counts || !c.counts && got.AllowedBy != "ben" {
				t.Fatalf("after the second: %+v", got)
			}
			if c.counts {
				return
			}
			last := allow(auth.Identity{Tenant: "t", User: "cleo", Roles: auth.RoleApprover})
			if last.State != registry.ApprovalAllowed || last.DecidedBy != "ben, cleo" {
				t.Errorf("after the third: %+v", last)
			}
		})
	}
}

// While the store does not say whether the first of two still counts, the second decides nothing.
func TestTheFirstOfTwoIsNotKnown(t *testing.T) {
	p := &people{keys: map[string]registry.Credential{}}
	k := approval.New(approval.Config{Store: memory.New(memory.Options{}), Credentials: p})
	defer k.Close()
	asked := question(registry.NewApprovalID())
	asked.By, asked.Owner = registry.ApproveTwo, ""
	a, err := k.Ask(t.Context(), asked, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Decide(t.Context(), ann, a.ID, approval.Decision{Allow: true}); err != nil {
		t.Fatal(err)
	}
	p.err = registry.StoreUnavailable("read credential", errors.New("away"))
	ben := auth.Identity{Tenant: "t", User: "ben", Roles: auth.RoleApprover}
	if _, err := k.Decide(t.Context(), ben, a.ID, approval.Decision{Allow: true}); !errors.Is(err,
		registry.CodeStoreUnavailable) {
		t.Fatalf("allowed: %v", err)
	}
	if answer, err := k.Decide(t.Context(), ben, a.ID, approval.Decision{}); err != nil ||
		answer.Approval.State != registry.ApprovalDenied {
		t.Errorf("a denial needs no first: %+v, %v", answer, err)
	}
}
