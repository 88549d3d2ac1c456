package mcp

import (
	"context"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/internal/ssewriter"
)

// changePause is the shortest time between two notifications of one stream. What changes in between is told together.
const changePause = time.Second

// digestPause is how soon a change of the policy or of the gateway's own tools is noticed. Nothing announces it.
const digestPause = 2 * time.Second

// Changes tells what has changed in a scope. It belongs to one goroutine.
type Changes interface {
	// Wait waits until sessions or tools that the identity may see in the scope may have changed since the last change
	// it returned, or atMost has passed, or ctx ends.
	Wait(ctx context.Context, atMost time.Duration) (changed bool)
}

// Changer is where changes are heard of.
type Changer interface {
	// Follow begins to listen to changes, of which none is missed from its return on. leave must be called at the end.
	Follow(ctx context.Context, who auth.Identity, scope Scope) (c Changes, leave func(), err error)
}

// listen tells a client of changes as long as it listens. It is the only request whose answer does not end by itself:
// it ends when the client leaves, its identity ends or the pod stops.
func (s *Server) listen(ctx context.Context, r *request) error {
	tools, resources, err := r.readSubscriptions()
	if err != nil {
		return r.fail(err)
	}
	if !r.takesEvents() {
		return r.fail(invalidRequest("The answer is a stream. Send the header Accept with text/event-stream."))
	}
	if r.Scope.Session != "" { // an unknown one is refused now rather than listened to in vain
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		_, err := s.session(reading, r)
		cancel()
		if err != nil {
			return r.fail(err)
		}
	}
	release, err := r.Out.Enter()
	if err != nil {
		return r.fail(err)
	}
	defer release()
	changes, leave, err := s.cfg.Changes.Follow(ctx, r.Caller, r.Scope)
	if err != nil {
		return r.fail(err)
	}
	defer leave()
	stream, err := r.Out.Open()
	if err != nil {
		return nil // the client is gone
	}
	defer stream.Close()
	l := &listener{Server: s, request: r, stream: stream, tools: tools, resources: resources}
	l.put("notifications/subscriptions/acknowledged", l.accepted())
	if err := stream.Flush(); err != nil {
		return nil
	}
	ctx, stop := r.Out.UntilDraining(ctx)
	defer stop()
	if (tools || resources) && l.follow(ctx, changes) != nil || r.Out.Ended() {
		return nil
	}
	putMessage(stream, s.appendResult(nil, r, result{meta: l.subscription()}))
	_ = stream.Flush() // the client is gone if this fails
	return nil
}

// readSubscriptions returns what the client wants to hear of that there is.
func (r *request) readSubscriptions() (tools, resources bool, err error) {
	wanted := r.params.get("notifications")
	if !wanted.IsObject() {
		return false, false, invalidParams("The field \"notifications\" must be a JSON object.")
	}
	members, err := membersOf(wanted)
	if err != nil {
		return false, false, err
	}
	yes := func(name string) bool { return fields(members).get(name).String() == "true" }
	return yes("toolsListChanged"), yes("resourcesListChanged"), nil
}

// listener writes notifications to one stream.
type listener struct {
	*Server
	*request
	stream           *ssewriter.Stream
	tools, resources bool
}

// subscription is the member of _meta that says to which request a notification belongs.
func (l *listener) subscription() []byte {
	return append([]byte(`"`+metaSubscription+`":`), l.id...)
}

// accepted returns which notifications will come.
func (l *listener) accepted() string {
	switch {
	case l.tools && l.resources:
		return `,"notifications":{"toolsListChanged":true,"resourcesListChanged":true}`
	case l.tools:
		return `,"notifications":{"toolsListChanged":true}`
	case l.resources:
		return `,"notifications":{"resourcesListChanged":true}`
	default:
		return `,"notifications":{}`
	}
}

// put adds a notification to the next flush. params are members that follow _meta.
func (l *listener) put(method, params string) {
	b := append([]byte(`{"jsonrpc":"2.0","method":"`+method+`","params":{"_meta":{`), l.subscription()...)
	putMessage(l.stream, append(append(b, '}'), params+"}}"...))
}

// follow tells of changes until ctx ends. The error says that the client is gone, or too slow.
func (l *listener) follow(ctx context.Context, changes Changes) error {
	known := l.cfg.Gateway.Digest()
	for ctx.Err() == nil {
		changed := changes.Wait(ctx, max(min(l.stream.UntilHeartbeat(), digestPause), time.Millisecond))
		if now := l.cfg.Gateway.Digest(); now != known {
			known, changed = now, true
		}
		if changed && l.tools {
			l.put("notifications/tools/list_changed", "")
		}
		if changed && l.resources {
			l.put("notifications/resources/list_changed", "")
		}
		if err := l.stream.Flush(); err != nil {
			return err
		}
		if changed {
			wait(ctx, changePause)
		}
	}
	return nil
}

// wait waits, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
