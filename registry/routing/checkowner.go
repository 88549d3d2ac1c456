package routing

import (
	"context"
	"errors"

	"github.com/farhand/farhand/registry"
)

// owners is the part of a Store that knows which user a session belongs to.
type owners interface {
	Entry(ctx context.Context, key registry.Key) (registry.Entry, error)
	DescribeConversations(ctx context.Context, keys ...registry.Key) ([]registry.ConversationInfo, error)
}

// CheckOwner checks that the user named by a session's credentials may claim the session. It fails with
// CodeSessionNotFound if a device of another user has the session, or if its conversation belongs to another user. A
// session without a user passes, and the store is not asked.
func (p *Hub) CheckOwner(ctx context.Context, s registry.Session) error {
	if s.UserID == "" {
		return nil
	}
	e, err := p.owners.Entry(ctx, s.Key)
	switch {
	case err == nil && registry.Owner{UserID: e.Session.UserID}.Foreign(s.UserID):
		return foreignSession()
	case err != nil && !errors.Is(err, registry.CodeSessionNotFound) && !errors.Is(err, registry.CodeNotConnected):
		return err
	}
	infos, err := p.owners.DescribeConversations(ctx, s.Key)
	if err == nil && infos[0].Owner.Foreign(s.UserID) {
		err = foreignSession()
	}
	return err
}

func foreignSession() *registry.Error {
	return registry.Errorf(registry.CodeSessionNotFound, "No session of yours has this id. Use another session_id.")
}
