package metrics

import (
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/agent/tools/upstream"
)

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
