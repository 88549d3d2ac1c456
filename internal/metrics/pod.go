package metrics

import (
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/audit"
	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/group"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/certificate"
	"github.com/farhand/farhand/internal/reload"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

// Pod has the functions that read the counters of a pod.
type Pod struct {
	Routing        func() routing.Stats
	Sockets        func() ws.Stats
	API            func() api.Stats
	Refusals       func() map[string]int64
	PreviousTokens func() int64 // nil without FARHAND_TOKEN_PREVIOUS
	Audit          func() audit.Stats
	Turns          func() chat.Stats                      // nil without a model
	RedisPools     func() map[string]redisstore.PoolStats // nil without Redis
	Unreadable     func() map[string]int64                // of the store, by kind; nil without Redis
	Bus            func() bus.Stats                       // nil without Redis
	PolicyFile     func() policy.Status                   // nil without a policy file
	Budgets        func() budget.Stats
	Prices         func() reload.Status            // of the file of model prices; nil without one
	TLS            func() certificate.Status       // nil without a certificate
	Traces         func() trace.Stats              // nil without traces
	Hooks          []func() hooks.Stats            // of the HTTP hooks
	MCPServers     func() []upstream.Status        // nil without MCP servers
	Pools          []func() map[string]share.Stats // by name, which is one of poolNames
	Tenants        func() map[string]int64         // connections by tenant
	Approvals      func() approval.Stats
	Wakes          func() wake.Stats
	Groups         func() group.Stats
	Containers     func() docker.Stats  // nil without an engine of containers
	Browsers       func() browser.Stats // nil without browsers
	Disks          func() []Disk
	Drained        func() float64 // used part of the time for stopping, 0 to 1
}

func traces(s trace.Stats) []current {
	return []current{counter("farhand_trace_spans_total",
		"Recorded spans, by what became of them: exported, rejected by the collector, failed to be sent, or dropped "+
			"because the queue was full (overflow).",
		by("outcome", part{"exported", s.Exported}, part{"rejected", s.Rejected}, part{"failed", s.Failed},
			part{"overflow", s.Overflow}))}
}

func refusals(n api.Stats) []current {
	return []current{
		gauge("farhand_http_held_requests",
			"Long-lived requests: event streams and streamed turns, and requests that wait for a call.",
			by("kind", part{"streams", n.Streams}, part{"waiting", n.Waiting})),
		counter("farhand_http_refused_total",
			"Requests that the API refused, by the limit reached: event streams, requests that wait for a call, "+
				"response bytes, request body bytes.",
			by("bound", part{"streams", n.StreamsRefused}, part{"waiting", n.WaitingRefused},
				part{"answers", n.AnswersRefused}, part{"bodies", n.BodiesRefused})),
	}
}
