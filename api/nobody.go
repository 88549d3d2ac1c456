package api

import (
	"context"
	"time"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// nobody is Approvals of a gateway that asks nobody.
type nobody struct{}

func (nobody) Pending(context.Context, auth.Identity) ([]registry.Approval, error) { return nil, nil }

func (nobody) Wait(context.Context, auth.Identity, string, time.Duration) (registry.Approval, error) {
	return registry.Approval{}, registry.ErrNoApproval
}

func (nobody) Decide(context.Context, auth.Identity, string, approval.Decision) (approval.Answer, error) {
	return approval.Answer{}, registry.ErrNoApproval
}

func (nobody) Grants(context.Context, auth.Identity) ([]registry.Grant, error) { return nil, nil }

func (nobody) Revoke(context.Context, auth.Identity, string) (registry.Grant, error) {
	return registry.Grant{}, registry.ErrNoGrant
}

func (nobody) Withdraw(context.Context, string, string) {}

func (nobody) CountWrongAnswer(context.Context, string, string) (int, error) { return 0, nil }
