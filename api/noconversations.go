package api

import (
	"context"

	"github.com/farhand/farhand/registry"
)

// noConversations is the index, and the turns, of a gateway that keeps no conversations.
type noConversations struct{}

func (noConversations) DescribeConversations(
	_ context.Context, keys ...registry.Key,
) ([]registry.ConversationInfo, error) {
	infos := make([]registry.ConversationInfo, len(keys))
	for i, key := range keys {
		infos[i].Key = key
	}
	return infos, nil
}

func (noConversations) ListConversations(
	context.Context, registry.ConversationQuery,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	return nil, nil, nil
}

func (noConversations) RunningConversations(context.Context, string, int) ([]registry.ConversationInfo, error) {
	return nil, nil
}

func (noConversations) ConversationsVersion(context.Context, string) (string, error) { return "", nil }

func (noConversations) NameConversation(context.Context, registry.Key, string) error {
	return registry.Errorf(registry.CodeNotFound, "This gateway keeps no conversations.")
}

func (noConversations) EraseConversation(context.Context, registry.Key) (bool, error) {
	return false, nil
}

func (noConversations) Abort(context.Context, registry.Key) error { return nil }
