package metrics

import (
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/audit"
	"github.com/farhand/farhand/agent/access/auth"
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

func approvals(n approval.Stats) []current {
	return []current{
		gauge("farhand_approvals_waiting",
			"Undecided approvals that this pod requested since its start, at most 10,000.", one(n.Waiting)),
		gauge("farhand_approvals_oldest_seconds", "Age of the oldest of these approvals; 0 if there is none.",
			labeled([]series{{n: n.Oldest.Seconds()}})),
	}
}

func containers(n docker.Stats) []current {
	down := int64(0)
	if n.Down {
		down = 1
	}
	return []current{
		gauge("farhand_containers", "Running containers of commands.", one(n.Running)),
		counter("farhand_container_starts_total", "Starts of containers, by result.",
			by("result", part{"ok", n.Started}, part{"failed", n.Failed})),
		gauge("farhand_container_engine_down",
			"1 if the engine of containers did not answer in the last ten seconds, otherwise 0.", one(down)),
	}
}

// browsers has what the pool "browsers" does not show.
func browsers(n browser.Stats) []current {
	return []current{
		counter("farhand_browser_starts_total", "Starts of browsers, by result.",
			by("result", part{"ok", n.Started}, part{"failed", n.Failed})),
		counter("farhand_browsers_lost_total", "Browsers that crashed or exceeded their memory limit.", one(n.Lost)),
	}
}

func policyFile(n policy.Status) []current {
	refused := int64(0)
	if n.Err != nil {
		refused = 1
	}
	return []current{
		gauge("farhand_policy_file_refused",
			"1 while the current policy file is invalid and therefore not in force, otherwise 0.",
			one(refused)),
		counter("farhand_policy_reloads_total",
			"Policy files read since the start, by whether they came into force.",
			by("result", part{"ok", int64(n.Reloads)}, part{"refused", int64(n.Refused)})),
	}
}

func budgets(n budget.Stats) []current {
	var refused []part
	for _, kind := range registry.SpentKinds {
		refused = append(refused, part{kind, n.Refused[kind]})
	}
	return []current{
		counter("farhand_budget_events_total",
			"Budgets of tenants and identities whose warning share, or all, was spent. The fleet counts each once a day.",
			by("event", part{"warned", n.Warned}, part{"spent", n.Exceeded})),
		counter("farhand_budget_refusals_total",
			"Calls and requests to models rejected because a budget is spent, by what is spent.",
			by("kind", refused...)),
	}
}

func modelPrices(n reload.Status) []current {
	refused := int64(0)
	if n.Err != nil {
		refused = 1
	}
	return []current{gauge("farhand_model_prices_refused",
		"1 while the current file of model prices is invalid and therefore not in force, otherwise 0.", one(refused))}
}

func traces(s trace.Stats) []current {
	return []current{counter("farhand_trace_spans_total",
		"Recorded spans, by what became of them: exported, rejected by the collector, failed to be sent, or dropped "+
			"because the queue was full (overflow).",
		by("outcome", part{"exported", s.Exported}, part{"rejected", s.Rejected}, part{"failed", s.Failed},
			part{"overflow", s.Overflow}))}
}

func tlsCertificate(s certificate.Status) []current {
	refused := int64(0)
	if s.Refused {
		refused = 1
	}
	return []current{
		gauge("farhand_tls_certificate_expiry_timestamp_seconds", "When the certificate in use expires, in Unix time.",
			one(s.Expires.Unix())),
		gauge("farhand_tls_certificate_refused",
			"1 while the current certificate files cannot be used and an earlier certificate is in use, otherwise 0.",
			one(refused)),
	}
}

func mcpServers(all []upstream.Status) []current {
	var names []string
	var up, tools, connects []part
	var ended, took []series
	for _, s := range all {
		connected := part{s.Name, 0}
		if s.Connected {
			connected.n = 1
		}
		up, tools = append(up, connected), append(tools, part{s.Name, int64(s.Tools)})
		connects = append(connects, part{s.Name, s.Attempts})
		names, took = append(names, s.Name), append(took, series{s.Calls.Took.Seconds(), []string{s.Name}})
		for i, n := range []int64{s.Calls.Answered, s.Calls.Rejected, s.Calls.Ended, s.Calls.Lost} {
			ended = append(ended, series{float64(n), []string{s.Name, serverOutcomes[i]}})
		}
	}
	server := Label{Name: "server", Values: names}
	return []current{
		gauge("farhand_mcp_server_up", "1 while this pod has a connection to an MCP server, otherwise 0.",
			by("server", up...)),
		gauge("farhand_mcp_server_tools", "Listed tools of an MCP server.", by("server", tools...)),
		counter("farhand_mcp_server_connects_total", "Attempts to connect to an MCP server since the start.",
			by("server", connects...)),
		counter("farhand_mcp_server_calls_total",
			"Calls to an MCP server: answered, also by a tool that failed; rejected, before they reached it; ended, "+
				"by their timeout or caller; lost, without a usable answer.",
			labeled(ended, server, Label{Name: "outcome", Values: serverOutcomes})),
		counter("farhand_mcp_server_seconds_total", "Total duration of answered calls to an MCP server.",
			labeled(took, server)),
	}
}

var serverOutcomes = []string{"answered", "rejected", "ended", "lost"}

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
		counter("farhand_wakes_total", "Requests to wake a sleeping device, by what this pod did.", by("did", asked...)),
		counter("farhand_wake_pushes_total", "Pushes to devices, by kind and by the push service's answer.",
			labeled(pushes, kind, outcome)),
	}
}

func httpHooks(all []hooks.Stats) []current {
	var names []string
	var questions, took []series
	for _, hook := range all {
		names = append(names, hook.Name)
		took = append(took, series{hook.Took.Seconds(), []string{hook.Name}})
		for outcome, n := range hook.Questions {
			questions = append(questions, series{float64(n), []string{hook.Name, outcome}})
		}
	}
	name := Label{Name: "hook", Values: names}
	return []current{
		counter("farhand_hook_questions_total",
			"Requests to HTTP hooks, by outcome. Failed requests had no valid response.",
			labeled(questions, name, Label{Name: "outcome", Values: hooks.Outcomes()})),
		counter("farhand_hook_seconds_total",
			"Total duration of requests to HTTP hooks, including time in the queue.",
			labeled(took, name)),
	}
}

func sessions(n routing.Stats) []current {
	return []current{
		gauge("farhand_sessions", "Sessions with a socket on this pod.", one(n.Sessions)),
		counter("farhand_sessions_opened_total",
			"Sessions opened on this pod. Resumed sessions were connected shortly before, to any pod.",
			by("resumed", part{"true", n.SessionsResumed}, part{"false", n.SessionsOpened - n.SessionsResumed})),
		counter("farhand_sessions_replaced_total", "Sessions of this pod that another connection took over.",
			one(n.SessionsReplaced)),
		counter("farhand_sessions_restored_total",
			"Sessions rewritten to the store after it lost them, by result.",
			by("result", part{"ok", n.SessionsRestored}, part{"failed", n.RestoresFailed})),
		counter("farhand_routes_total",
			"Lookups of sessions on other pods by id, by source: remembered from an earlier call, or read from the "+
				"store.",
			by("from", part{"memory", n.RoutesRemembered}, part{"store", n.RoutesRead})),
	}
}

func calls(n routing.Stats) []current {
	return []current{
		gauge("farhand_calls_in_progress",
			"Calls by place: pending calls wait here for a result, in_flight calls are at devices of this pod, "+
				"detached calls are at disconnected devices that may reconnect, running calls outlive their "+
				"requests, returning calls wait here for a device to reconnect. A call can be in several places.",
			by("place", part{"pending", n.Pending}, part{"in_flight", n.InFlight}, part{"detached", n.Detached},
				part{"running", n.Running}, part{"returning", n.Returns})),
		counter("farhand_calls_received_twice_total",
			"Calls received twice from another pod and delivered once.", one(n.ReceivedTwice)),
		gauge("farhand_tasks", "Short store operations in progress.", one(n.Tasks)),
		counter("farhand_call_returns_total",
			"Calls that waited for a device to reconnect, by whether it did in time.",
			by("came", part{"true", n.ReturnsCame}, part{"false", n.ReturnsMissed})),
		counter("farhand_queued_calls_total",
			"Calls to sleeping devices, by what happened on this pod: queued, delivered (begun), returned to the queue "+
				"because the device left before it had the call, expired.",
			by("event", part{"queued", n.CallsQueued}, part{"delivered", n.QueuedDelivered},
				part{"returned", n.QueuedAgain}, part{"expired", n.QueuedExpired})),
		gauge("farhand_queue_calls", "Calls of the fleet that wait for sleeping devices. Every pod reports all.",
			one(n.QueueCalls)),
		gauge("farhand_queue_oldest_seconds",
			"Age of the call of the fleet that expires next, of the tenant where it is oldest. Every pod reports all.",
			one(n.QueueOldest)),
	}
}

// places has where the gateway's tools keep state that outlives a call.
func places(n routing.Stats) []current {
	return []current{
		gauge("farhand_places",
			"Conversations and identities with a browser, a container or a workspace on this pod.",
			one(n.Places)),
		gauge("farhand_place_errands", "Calls from other pods that run here now because this pod holds their tools' "+
			"state.",
			one(n.Errands)),
		counter("farhand_place_calls_total",
			"Calls of tools with state, by the pod that holds the state and ran the call.",
			by("pod", part{"this", n.PlaceCallsHere}, part{"other", n.PlaceCallsThere})),
		counter("farhand_place_changes_total",
			"Changes of the pod that holds tools' state: taken over from a dead pod, with new state, or lost by this "+
				"pod, as detected at a refresh.",
			by("change", part{"taken_over", n.PlacesTaken}, part{"lost", n.PlacesLost})),
	}
}

func recorder(n routing.Stats) []current {
	return []current{
		gauge("farhand_recorder_queued_lines",
			"Queued lines of the activity feed and of calls' logs and records.", one(n.RecorderLines)),
		gauge("farhand_recorder_held_bytes",
			"Approximate bytes of lines that are queued or being written.", one(n.RecorderBytes)),
		gauge("farhand_recorder_unwritten_records",
			"Call records that could not be written and will be retried.", one(n.RecorderUnwritten)),
		counter("farhand_recorder_dropped_lines_total",
			"Lines lost because the queue was full or the store rejected them.", one(n.RecorderDropped)),
	}
}

// lease has the heartbeats of this pod, live and dead pods, and refusals of this pod.
func lease(n routing.Stats) []current {
	return []current{
		counter("farhand_heartbeats_total", "Renewals of this pod's lease, by result.",
			by("result", part{"ok", n.Heartbeats - n.HeartbeatsMissed}, part{"missed", n.HeartbeatsMissed})),
		gauge("farhand_pods_live", "Pods with a valid lease, as last seen by this pod.", one(n.PodsLive)),
		counter("farhand_pods_died_total", "Dead pods, with an expired lease, that this pod cleaned up after.",
			one(n.PodsDied)),
		counter("farhand_routing_refused_total",
			"Refusals of this pod, by the limit reached: calls in flight of one device, calls that outlive their "+
				"requests, short store operations, calls that wait for devices, calls from other pods for state on "+
				"this pod.",
			by("bound", part{"device", n.DeviceBusy}, part{"running", n.PodBusy}, part{"tasks", n.TasksRefused},
				part{"returning", n.ReturnsRefused}, part{"errands", n.ErrandsRefused})),
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

func authRefusals(n map[string]int64) []current {
	return []current{counter("farhand_auth_refused_total",
		"Refused requests, including those of devices: a forbidden web origin, a wrong or missing token, an invalid "+
			"WebSocket handshake, too many sessions or pairing requests from one source, too many pending pairing "+
			"requests.",
		counted("reason", auth.RefusalKinds(), n))}
}

func previousTokens(uses int64) []current {
	return []current{counter("farhand_auth_previous_token_total",
		"Requests and connections with a token of FARHAND_TOKEN_PREVIOUS.", one(uses))}
}

func turns(n chat.Stats) []current {
	return []current{
		gauge("farhand_turns", "Turns that run or wait for their conversation.", one(n.Turns)),
		counter("farhand_turns_refused_total", "Turns refused because the pod was at its limit.", one(n.Refused)),
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

// auditLog has the queue of the audit log, and the lines that were written and dropped.
func auditLog(n audit.Stats) []current {
	return []current{
		gauge("farhand_audit_queued_lines", "Queued lines of the audit log.", one(n.Waiting)),
		gauge("farhand_audit_held_bytes",
			"Approximate bytes of lines that are queued or being written.", one(n.Bytes)),
		counter("farhand_audit_lines_total",
			"Lines of the audit log, by result. Dropped lines were lost in a long outage of the store.",
			by("result", part{"written", n.Written}, part{"dropped", n.Dropped})),
	}
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

var poolNames = []string{
	"answer_bytes", "argument_bytes", "attribute_bytes", "body_bytes", "browsers", "catching_up",
	"checked_answer_bytes", "checked_answers", "checking_schemas", "commands", "compiling_schemas", "decoding",
	"decoding_large", "deliveries", "downloads", "erasures", "errands", "exports", "group_calls", "hook_bytes", "hook_messages",
	"hook_questions",
	"idle_connections", "large_argument_bytes", "large_checked_answer_bytes", "late_answers", "mcp_answer_bytes",
	"mcp_calls", "message_bytes", "node_handshakes", "offered_bytes", "opening", "parsing", "pushes", "reading", "registering", "requests",
	"returning_calls", "running_calls", "sockets", "streams", "tasks", "turn_bytes", "turns", "unsent_bytes",
	"uploads", "validating", "validating_answers", "waiting_requests", "wakes",
}

// pools has the usage of the pools that tenants share. A pool may have several parts.
func pools(parts []map[string]share.Stats) []current {
	var held, waiting, refused []series
	all := make(map[string]share.Stats)
	for _, part := range parts {
		for name, stats := range part {
			all[name] = all[name].Plus(stats)
		}
	}
	for name, stats := range all {
		held = append(held, series{float64(stats.Held), []string{name}})
		waiting = append(waiting, series{float64(stats.Waiting), []string{name}})
		for bound, n := range stats.Refused {
			refused = append(refused, series{float64(n), []string{name, string(bound)}})
		}
	}
	name := Label{Name: "pool", Values: poolNames}
	return []current{
		gauge("farhand_pool_held",
			"Usage of each pool that tenants share: in bytes if its name says so, otherwise a count.",
			labeled(held, name)),
		gauge("farhand_pool_waiting", "Requests that wait for capacity of a pool.", labeled(waiting, name)),
		counter("farhand_pool_refused_total",
			"Requests that got no capacity of a pool, immediately or after waiting, by whose limit was reached.",
			labeled(refused, name, Label{Name: "bound", Values: texts(share.AllBounds())})),
	}
}
