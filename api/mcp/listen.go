package mcp

import (
	"context"
	"time"

	"github.com/farhand/farhand/internal/pause"
)

// changePause is the shortest time between two notifications of one stream. Changes in between are sent together.
const changePause = time.Second

// digestPause is how often the policy and the gateway's own tools are checked for changes, which have no events.
const digestPause = 2 * time.Second

// Changes waits for changes in a scope. It belongs to one goroutine.
type Changes interface {
	// Wait waits until sessions or tools that the identity sees in the scope may have changed since the previous change
	// it returned, or atMost has passed, or ctx ends.
	Wait(ctx context.Context, atMost time.Duration) (changed bool)
}

// listen sends a client notifications of changes. It is the only request whose answer has no end of its own: it ends
// when the client disconnects, its identity ends or the pod drains.
func (s *Server) listen(ctx context.Context, r *request) (result, error) {
	tools, resources, err := r.readSubscriptions()
	if err != nil {
		return result{}, err
	}
	if !r.takesEvents() {
		return result{}, invalidRequest("The answer is a stream. Send the header Accept with text/event-stream.")
	}
	if r.Scope.Session != "" { // reject an unknown session now, instead of following it forever
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		_, err := s.session(reading, r)
		cancel()
		if err != nil {
			return result{}, err
		}
	}
	release, err := r.Out.Enter()
	if err != nil {
		return result{}, err
	}
	defer release()
	changes, leave, err := s.cfg.Gateway.Follow(ctx, r.Caller, r.Scope)
	if err != nil {
		return result{}, err
	}
	defer leave()
	r.notifyListener("notifications/subscriptions/acknowledged", accepted(tools, resources))
	following, stop := r.Out.UntilDraining(ctx)
	defer stop()
	if tools || resources {
		s.sendChanges(following, r, changes, tools, resources)
	}
	if ctx.Err() != nil || r.Out.Ended() {
		return result{}, errCancelled
	}
	return result{meta: r.subscription()}, nil
}

func (r *request) readSubscriptions() (tools, resources bool, err error) {
	wanted := r.params.get("notifications")
	if !wanted.IsObject() {
		return false, false, invalidParams("The field \"notifications\" must be a JSON object.")
	}
	members, err := membersOf(wanted)
	if err != nil {
		return false, false, err
	}
	yes := func(name string) bool { return members.get(name).String() == "true" }
	return yes("toolsListChanged"), yes("resourcesListChanged"), nil
}

func (r *request) subscription() []byte { return append([]byte(`"`+metaSubscription+`":`), r.id...) }

// accepted returns the member of params that lists the notifications to expect.
func accepted(tools, resources bool) string {
	return `,"notifications":{` + string(encode(struct {
		Tools     bool `json:"toolsListChanged,omitempty"`
		Resources bool `json:"resourcesListChanged,omitempty"`
	}{tools, resources})) + "}"
}

// notifyListener sends a notification. params are the members after _meta.
func (r *request) notifyListener(method, params string) {
	b := append([]byte(`{"jsonrpc":"2.0","method":"`+method+`","params":{"_meta":{`), r.subscription()...)
	r.answer.notify(append(append(b, '}'), params+"}}"...))
}

// sendChanges sends notifications of changes until ctx ends.
func (s *Server) sendChanges(ctx context.Context, r *request, changes Changes, tools, resources bool) {
	known := s.cfg.Gateway.Digest()
	for ctx.Err() == nil {
		changed := changes.Wait(ctx, digestPause)
		if now := s.cfg.Gateway.Digest(); now != known {
			known, changed = now, true
		}
		if !changed {
			continue
		}
		if tools {
			r.notifyListener("notifications/tools/list_changed", "")
		}
		if resources {
			r.notifyListener("notifications/resources/list_changed", "")
		}
		_ = pause.For(ctx, changePause)
	}
}
