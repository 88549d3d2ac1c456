package metrics

import (
	"github.com/farhand/farhand/agent/access/audit"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

// Pod has the functions that read the counters of a pod.
type Pod struct {
	Routing    func() routing.Stats
	Sockets    func() ws.Stats
	API        func() api.Stats
	Refusals   func() map[string]int64
	Audit      func() audit.Stats
	Turns      func() chat.Stats                      // nil without a model
	RedisPools func() map[string]redisstore.PoolStats // nil without Redis
	Bus        func() bus.Stats                       // nil without Redis
	PolicyFile func() policy.Status                   // nil without a policy file
	Hooks      []func() hooks.Stats                   // of the HTTP hooks
	MCPServers func() []upstream.Status               // nil without MCP servers
	Pools      []func() map[string]share.Stats        // by name, which is one of poolNames
}

func policyFile(n policy.Status) []current {
	refused := int64(0)
	if n.Err != nil {
		refused = 1
	}
	return []current{
		gauge("farhand_policy_file_refused",
			"1 while the policy file that is there now is not in force because it cannot be used, else 0.",
			one(refused)),
		counter("farhand_policy_reloads_total",
			"Policy files that were read since the start, by whether they came in force.",
			by("result", part{"ok", int64(n.Reloads)}, part{"refused", int64(n.Refused)})),
	}
}

func mcpServers(all []upstream.Status) []current {
	var up, tools, connects []part
	for _, s := range all {
		connected := part{s.Name, 0}
		if s.Connected {
			connected.n = 1
		}
		up, tools = append(up, connected), append(tools, part{s.Name, int64(s.Tools)})
		connects = append(connects, part{s.Name, s.Attempts})
	}
	return []current{
		gauge("farhand_mcp_server_up", "1 while this pod has a connection to an MCP server, else 0.",
			by("server", up...)),
		gauge("farhand_mcp_server_tools", "Tools of an MCP server that are listed.", by("server", tools...)),
		counter("farhand_mcp_server_connects_total", "Attempts to connect to an MCP server since the start.",
			by("server", connects...)),
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
	name := Label{"hook", names}
	return []current{
		counter("farhand_hook_questions_total",
			"Questions to HTTP hooks, by what came of them: failed ones had no answer that could be used.",
			labeled(questions, name, Label{"outcome", hooks.Outcomes()})),
		counter("farhand_hook_seconds_total",
			"How long those questions took, all together, waiting for their turns included.",
			labeled(took, name)),
	}
}

func sessions(n routing.Stats) []current {
	return []current{
		gauge("farhand_sessions", "Sessions whose sockets are on this pod.", one(n.Sessions)),
		counter("farhand_sessions_opened_total",
			"Sessions that were opened on this pod; resumed ones had been connected a moment before, here or "+
				"elsewhere.",
			by("resumed", part{"true", n.SessionsResumed}, part{"false", n.SessionsOpened - n.SessionsResumed})),
		counter("farhand_sessions_replaced_total", "Sessions of this pod that another connection took over.",
			one(n.SessionsReplaced)),
		counter("farhand_sessions_restored_total",
			"Sessions that were written to the store again because it had lost them, by whether that worked.",
			by("result", part{"ok", n.SessionsRestored}, part{"failed", n.RestoresFailed})),
		counter("farhand_routes_total",
			"Sessions of other pods that calls named by their ids, by how this pod found them: remembered from an "+
				"earlier call, or read from the store.",
			by("from", part{"memory", n.RoutesRemembered}, part{"store", n.RoutesRead})),
	}
}

func calls(n routing.Stats) []current {
	return []current{
		gauge("farhand_calls_in_progress",
			"Calls by where they are: pending wait here for their answers, in_flight are at devices of this pod, "+
				"detached are at devices that may come back, running outlive their requests, "+
				"returning wait here for a device that is expected back. One call can be in several places.",
			by("place", part{"pending", n.Pending}, part{"in_flight", n.InFlight}, part{"detached", n.Detached},
				part{"running", n.Running}, part{"returning", n.Returns})),
		counter("farhand_calls_received_twice_total",
			"Calls that came twice from another pod and were delivered once.", one(n.ReceivedTwice)),
		gauge("farhand_tasks", "Short exchanges with the store that are under way.", one(n.Tasks)),
		counter("farhand_call_returns_total",
			"Waits of calls for a device that was expected back, by whether it came while they waited.",
			by("came", part{"true", n.ReturnsCame}, part{"false", n.ReturnsMissed})),
	}
}

// places has where the gateway's tools keep state that outlives a call.
func places(n routing.Stats) []current {
	return []current{
		gauge("farhand_places",
			"Conversations and identities for which this pod keeps a browser, a container or a workspace.",
			one(n.Places)),
		gauge("farhand_place_errands", "Calls of other pods for what this pod keeps that run here now.",
			one(n.Errands)),
		counter("farhand_place_calls_total",
			"Calls of tools that keep something, by the pod that they went to from this one: the one that keeps it.",
			by("pod", part{"this", n.PlaceCallsHere}, part{"other", n.PlaceCallsThere})),
		counter("farhand_place_changes_total",
			"Changes of who keeps something: taken over by this pod from one that is gone, which begins it anew; or "+
				"lost by this pod, as it finds out when it refreshes what it keeps.",
			by("change", part{"taken_over", n.PlacesTaken}, part{"lost", n.PlacesLost})),
	}
}

func recorder(n routing.Stats) []current {
	return []current{
		gauge("farhand_recorder_queued_lines",
			"Lines of the activity feed, of logs and records of calls that wait to be written.", one(n.RecorderLines)),
		gauge("farhand_recorder_held_bytes",
			"About how many bytes those lines take that wait or are being written.", one(n.RecorderBytes)),
		gauge("farhand_recorder_unwritten_records",
			"Records of calls that could not be written and are tried again.", one(n.RecorderUnwritten)),
		counter("farhand_recorder_dropped_lines_total",
			"Lines that were lost because there was no room or the store did not take them.", one(n.RecorderDropped)),
	}
}

// lease has the heartbeats of this pod, the pods that live and died, and what this pod had no room for.
func lease(n routing.Stats) []current {
	return []current{
		counter("farhand_heartbeats_total", "Renewals of this pod's lease, by whether the store took them.",
			by("result", part{"ok", n.Heartbeats - n.HeartbeatsMissed}, part{"missed", n.HeartbeatsMissed})),
		gauge("farhand_pods_live", "Pods with a valid lease, as this pod saw them last.", one(n.PodsLive)),
		counter("farhand_pods_died_total", "Pods whose leases lapsed and that this pod cleaned up after.",
			one(n.PodsDied)),
		counter("farhand_routing_refused_total",
			"What this pod had no room for, by the bound it met: calls in flight of one device, "+
				"calls that outlive their requests, short exchanges with the store, calls that wait for devices, "+
				"calls of other pods for what this pod keeps.",
			by("bound", part{"device", n.DeviceBusy}, part{"running", n.PodBusy}, part{"tasks", n.TasksRefused},
				part{"returning", n.ReturnsRefused}, part{"errands", n.ErrandsRefused})),
	}
}

func sockets(n ws.Stats) []current {
	return []current{
		gauge("farhand_sockets", "Open connections of devices.", one(n.Open)),
		gauge("farhand_sockets_opening",
			"Connections by how far they are: opening talk to the store now, queued wait for that.",
			by("state", part{"opening", n.Opening}, part{"queued", n.Queued})),
		counter("farhand_sockets_opened_total", "Connections of devices that were accepted.", one(n.Opened)),
		counter("farhand_sockets_closed_total",
			"Connections of devices that ended, by reason; gone means that the device went or its network did.",
			counted("reason", ws.CloseReasons(), n.Closed)),
		counter("farhand_sockets_refused_total",
			"Requests for a connection that were refused, by the code of the error.",
			counted("code", texts(registry.Codes()), n.Refused)),
	}
}

func traffic(n ws.Stats) []current {
	return []current{
		counter("farhand_frames_received_total",
			"Frames from devices, by type; other are those that were not understood.",
			counted("type", ws.ReceivedTypes(), n.Received)),
		counter("farhand_frames_sent_total", "Frames to devices, by type.", counted("type", ws.SentTypes(), n.Sent)),
		counter("farhand_acknowledgements_total",
			"Acknowledgements of results to devices, by whether they were written alone or together with another "+
				"frame.",
			by("written", part{"together", n.AcknowledgedTogether}, part{"alone", n.AcknowledgedAlone})),
		counter("farhand_socket_bytes_total", "Bytes from devices (in) and to them (out).",
			by("direction", part{"in", n.BytesIn}, part{"out", n.BytesOut})),
		gauge("farhand_outbox_frames", "Frames that wait to be written to devices.", one(n.OutboxFrames)),
		gauge("farhand_outbox_bytes", "Bytes that wait to be written to devices.", one(n.OutboxBytes)),
		gauge("farhand_outbox_fullest_bytes", "Bytes that wait for the device with the most of them.",
			one(n.FullestOutbox)),
		gauge("farhand_unhandled_bytes",
			"Bytes received of messages that are not complete or not handled yet.", one(n.UnhandledBytes)),
	}
}

func refusals(n api.Stats) []current {
	return []current{
		gauge("farhand_http_held_requests",
			"Requests that stay open: event streams and streamed turns, and requests that wait for a call.",
			by("kind", part{"streams", n.Streams}, part{"waiting", n.Waiting})),
		counter("farhand_http_refused_total",
			"Requests the API had no room for, by the bound they met: event streams, requests that wait for "+
				"a call, bytes of answers, bytes of request bodies.",
			by("bound", part{"streams", n.StreamsRefused}, part{"waiting", n.WaitingRefused},
				part{"answers", n.AnswersRefused}, part{"bodies", n.BodiesRefused})),
	}
}

func authRefusals(n map[string]int64) []current {
	return []current{counter("farhand_auth_refused_total",
		"Requests, of devices too, that were refused: a web origin that is not allowed, a wrong or "+
			"missing token, no proper WebSocket handshake, too many sessions or requests to pair from one source, "+
			"no room for another request to pair.",
		counted("reason", auth.RefusalKinds(), n))}
}

func turns(n chat.Stats) []current {
	return []current{
		gauge("farhand_turns", "Turns that run or wait for their conversation.", one(n.Turns)),
		counter("farhand_turns_refused_total", "Turns the pod had no room for.", one(n.Refused)),
	}
}

// auditLog has the queue of the audit log, and the lines that were written and dropped.
func auditLog(n audit.Stats) []current {
	return []current{
		gauge("farhand_audit_queued_lines", "Lines of the audit log that wait to be written.", one(n.Waiting)),
		gauge("farhand_audit_held_bytes",
			"About how many bytes those lines take that wait or are being written.", one(n.Bytes)),
		counter("farhand_audit_lines_total",
			"Lines of the audit log, by what became of them: dropped ones were lost because the store was away for "+
				"long.",
			by("result", part{"written", n.Written}, part{"dropped", n.Dropped})),
	}
}

func redisPools(all map[string]redisstore.PoolStats) []current {
	each := func(of func(redisstore.PoolStats) float64) current {
		var pools []series
		for name, p := range all {
			pools = append(pools, series{of(p), []string{name}})
		}
		return labeled(pools, Label{"pool", []string{redisstore.PoolCommands, redisstore.PoolSessions}})
	}
	type pool = redisstore.PoolStats
	return []current{
		gauge("farhand_redis_connections", "Open connections to Redis, by pool.",
			each(func(p pool) float64 { return float64(p.Open) })),
		gauge("farhand_redis_idle_connections", "Idle connections to Redis, by pool.",
			each(func(p pool) float64 { return float64(p.Idle) })),
		counter("farhand_redis_pool_waits_total", "Times a command had to wait for a connection, by pool.",
			each(func(p pool) float64 { return float64(p.Waits) })),
		counter("farhand_redis_pool_wait_seconds_total",
			"How long commands waited for connections altogether, by pool.",
			each(func(p pool) float64 { return p.Waited.Seconds() })),
		counter("farhand_redis_pool_timeouts_total", "Times no connection became free in time, by pool.",
			each(func(p pool) float64 { return float64(p.Timeouts) })),
	}
}

// busMessages has what the bus sent, its queue lengths and its failures.
func busMessages(n bus.Stats) []current {
	return []current{
		counter("farhand_bus_sent_messages_total", "Messages that were sent to other pods, by queue.",
			by("queue", part{"envelopes", n.CallsSent}, part{"replies", n.RepliesSent})),
		counter("farhand_bus_sent_packets_total",
			"Packets in which those messages travelled, by queue: messages that leave for one pod at the same moment "+
				"share a packet.",
			by("queue", part{"envelopes", n.CallPackets}, part{"replies", n.ReplyPackets})),
		gauge("farhand_bus_queued_messages", "Messages that wait to be sent to other pods, by queue.",
			by("queue", part{"envelopes", n.CallsQueued}, part{"replies", n.RepliesQueued},
				part{"retries", n.RepliesPutOff})),
		gauge("farhand_bus_queued_bytes", "Bytes of the messages that wait to be sent to other pods, by queue.",
			by("queue", part{"envelopes", n.CallBytesQueued}, part{"replies", n.ReplyBytesQueued},
				part{"retries", n.PutOffBytesQueued})),
		counter("farhand_bus_events_total", "What went wrong between pods, and was mended or not, by what it was.",
			by("event", part{"envelope_refused", n.CallsRefused}, part{"reply_refused", n.RepliesRefused},
				part{"reply_published", n.RepliesPublished}, part{"reply_retried", n.RepliesRetried},
				part{"reply_lost", n.RepliesLost}, part{"malformed", n.Malformed},
				part{"resubscribed", n.Resubscribed}, part{"panic", n.Panics})),
	}
}

var poolNames = []string{
	"answer_bytes", "argument_bytes", "body_bytes", "browsers", "catching_up", "checked_answer_bytes",
	"checked_answers", "checking_schemas", "commands", "compiling_schemas", "decoding", "decoding_large", "downloads",
	"errands", "exports", "hook_bytes", "hook_messages", "hook_questions", "idle_connections", "large_argument_bytes",
	"large_checked_answer_bytes", "late_answers", "mcp_calls", "message_bytes", "offered_bytes", "opening", "parsing",
	"reading", "registering", "requests", "returning_calls", "running_calls", "sockets", "streams", "tasks",
	"turn_bytes", "turns", "unsent_bytes", "uploads", "validating", "validating_answers", "waiting_requests",
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
	name := Label{"pool", poolNames}
	return []current{
		gauge("farhand_pool_held",
			"What is held of each pool that tenants share, in its unit: bytes where its name says so, else how many.",
			labeled(held, name)),
		gauge("farhand_pool_waiting", "Requests that wait for a part of a pool.", labeled(waiting, name)),
		counter("farhand_pool_refused_total",
			"Requests that got no part of a pool, at once or after they had waited, by whose bound they met.",
			labeled(refused, name, Label{"bound", texts(share.AllBounds())})),
	}
}
