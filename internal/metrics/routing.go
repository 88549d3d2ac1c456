package metrics

import (
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
