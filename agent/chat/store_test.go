package chat

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// faulty is the store in memory, reached as if over a network: every operation can be made to fail or to hang, and one
// whose context has ended fails.
type faulty struct {
	*memory.Store

	mu    sync.Mutex
	fault func(ctx context.Context, op string) error // asked before each operation, outside the lock
	asked int                                        // operations
	saves int                                        // drafts saved
	last  registry.Turn                              // that began
}

var _ registry.ConversationStore = (*faulty)(nil)

func newFaulty() *faulty { return &faulty{Store: memory.New(memory.Options{})} }

// fails is the fault of one operation.
func (s *faulty) fails(ctx context.Context, op string) error {
	s.mu.Lock()
	s.asked++
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, op); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return registry.StoreUnavailable(op, err)
	}
	return nil
}

func (s *faulty) setFault(f func(ctx context.Context, op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func (s *faulty) operations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *faulty) BeginTurn(ctx context.Context, key registry.Key, lease time.Duration) (registry.Turn, error) {
	if err := s.fails(ctx, "begin"); err != nil {
		return registry.Turn{}, err
	}
	turn, err := s.Store.BeginTurn(ctx, key, lease)
	if err == nil {
		s.mu.Lock()
		s.last = turn
		s.mu.Unlock()
	}
	return turn, err
}

func (s *faulty) Continuations(
	ctx context.Context, h registry.ContinuationOwner, limit int, ids ...string,
) (map[string][]byte, error) {
	if err := s.fails(ctx, "continuations"); err != nil {
		return nil, err
	}
	return s.Store.Continuations(ctx, h, limit, ids...)
}

func (s *faulty) RenewTurn(ctx context.Context, t registry.Turn, lease time.Duration) error {
	if err := s.fails(ctx, "renew"); err != nil {
		return err
	}
	return s.Store.RenewTurn(ctx, t, lease)
}

func (s *faulty) EndTurn(ctx context.Context, t registry.Turn) error {
	if err := s.fails(ctx, "end"); err != nil {
		return err
	}
	return s.Store.EndTurn(ctx, t)
}

func (s *faulty) AppendMessages(ctx context.Context, t registry.Turn, messages ...json.RawMessage) (int, error) {
	if err := s.fails(ctx, "append"); err != nil {
		return 0, err
	}
	return s.Store.AppendMessages(ctx, t, messages...)
}

func (s *faulty) SaveDraft(ctx context.Context, t registry.Turn, draft json.RawMessage) error {
	if err := s.fails(ctx, "draft"); err != nil {
		return err
	}
	s.mu.Lock()
	s.saves++
	s.mu.Unlock()
	return s.Store.SaveDraft(ctx, t, draft)
}

func (s *faulty) TruncateMessages(ctx context.Context, t registry.Turn, n int) error {
	if err := s.fails(ctx, "truncate"); err != nil {
		return err
	}
	return s.Store.TruncateMessages(ctx, t, n)
}

func (s *faulty) SetTitle(ctx context.Context, t registry.Turn, title string) error {
	if err := s.fails(ctx, "title"); err != nil {
		return err
	}
	return s.Store.SetTitle(ctx, t, title)
}

func (s *faulty) Conversation(ctx context.Context, key registry.Key) (registry.Conversation, error) {
	if err := s.fails(ctx, "read"); err != nil {
		return registry.Conversation{}, err
	}
	return s.Store.Conversation(ctx, key)
}

func (s *faulty) CountMessages(ctx context.Context, key registry.Key) (int, error) {
	if err := s.fails(ctx, "count"); err != nil {
		return 0, err
	}
	return s.Store.CountMessages(ctx, key)
}

// put stores messages and a draft as a pod that was killed left them: with a turn that is still held. A turn that is
// under way has lost the conversation.
func (s *faulty) put(key registry.Key, draft any, messages ...any) {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	_ = s.Store.EndTurn(ctx, last) // refused if it has ended
	turn, err := s.Store.BeginTurn(ctx, key, leaseTime)
	must(err)
	for _, m := range messages {
		raw, err := json.Marshal(m)
		must(err)
		_, err = s.Store.AppendMessages(ctx, turn, raw)
		must(err)
	}
	if draft != nil {
		raw, err := json.Marshal(draft)
		must(err)
		must(s.Store.SaveDraft(ctx, turn, raw))
	}
}
