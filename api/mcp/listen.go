package mcp

import (
	"context"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/internal/ssewriter"
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

// Changer follows changes.
type Changer interface {
	// Follow starts to follow changes. It misses none after it returns. leave must be called at the end.
	Follow(ctx context.Context, who auth.Identity, scope Scope) (c Changes, leave func(), err error)
}

// listen sends a client notifications of changes. It is the only request whose answer has no end of its own: it ends
// when the client disconnects, its identity ends or the pod drains.
func (s *Server) listen(ctx context.Context, r *request) error {
	tools, resources, err := r.readSubscriptions()
	if err != nil {
		return r.fail(err)
	}
	if !r.takesEvents() {
		return r.fail(invalidRequest("The answer is a stream. Send the header Accept with text/event-stream."))
	}
	if r.Scope.Session != "" { // reject an unknown session now, instead of following it forever
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
	_ = stream.Flush() // on failure the client is gone
	return nil
}

// readSubscriptions returns which of the offered notifications the client wants.
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

// subscription returns the member of _meta that names the request of a notification.
func (l *listener) subscription() []byte {
	return append([]byte(`"`+metaSubscription+`":`), l.id...)
}

// accepted returns the member that lists the notifications to expect.
func (l *listener) accepted() string {
	return `,"notifications":{` + string(encode(struct {
		Tools     bool `json:"toolsListChanged,omitempty"`
		Resources bool `json:"resourcesListChanged,omitempty"`
	}{l.tools, l.resources})) + "}"
}

// put adds a notification to the next flush. params are the members after _meta.
func (l *listener) put(method, params string) {
	b := append([]byte(`{"jsonrpc":"2.0","method":"`+method+`","params":{"_meta":{`), l.subscription()...)
	putMessage(l.stream, append(append(b, '}'), params+"}}"...))
}

// follow sends notifications of changes until ctx ends. An error means that the client is gone or too slow.
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

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
