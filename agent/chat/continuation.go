package chat

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

const (
	// continuedPrefix begins the ids of returned calls whose preceding work the gateway stores. It distinguishes a lost
	// continuation from a call that never had one. The id of the continuation and the number of the call follow.
	continuedPrefix = "call_fh_"

	// maxContinuations is how many continuations of a conversation are looked up: the latest.
	maxContinuations = 128

	noteContinuationLost = "[Farhand: tools of the device ran before this call, " +
		"but their results are no longer stored. " +
		"Do not run one again unless running it twice is harmless.]\n"
)

// continuations stores what completions did before they returned calls, and restores it for the results, on any pod.
type continuations struct {
	db     registry.ContinuationStore
	holder registry.ContinuationOwner
	ttl    time.Duration
	limit  int // bytes that are restored into one conversation
	spent  *spending
	log    *slog.Logger
}

// returnCalls ends the turn with the calls of the caller's tools. The gateway's calls in the same answer run first.
func (l *loop) returnCalls(ctx context.Context, n int, answer provider.Message, listed []agent.ShownTool) error {
	own := func(c provider.ToolCall) bool { return l.own[c.Name] }
	gateways := slices.DeleteFunc(slices.Clone(answer.ToolCalls), own)
	if l.exceeded(n, len(gateways)) != nil { // they do not run, and the model may request them again
		answer.ToolCalls = slices.DeleteFunc(answer.ToolCalls, func(c provider.ToolCall) bool { return !own(c) })
		gateways = nil
	}
	keeps := len(l.history) > l.given || len(gateways) > 0 || len(answer.Thinking) > 0
	id := rand.Text()
	var callers []provider.ToolCall
	for i := range answer.ToolCalls {
		c := &answer.ToolCalls[i]
		if !own(*c) {
			continue
		}
		if keeps {
			c.ID = fmt.Sprintf("%s%s_%d", continuedPrefix, id, i)
		}
		callers = append(callers, *c)
	}
	if !keeps {
		l.returned = callers
		return nil
	}
	if err := l.record(ctx, answer); err != nil {
		return err
	}
	if len(gateways) > 0 {
		if err := l.callAll(ctx, gateways, listed); err != nil {
			return err
		}
	}
	if err := l.continuations.store(ctx, id, l.history[l.given:]); err != nil { // restore tells the model
		l.log.Warn("calls of a completion not stored", "turn", l.turn, "error", err)
	}
	l.returned = callers
	return nil
}

// store stores messages under the id of a continuation. If they are too long, it drops the oldest results.
func (h continuations) store(ctx context.Context, id string, messages []provider.Message) error {
	data, err := json.Marshal(messages)
	if err == nil && len(data) > registry.MaxContinuation {
		// JSON may be longer than the text.
		data, err = json.Marshal(trim(messages, registry.MaxContinuation/2/bytesPerToken))
	}
	if err != nil {
		return err
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := h.spent.budget.Begin(ctx, h.spent.by, len(data)+registry.ContinuationOverhead); err != nil {
		return err
	}
	return h.db.KeepContinuation(ctx, h.holder, id, data, h.ttl)
}

// restore returns the messages of a caller, with the stored messages, or a note on their loss, before returned calls.
func (h continuations) restore(ctx context.Context, messages []provider.Message) ([]provider.Message, error) {
	var ids []string
	for _, m := range slices.Backward(messages) {
		if id := continuationOf(m); id != "" && !slices.Contains(ids, id) && len(ids) < maxContinuations {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return messages, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	found, err := h.db.Continuations(ctx, h.holder, h.limit, ids...)
	if err != nil {
		return nil, fmt.Errorf("read earlier calls: %w", err)
	}
	out, seen := make([]provider.Message, 0, len(messages)), make(map[string]bool)
	lost := ""
	for _, m := range messages {
		id := continuationOf(m)
		if id == "" || seen[id] {
			if lost != "" && m.Role == provider.RoleTool && continuationID(m.ToolCallID) == lost {
				m.Content, lost = noteContinuationLost+m.Content, ""
			}
			out = append(out, m)
			continue
		}
		seen[id] = true
		var kept []provider.Message
		if data := found[id]; data == nil || json.Unmarshal(data, &kept) != nil {
			h.log.Info("calls of a completion no longer stored", "handout", id)
			lost = id
			out = append(out, m)
			continue
		}
		out = append(out, spliced(kept, id, m)...)
	}
	return out, nil
}

// spliced returns the stored messages in place of the message that the caller saw, without calls shown elsewhere.
func spliced(kept []provider.Message, id string, shown provider.Message) []provider.Message {
	at := slices.IndexFunc(kept, func(m provider.Message) bool { return continuationOf(m) == id })
	if at < 0 {
		return append(kept, shown)
	}
	answer, there := &kept[at], make(map[string]bool)
	for _, c := range shown.ToolCalls {
		there[c.ID] = true
	}
	answer.ToolCalls = slices.DeleteFunc(answer.ToolCalls, func(c provider.ToolCall) bool {
		return continuationID(c.ID) == id && !there[c.ID]
	})
	for _, c := range answer.ToolCalls {
		delete(there, c.ID)
	}
	for _, c := range shown.ToolCalls {
		if there[c.ID] {
			answer.ToolCalls = append(answer.ToolCalls, c)
		}
	}
	return kept
}

// continuationOf returns the id of the continuation of an assistant message. It is empty if there is none.
func continuationOf(m provider.Message) string {
	if m.Role != provider.RoleAssistant {
		return ""
	}
	for _, c := range m.ToolCalls {
		if id := continuationID(c.ID); id != "" {
			return id
		}
	}
	return ""
}

// continuationID returns the id of the continuation of a call. It is empty if there is none.
func continuationID(call string) string {
	rest, ok := strings.CutPrefix(call, continuedPrefix)
	id, _, ok2 := strings.Cut(rest, "_")
	if !ok || !ok2 {
		return ""
	}
	return id
}

// maxSuspects is the maximum number of arguments of a call that are stored with its result.
const maxSuspects = 16

// sourceOf returns the source of a call's result. err is the reason if there is no result. A tool of the gateway counts
// as reading untrusted content unless its annotations deny that.
func sourceOf(shown agent.ShownTool, err *registry.Error) string {
	switch a := shown.Spec.Annotations; {
	case err != nil && !quotes(err.Code):
		return provider.SourceGateway
	case shown.Source == registry.SourceLocal && a != nil && a.OpenWorldHint != nil && !*a.OpenWorldHint:
		return provider.SourceLocal
	default:
		return ""
	}
}

// quotes reports whether errors with a code may quote text of a device, such as the definition of its tool.
func quotes(c registry.Code) bool {
	switch c {
	case registry.CodeInvalidResult, registry.CodeInvalidArguments, registry.CodeToolNotFound,
		registry.CodeAmbiguousTarget:
		return true
	default:
		return false
	}
}

// suspectsOf returns the suspect arguments of a call, in the form that is stored.
func suspectsOf(p *agent.Provenance) []provider.Suspect {
	var list []provider.Suspect
	for _, a := range p.Suspects[:min(len(p.Suspects), maxSuspects)] {
		list = append(list, provider.Suspect{
			Pointer: a.Pointer, Value: a.Value, Source: string(a.Source), Where: a.Where,
		})
	}
	return list
}
