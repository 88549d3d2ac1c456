package metrics

import (
	"github.com/farhand/farhand/agent/access/audit"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/api"
	parts "github.com/farhand/farhand/internal/share"
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
	Refusals   func(kind string) int64
	Audit      func() audit.Stats
	Turns      func() chat.Stats                      // nil without a model
	RedisPools func() map[string]redisstore.PoolStats // nil without Redis
	Bus        func() bus.Stats                       // nil without Redis
	PolicyFile func() policy.Status                   // nil without a policy file
	Hooks      []func() hooks.Stats                   // of the HTTP hooks
	MCPServers func() []upstream.Status               // nil without MCP servers
	Pools      []func() map[string]parts.Stats        // by name, which is one of poolNames
}

// policyFile exports whether the policy in force matches its file.
func (s *Set) policyFile(read func() policy.Status) {
	type status = policy.Status
	s.gauge("farhand_policy_file_refused",
		"1 while the policy file that is there now is not in force because it cannot be used, else 0.",
		number(read, func(s status) int64 {
			if s.Err != nil {
				return 1
			}
			return 0
		}))
	s.counter("farhand_policy_reloads_total",
		"Policy files that were read since the start, by whether they came in force.",
		shares("result", read, func(s status) []share {
			return []share{{"ok", int64(s.Reloads)}, {"refused", int64(s.Refused)}}
		}))
}

// mcpServers exports whether this pod is connected to MCP servers.
func (s *Set) mcpServers(read func() []upstream.Status) {
	if read == nil {
		return
	}
	var names []string
	for _, server := range read() {
		names = append(names, server.Name)
	}
	each := func(value func(upstream.Status) float64) source {
		return source{[]Label{{"server", names}}, func(emit emitFunc) {
			for _, server := range read() {
				emit(value(server), server.Name)
			}
		}}
	}
	s.gauge("farhand_mcp_server_up", "1 while this pod has a connection to an MCP server, else 0.",
		each(func(s upstream.Status) float64 {
			if s.Connected {
				return 1
			}
			return 0
		}))
	s.gauge("farhand_mcp_server_tools", "Tools of an MCP server that are listed.",
		each(func(s upstream.Status) float64 { return float64(s.Tools) }))
	s.counter("farhand_mcp_server_connects_total", "Attempts to connect to an MCP server since the start.",
		each(func(s upstream.Status) float64 { return float64(s.Attempts) }))
}

// hooks exports the outcomes of questions to HTTP hooks.
func (s *Set) hooks(reads []func() hooks.Stats) {
	names := make([]string, len(reads))
	for i, read := range reads {
		names[i] = read().Name
	}
	label := Label{"hook", names}
	s.counter("farhand_hook_questions_total",
		"Questions to HTTP hooks, by what came of them: failed ones had no answer that could be used.",
		source{[]Label{label, {"outcome", hooks.Outcomes()}}, func(emit emitFunc) {
			for _, read := range reads {
				stats := read()
				for outcome, n := range stats.Questions {
					emit(float64(n), stats.Name, outcome)
				}
			}
		}})
	s.counter("farhand_hook_seconds_total",
		"How long those questions took, all together, waiting for their turns included.",
		source{[]Label{label}, func(emit emitFunc) {
			for _, read := range reads {
				stats := read()
				emit(stats.Took.Seconds(), stats.Name)
			}
		}})
}

// routing exports sessions, calls, the recorder and the lease.
func (s *Set) routing(read func() routing.Stats) {
	type stats = routing.Stats
	s.gauge("farhand_sessions",
		"Sessions whose sockets are on this pod.", number(read, func(s stats) int64 { return s.Sessions }))
	s.counter("farhand_sessions_opened_total",
		"Sessions that were opened on this pod; resumed ones had been connected a moment before, here or elsewhere.",
		shares("resumed", read, func(n stats) []share {
			return []share{{"true", n.SessionsResumed}, {"false", n.SessionsOpened - n.SessionsResumed}}
		}))
	s.counter("farhand_sessions_replaced_total", "Sessions of this pod that another connection took over.",
		number(read, func(s stats) int64 { return s.SessionsReplaced }))
	s.counter("farhand_sessions_restored_total",
		"Sessions that were written to the store again because it had lost them, by whether that worked.",
		shares("result", read, func(n stats) []share {
			return []share{{"ok", n.SessionsRestored}, {"failed", n.RestoresFailed}}
		}))
	s.gauge("farhand_calls_in_progress",
		"Calls by where they are: pending wait here for their answers, in_flight are at devices of this pod, "+
			"detached are at devices that may come back, running outlive their requests, "+
			"returning wait here for a device that is expected back. One call can be in several places.",
		shares("place", read, func(n stats) []share {
			return []share{
				{"pending", n.Pending}, {"in_flight", n.InFlight},
				{"detached", n.Detached}, {"running", n.Running}, {"returning", n.Returns},
			}
		}))
	s.counter("farhand_calls_received_twice_total",
		"Calls that came twice from another pod and were delivered once.",
		number(read, func(s stats) int64 { return s.ReceivedTwice }))
	s.counter("farhand_routes_total",
		"Sessions of other pods that calls named by their ids, by how this pod found them: remembered from an "+
			"earlier call, or read from the store.",
		shares("from", read, func(n stats) []share {
			return []share{{"memory", n.RoutesRemembered}, {"store", n.RoutesRead}}
		}))
	s.gauge("farhand_tasks",
		"Short exchanges with the store that are under way.", number(read, func(s stats) int64 { return s.Tasks }))
	s.counter("farhand_call_returns_total",
		"Waits of calls for a device that was expected back, by whether it came while they waited.",
		shares("came", read, func(n stats) []share {
			return []share{{"true", n.ReturnsCame}, {"false", n.ReturnsMissed}}
		}))
	s.places(read)
	s.recorder(read)
	s.lease(read)
}

// places exports where the gateway's tools keep state that outlives a call.
func (s *Set) places(read func() routing.Stats) {
	type stats = routing.Stats
	s.gauge("farhand_places",
		"Conversations and identities for which this pod keeps a browser, a container or a workspace.",
		number(read, func(s stats) int64 { return s.Places }))
	s.gauge("farhand_place_errands", "Calls of other pods for what this pod keeps that run here now.",
		number(read, func(s stats) int64 { return s.Errands }))
	s.counter("farhand_place_calls_total",
		"Calls of tools that keep something, by the pod that they went to from this one: the one that keeps it.",
		shares("pod", read, func(n stats) []share {
			return []share{{"this", n.PlaceCallsHere}, {"other", n.PlaceCallsThere}}
		}))
	s.counter("farhand_place_changes_total",
		"Changes of who keeps something: taken over by this pod from one that is gone, which begins it anew; or lost "+
			"by this pod, as it finds out when it refreshes what it keeps.",
		shares("change", read, func(n stats) []share {
			return []share{{"taken_over", n.PlacesTaken}, {"lost", n.PlacesLost}}
		}))
}

// recorder exports the lines that wait to be written to the store.
func (s *Set) recorder(read func() routing.Stats) {
	type stats = routing.Stats
	s.gauge("farhand_recorder_queued_lines",
		"Lines of the activity feed, of logs and records of calls that wait to be written.",
		number(read, func(s stats) int64 { return s.RecorderLines }))
	s.gauge("farhand_recorder_held_bytes", "About how many bytes those lines take that wait or are being written.",
		number(read, func(s stats) int64 { return s.RecorderBytes }))
	s.gauge("farhand_recorder_unwritten_records",
		"Records of calls that could not be written and are tried again.",
		number(read, func(s stats) int64 { return s.RecorderUnwritten }))
	s.counter("farhand_recorder_dropped_lines_total",
		"Lines that were lost because there was no room or the store did not take them.",
		number(read, func(s stats) int64 { return s.RecorderDropped }))
}

// lease exports the heartbeats of this pod, and the pods that live and died.
func (s *Set) lease(read func() routing.Stats) {
	type stats = routing.Stats
	s.counter("farhand_heartbeats_total", "Renewals of this pod's lease, by whether the store took them.",
		shares("result", read, func(n stats) []share {
			return []share{{"ok", n.Heartbeats - n.HeartbeatsMissed}, {"missed", n.HeartbeatsMissed}}
		}))
	s.gauge("farhand_pods_live", "Pods with a valid lease, as this pod saw them last.",
		number(read, func(s stats) int64 { return s.PodsLive }))
	s.counter("farhand_pods_died_total", "Pods whose leases lapsed and that this pod cleaned up after.",
		number(read, func(s stats) int64 { return s.PodsDied }))
	s.counter("farhand_routing_refused_total",
		"What this pod had no room for, by the bound it met: calls in flight of one device, "+
			"calls that outlive their requests, short exchanges with the store, calls that wait for devices, "+
			"calls of other pods for what this pod keeps.",
		shares("bound", read, func(n stats) []share {
			return []share{
				{"device", n.DeviceBusy}, {"running", n.PodBusy}, {"tasks", n.TasksRefused},
				{"returning", n.ReturnsRefused}, {"errands", n.ErrandsRefused},
			}
		}))
}

// sockets exports connections of devices, and their traffic.
func (s *Set) sockets(read func() ws.Stats) {
	type stats = ws.Stats
	s.gauge("farhand_sockets", "Open connections of devices.", number(read, func(s stats) int64 { return s.Open }))
	s.gauge("farhand_sockets_opening",
		"Connections by how far they are: opening talk to the store now, queued wait for that.",
		shares("state", read, func(n stats) []share {
			return []share{{"opening", n.Opening}, {"queued", n.Queued}}
		}))
	s.counter("farhand_sockets_opened_total",
		"Connections of devices that were accepted.", number(read, func(s stats) int64 { return s.Opened }))
	s.counter("farhand_sockets_closed_total",
		"Connections of devices that ended, by reason; gone means that the device went or its network did.",
		source{[]Label{{"reason", ws.CloseReasons()}}, func(emit emitFunc) { emitAll(emit, read().Closed) }})
	s.counter("farhand_sockets_refused_total", "Requests for a connection that were refused, by the code of the error.",
		source{[]Label{{"code", texts(registry.Codes())}}, func(emit emitFunc) { emitAll(emit, read().Refused) }})
	s.counter("farhand_frames_received_total",
		"Frames from devices, by type; other are those that were not understood.",
		source{[]Label{{"type", ws.ReceivedTypes()}}, func(emit emitFunc) { emitAll(emit, read().Received) }})
	s.counter("farhand_frames_sent_total", "Frames to devices, by type.",
		source{[]Label{{"type", ws.SentTypes()}}, func(emit emitFunc) { emitAll(emit, read().Sent) }})
	s.counter("farhand_acknowledgements_total",
		"Acknowledgements of results to devices, by whether they were written alone or together with another frame.",
		shares("written", read, func(n stats) []share {
			return []share{{"together", n.AcknowledgedTogether}, {"alone", n.AcknowledgedAlone}}
		}))
	s.counter("farhand_socket_bytes_total", "Bytes from devices (in) and to them (out).",
		shares("direction", read, func(n stats) []share {
			return []share{{"in", n.BytesIn}, {"out", n.BytesOut}}
		}))
	s.gauge("farhand_outbox_frames",
		"Frames that wait to be written to devices.", number(read, func(s stats) int64 { return s.OutboxFrames }))
	s.gauge("farhand_outbox_bytes",
		"Bytes that wait to be written to devices.", number(read, func(s stats) int64 { return s.OutboxBytes }))
	s.gauge("farhand_outbox_fullest_bytes", "Bytes that wait for the device with the most of them.",
		number(read, func(s stats) int64 { return s.FullestOutbox }))
	s.gauge("farhand_unhandled_bytes", "Bytes received of messages that are not complete or not handled yet.",
		number(read, func(s stats) int64 { return s.UnhandledBytes }))
}

// refusals exports what the API and the agent hold and reject, and the requests that authentication rejected.
func (s *Set) refusals(read func() api.Stats, refused func(kind string) int64, turns func() chat.Stats) {
	s.gauge("farhand_http_held_requests",
		"Requests that stay open: event streams and streamed turns, and requests that wait for a call.",
		shares("kind", read, func(n api.Stats) []share {
			return []share{{"streams", n.Streams}, {"waiting", n.Waiting}}
		}))
	s.counter("farhand_http_refused_total",
		"Requests the API had no room for, by the bound they met: event streams, requests that wait for "+
			"a call, bytes of answers, bytes of request bodies.",
		shares("bound", read, func(n api.Stats) []share {
			return []share{
				{"streams", n.StreamsRefused}, {"waiting", n.WaitingRefused},
				{"answers", n.AnswersRefused}, {"bodies", n.BodiesRefused},
			}
		}))
	s.counter("farhand_auth_refused_total",
		"Requests, of devices too, that were refused: a web origin that is not allowed, a wrong or "+
			"missing token, no proper WebSocket handshake, too many sessions or requests to pair from one source, "+
			"no room for another request to pair.",
		source{[]Label{{"reason", auth.RefusalKinds()}}, func(emit emitFunc) {
			for _, kind := range auth.RefusalKinds() {
				emit(float64(refused(kind)), kind)
			}
		}})
	s.gauge("farhand_turns",
		"Turns that run or wait for their conversation.", number(turns, func(s chat.Stats) int64 { return s.Turns }))
	s.counter("farhand_turns_refused_total",
		"Turns the pod had no room for.", number(turns, func(s chat.Stats) int64 { return s.Refused }))
}

// audit exports the queue of the audit log, and the lines that were written and dropped.
func (s *Set) audit(read func() audit.Stats) {
	type stats = audit.Stats
	s.gauge("farhand_audit_queued_lines",
		"Lines of the audit log that wait to be written.", number(read, func(s stats) int64 { return s.Waiting }))
	s.gauge("farhand_audit_held_bytes", "About how many bytes those lines take that wait or are being written.",
		number(read, func(s stats) int64 { return s.Bytes }))
	s.counter("farhand_audit_lines_total",
		"Lines of the audit log, by what became of them: dropped ones were lost because the store was away for long.",
		shares("result", read, func(n stats) []share {
			return []share{{"written", n.Written}, {"dropped", n.Dropped}}
		}))
}

func emitAll[K ~string](emit emitFunc, counts map[K]int64) {
	for value, n := range counts {
		emit(float64(n), string(value))
	}
}
