package metrics

import (
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/audit"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/internal/certificate"
	"github.com/farhand/farhand/internal/reload"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

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
			"Calls to sleeping devices, by what happened on this pod: queued, delivered (begun), returned to the "+
				"queue because the device left before it had the call, expired.",
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

func approvals(n approval.Stats) []current {
	return []current{
		gauge("farhand_approvals_waiting",
			"Undecided approvals that this pod requested since its start, at most 10,000.", one(n.Waiting)),
		gauge("farhand_approvals_oldest_seconds", "Age of the oldest of these approvals; 0 if there is none.",
			labeled([]series{{n: n.Oldest.Seconds()}})),
	}
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
			"Budgets of tenants and identities whose warning share, or all, was spent. "+
				"The fleet counts each once a day.",
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

func turns(n chat.Stats) []current {
	return []current{
		gauge("farhand_turns", "Turns that run or wait for their conversation.", one(n.Turns)),
		counter("farhand_turns_refused_total", "Turns refused because the pod was at its limit.", one(n.Refused)),
	}
}
