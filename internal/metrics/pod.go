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
	"github.com/farhand/farhand/registry"
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

// folders are the folders whose disks are watched.
var folders = []string{FolderData, FolderBlobs, FolderWorkspaces}

// The folders.
const (
	FolderData       = "data"
	FolderBlobs      = "blobs"
	FolderWorkspaces = "workspaces"
)

// Disk has the bytes of the disk of a folder, which is one of the constants above.
type Disk struct {
	Folder     string
	Free, Size int64
}

func disks(all []Disk) []current {
	var free, size []series
	for _, d := range all {
		free = append(free, series{float64(d.Free), []string{d.Folder}})
		size = append(size, series{float64(d.Size), []string{d.Folder}})
	}
	folder := Label{Name: "folder", Values: folders}
	return []current{
		gauge("farhand_disk_free_bytes", "Free bytes of the disk of each local folder: the state file's "+
			"(FARHAND_DATA_DIR), that of stored files (FARHAND_BLOB_URL) and of workspaces (FARHAND_WORKSPACE_DIR).",
			labeled(free, folder)),
		gauge("farhand_disk_size_bytes", "Size of the same disks.", labeled(size, folder)),
	}
}

func drain(used float64) []current {
	return []current{gauge("farhand_drain_used_ratio",
		"Used part of FARHAND_DRAIN_TIMEOUT since the pod began to stop; 0 before. At 0.8 it ends what is in flight.",
		labeled([]series{{n: used}}))}
}

func memory(limit int64) []current {
	var all []series
	if limit > 0 {
		all = append(all, series{n: float64(limit)})
	}
	return []current{gauge("farhand_memory_limit_bytes",
		"Memory that the process may use: the least of GOMEMLIMIT, the limits of its cgroups and the machine's "+
			"memory. There is no series if none is known.",
		labeled(all))}
}

func redisPools(all map[string]redisstore.PoolStats) []current {
	each := func(of func(redisstore.PoolStats) float64) current {
		var pools []series
		for name, p := range all {
			pools = append(pools, series{of(p), []string{name}})
		}
		return labeled(pools, Label{Name: "pool", Values: []string{redisstore.PoolCommands, redisstore.PoolSessions}})
	}
	type pool = redisstore.PoolStats
	return []current{
		gauge("farhand_redis_connections", "Open connections to Redis, by pool.",
			each(func(p pool) float64 { return float64(p.Open) })),
		gauge("farhand_redis_idle_connections", "Idle connections to Redis, by pool.",
			each(func(p pool) float64 { return float64(p.Idle) })),
		counter("farhand_redis_pool_waits_total", "Commands that had to wait for a connection, by pool.",
			each(func(p pool) float64 { return float64(p.Waits) })),
		counter("farhand_redis_pool_wait_seconds_total",
			"Total time that commands waited for connections, by pool.",
			each(func(p pool) float64 { return p.Waited.Seconds() })),
		counter("farhand_redis_pool_timeouts_total", "Commands that got no connection in time, by pool.",
			each(func(p pool) float64 { return float64(p.Timeouts) })),
	}
}

// unreadable has the values that a newer release wrote.
func unreadable(n map[string]int64) []current {
	var kinds []part
	for _, kind := range redisstore.Forms() {
		kinds = append(kinds, part{kind, n[kind]})
	}
	return []current{counter("farhand_unreadable_total",
		"Stored values and messages of newer releases that this pod could not read, and left as they are, by kind.",
		by("kind", kinds...))}
}

// busMessages has what the bus sent, its queue lengths and its failures.
func busMessages(n bus.Stats) []current {
	return []current{
		counter("farhand_bus_sent_messages_total", "Messages sent to other pods, by queue.",
			by("queue", part{"envelopes", n.CallsSent}, part{"replies", n.RepliesSent})),
		counter("farhand_bus_sent_packets_total",
			"Packets sent to other pods, by queue. Messages sent to a pod at the same moment share a packet.",
			by("queue", part{"envelopes", n.CallPackets}, part{"replies", n.ReplyPackets})),
		gauge("farhand_bus_queued_messages", "Messages queued for other pods, by queue.",
			by("queue", part{"envelopes", n.CallsQueued}, part{"replies", n.RepliesQueued},
				part{"retries", n.RepliesPutOff})),
		gauge("farhand_bus_queued_bytes", "Bytes of messages queued for other pods, by queue.",
			by("queue", part{"envelopes", n.CallBytesQueued}, part{"replies", n.ReplyBytesQueued},
				part{"retries", n.PutOffBytesQueued})),
		counter("farhand_bus_events_total", "Failures between pods, recovered or not, by event.",
			by("event", part{"envelope_refused", n.CallsRefused}, part{"reply_refused", n.RepliesRefused},
				part{"reply_published", n.RepliesPublished}, part{"reply_retried", n.RepliesRetried},
				part{"reply_lost", n.RepliesLost}, part{"malformed", n.Malformed},
				part{"resubscribed", n.Resubscribed}, part{"panic", n.Panics})),
		counter("farhand_bus_rejected_messages_total",
			"Messages and changes in Redis that are not signed by the fleet, by reason. Alert on any.",
			by("reason", part{"unsigned", n.Rejected["unsigned"]}, part{"forged", n.Rejected["forged"]},
				part{"stale", n.Rejected["stale"]}, part{"repeated", n.Rejected["repeated"]})),
	}
}

func sockets(n ws.Stats) []current {
	return []current{
		gauge("farhand_sockets", "Open connections of devices.", one(n.Open)),
		gauge("farhand_sockets_opening",
			"Connections not yet open, by state: opening connections use the store now, queued connections wait for "+
				"it.",
			by("state", part{"opening", n.Opening}, part{"queued", n.Queued})),
		counter("farhand_sockets_opened_total", "Accepted connections of devices.", one(n.Opened)),
		counter("farhand_sockets_closed_total",
			"Closed connections of devices, by reason. gone: the device or its network failed or left.",
			counted("reason", ws.CloseReasons(), n.Closed)),
		counter("farhand_sockets_refused_total",
			"Refused connection requests, by error code.",
			counted("code", texts(registry.Codes()), n.Refused)),
	}
}

func traffic(n ws.Stats) []current {
	return []current{
		counter("farhand_frames_received_total",
			"Frames from devices, by type; other: unknown or invalid frames.",
			counted("type", ws.ReceivedTypes(), n.Received)),
		counter("farhand_frames_sent_total", "Frames to devices, by type.", counted("type", ws.SentTypes(), n.Sent)),
		counter("farhand_acknowledgements_total",
			"Acknowledgements of results to devices, by whether they were written alone or with another frame.",
			by("written", part{"together", n.AcknowledgedTogether}, part{"alone", n.AcknowledgedAlone})),
		counter("farhand_socket_bytes_total", "Bytes from devices (in) and to them (out).",
			by("direction", part{"in", n.BytesIn}, part{"out", n.BytesOut})),
		gauge("farhand_outbox_frames", "Frames queued for devices.", one(n.OutboxFrames)),
		gauge("farhand_outbox_bytes", "Bytes queued for devices.", one(n.OutboxBytes)),
		gauge("farhand_outbox_fullest_bytes", "Bytes queued for the device with the longest queue.",
			one(n.FullestOutbox)),
		gauge("farhand_unhandled_bytes",
			"Bytes received of messages that are incomplete or not yet handled.", one(n.UnhandledBytes)),
	}
}

func wakes(n wake.Stats) []current {
	var asked []part
	for _, a := range wake.AllAsked() {
		asked = append(asked, part{string(a), n.Asked[a]})
	}
	kind, outcome := Label{Name: "kind"}, Label{Name: "outcome"}
	for _, o := range wake.Outcomes() {
		outcome.Values = append(outcome.Values, string(o))
	}
	var pushes []series
	for _, k := range registry.WakeKinds() {
		kind.Values = append(kind.Values, string(k))
		for o, count := range n.Pushes[k] {
			pushes = append(pushes, series{float64(count), []string{string(k), string(o)}})
		}
	}
	return []current{
		counter("farhand_wakes_total", "Requests to wake a sleeping device, by what this pod did.",
			by("did", asked...)),
		counter("farhand_wake_pushes_total", "Pushes to devices, by kind and by the push service's answer.",
			labeled(pushes, kind, outcome)),
	}
}

func groups(n group.Stats) []current {
	var all []series
	for end, calls := range n.Ended {
		all = append(all, series{float64(calls), []string{end.Mode, string(end.State)}})
	}
	return []current{counter("farhand_group_calls_total",
		"Group calls that ended, by mode and state: succeeded if the call got what its mode asks for.",
		labeled(all, Label{Name: "mode", Values: registry.GroupModes()}, Label{Name: "state", Values: []string{
			string(registry.StateSucceeded), string(registry.StateFailed), string(registry.StateCancelled),
		}}))}
}
