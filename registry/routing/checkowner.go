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

// CheckOwner checks that a session may be claimed by the user and the device that credentials name. It fails with
// registry.ErrForeignSession if the session, or its conversation, belongs to others. A claim of any owner passes, and
// the store is not asked. The claim itself checks the session again, in the store.
func (p *Hub) CheckOwner(ctx context.Context, s registry.Session) error {
	if s.AnyOwner {
		return nil
	}
	e, err := p.owners.Entry(ctx, s.Key)
	absent := errors.Is(err, registry.CodeSessionNotFound)
	switch {
	case !absent && (err == nil || errors.Is(err, registry.CodeNotConnected)):
		if !e.Session.BelongsTo(&s) {
			return registry.ErrForeignSession
		}
	case !absent:
		return err
	}
	infos, err := p.owners.DescribeConversations(ctx, s.Key)
	if err == nil && !infos[0].Owner.Admits(&s) {
		err = registry.ErrForeignSession
	}
	return err
}
