package approvals

import (
	"context"
	"slices"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// usersOf returns the users that an approval is about.
func usersOf(a registry.Approval) []string {
	users := []string{a.Requester.User, a.Owner}
	slices.Sort(users)
	return slices.DeleteFunc(slices.Compact(users), func(user string) bool { return user == "" })
}

// erasePage is how many approvals are erased in one step.
const erasePage = 20

// Erase removes the approvals that are about a user, pending or not, and returns how many. Calls that wait for one
// fail.
func Erase(ctx context.Context, docs documents.Store, tenant, user string) (removed int, err error) {
	for {
		lists, err := docs.Members(ctx, documents.Query{
			Space: approvals(tenant), Index: userIndex + user, Limit: erasePage,
		})
		if err != nil || len(lists[0]) == 0 {
			return removed, err
		}
		found, err := docs.Read(ctx, approvals(tenant).Refs(lists[0]...)...)
		if err != nil {
			return removed, err
		}
		var steps []documents.Step
		for i, id := range lists[0] {
			steps = append(steps, documents.Leave(pendingIndex, id), documents.Leave(dueIndex, id),
				documents.Leave(userIndex+user, id), documents.Delete(id), documents.Delete(id+argsID),
				documents.Delete(id+requestID), documents.Delete(id+stateID))
			a, err := documents.Decode[registry.Approval](found[i], registry.ErrNoApproval)
			if err != nil { // it has expired, or is not readable
				continue
			}
			removed++
			steps = append(steps, documents.Leave(requesterIndex+a.Requester.Key(), id))
			for _, other := range usersOf(a) {
				steps = append(steps, documents.Leave(userIndex+other, id))
			}
		}
		if _, err := documents.Commit(ctx, docs, approvals(tenant), steps...); err != nil {
			return removed, err
		}
	}
}
