package chat

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// echo is a model that asks for a tool with what the user said last, and answers with what the tool returned. It fails
// the turn if it is sent a word of another conversation.
type echo struct{}

func (echo) Name() string { return "echo" }

func (echo) Generate(_ context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
	last := r.Messages[len(r.Messages)-1]
	nonce, _, _ := strings.Cut(r.Messages[0].Content, "/")
	for _, m := range r.Messages {
		if m.Content != "" && !strings.Contains(m.Content, nonce) {
			return provider.Answer{}, &provider.Error{Kind: provider.KindRequest, Message: "a stranger's words: " +
				m.Content}
		}
	}
	if last.Role == provider.RoleUser {
		call := tool("c", "echo", fmt.Sprintf(`{"said":%q}`, last.Content))
		return provider.Answer{Message: provider.Message{ToolCalls: []provider.ToolCall{call}},
			Stop: provider.StopToolCalls}, nil
	}
	_, said, _ := strings.Cut(last.Content, "\n")
	said, _, _ = strings.Cut(said, "\n")
	for _, c := range strings.SplitAfter(said, "-") {
		emit(provider.Delta{Text: c})
	}
	return provider.Answer{Message: provider.Message{Content: said}, Stop: provider.StopEnd}, nil
}

// TestManyConversations has 200 of them at once on two pods that share a store, each with a nonce that no other may
// see.
func TestManyConversations(t *testing.T) {
	store := memory.New(memory.Options{})
	var pods []*Engine
	for range 2 {
		e, err := NewEngine(Config{Models: []provider.Model{echo{}}, Store: store,
			OpenTools: func(s agent.SessionContext) Tools {
				k := &kit{}
				k.set("echo", func(_ context.Context, q agent.InvokeRequest) (agent.Outcome, error) {
					if !strings.Contains(q.Args.String(), s.Key.Session) {
						return agent.Outcome{}, registry.Errorf(registry.CodeInternal, "a call of another session: %s",
							q.Args)
					}
					return agent.Outcome{Result: registry.Result{Success: true, Output: q.Args.String()}}, nil
				})
				return k
			}})
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, e)
	}
	const conversations, turns = 200, 5
	conversation := func(i int) registry.Key {
		return registry.Key{Tenant: "default", Session: fmt.Sprintf("nonce-%04d", i)}
	}
	var all sync.WaitGroup
	for i := range conversations {
		all.Go(func() {
			at := conversation(i)
			for n := range turns {
				said := fmt.Sprintf("%s/%d", at.Session, n)
				ev := &events{}
				reply, err := pods[(i+n)%2].Ask(t.Context(), Ask{Key: at, Content: said}, ev.emit)
				if want := fmt.Sprintf(`{"said":%q}`, said); err != nil || reply.FullResponse != want ||
					reply.MessageCount != 4*(n+1) {
					t.Errorf("%s: %+v, %v", said, reply, err)
				}
				streamed := ""
				for _, e := range ev.of(EventChunk) {
					streamed += e.Content
				}
				if streamed != reply.FullResponse {
					t.Errorf("%s: streamed %q", said, streamed)
				}
			}
		})
	}
	all.Wait()
	for _, e := range pods {
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for i := range conversations {
		c, err := store.Conversation(t.Context(), conversation(i))
		if err != nil || len(c.Messages) != 4*turns || c.Busy || c.Draft != nil {
			t.Errorf("%d: %d messages, busy %v, %v", i, len(c.Messages), c.Busy, err)
		}
	}
}

// long is a model whose answers ask for room for a megabyte.
type long struct{ end chan struct{} }

func (long) Name() string { return "long" }

func (l long) Generate(ctx context.Context, r provider.Request, _ func(provider.Delta)) (provider.Answer, error) {
	if strings.Contains(r.Messages[len(r.Messages)-1].Content, "long") {
		if err := r.Room(1 << 20); err != nil {
			return provider.Answer{}, &provider.Error{Kind: provider.KindLimit, Message: "no room"}
		}
		<-l.end
	}
	return provider.Answer{Message: provider.Message{Content: "said"}, Stop: provider.StopEnd}, nil
}

// TestLongAnswersOfATenant: the memory of one tenant's answers has a bound, other tenants have room, and it is given
// back when the turns end.
func TestLongAnswersOfATenant(t *testing.T) {
	model := long{make(chan struct{})}
	e, err := NewEngine(Config{Models: []provider.Model{model}, Store: memory.New(memory.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(tenant, said string) error {
		_, _, err := e.Complete(t.Context(), Completion{
			Caller:   auth.Identity{Tenant: tenant, User: "u", Roles: auth.RoleCaller},
			Messages: []provider.Message{{Role: provider.RoleUser, Content: said}},
		}, nil)
		return err
	}
	failed := make(chan error, 200)
	for range cap(failed) {
		go func() { failed <- ask("greedy", "long") }()
	}
	// Answers that grow at the same time can take the last room from each other, so one or two fewer may be left.
	const fit = maxTurnBytes / 2 / (answerCopies << 20)
	for range cap(failed) - fit {
		if err := <-failed; err == nil {
			t.Fatal("more answers fit than may")
		}
	}
	if err := ask("modest", "short"); err != nil {
		t.Error(err)
	}
	if held := e.memory.Stats().Held; held > maxTurnBytes/2 || held < maxTurnBytes/4 {
		t.Errorf("%d bytes are held", held)
	}
	close(model.end)
	if err := ask("modest", "long"); err != nil {
		t.Error(err)
	}
	refused := 0
	for range fit {
		if err := <-failed; err != nil {
			refused++
		}
	}
	if refused > 2 {
		t.Errorf("%d of %d answers that fit were refused", refused, fit)
	}
	if held := e.memory.Stats().Held; held != 0 {
		t.Errorf("%d bytes are held after the turns", held)
	}
}
