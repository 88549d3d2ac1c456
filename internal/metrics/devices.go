package metrics

import (
	"github.com/farhand/farhand/agent/group"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

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
		counter("farhand_wakes_total", "Requests to wake a sleeping device, by what this pod did.", by("did", asked...)),
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
