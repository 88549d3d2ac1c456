package grafana_test

// perSecond returns an expression of the rate of a counter by a label. matchers are further ones, beside the pods'.
func perSecond(counter, label, matchers string) string {
	return "sum by (" + label + ") (rate(" + counter + "{$i" + matchers + "}[$__rate_interval]))"
}

// rate returns a panel with the rates of a counter by a label.
func rate(title, counter, label string) panel {
	return graph(title, "short", perSecond(counter, label, ""), "{{"+label+"}}")
}

// level returns a panel with the sum of a gauge by a label.
func level(title, unit, gauge, label string) panel {
	return graph(title, unit, "sum by ("+label+") ("+gauge+"{$i})", "{{"+label+"}}")
}

// slowest returns a panel with the latency of half and of 99 of 100 events, by a label.
func slowest(title, histogram, label string) panel {
	p := panel{title: title, unit: "s"}
	for _, quantile := range []string{"0.5", "0.99"} {
		p.queries = append(p.queries, query{"histogram_quantile(" + quantile + ", sum by (le, " + label + ") (rate(" +
			histogram + "_bucket{$i}[$__rate_interval])))", "{{" + label + "}} " + quantile})
	}
	return p
}

// mean returns a panel with the mean duration of events, by a label.
func mean(title, seconds, counter, label string) panel {
	return graph(title, "s", perSecond(seconds, label, "")+" / "+perSecond(counter, label, ""), "{{"+label+"}}")
}

// dashboards are all pages.
var dashboards = []dashboard{
	{"fleet", "fleet", []row{
		{"Pods", []panel{
			graph("Pods that answer", "short", `sum(up{job="farhand"})`, "pods"),
			level("Live pods, as each sees them", "short", "farhand_pods_live", "instance"),
			rate("Heartbeats", "farhand_heartbeats_total", "result"),
			rate("Dead pods cleaned up", "farhand_pods_died_total", "instance"),
			level("Stopping", "percentunit", "farhand_drain_used_ratio", "instance"),
			level("Version", "short", "farhand_build_info", "version"),
		}},
		{"Machine", []panel{
			rate("Processors", "process_cpu_seconds_total", "instance"),
			{"Memory", "bytes", []query{
				{"process_resident_memory_bytes{$i}", "{{instance}}"},
				{"go_memstats_heap_alloc_bytes{$i}", "{{instance}} heap"},
				{"farhand_memory_limit_bytes{$i}", "{{instance}} limit"},
			}},
			graph("Descriptors in use", "percentunit", "process_open_fds{$i} / process_max_fds{$i}", "{{instance}}"),
			level("Goroutines", "short", "go_goroutines", "instance"),
			graph("Free disk", "percentunit", "farhand_disk_free_bytes{$i} / farhand_disk_size_bytes{$i}",
				"{{instance}} {{folder}}"),
			graph("Certificate expires in", "s", "farhand_tls_certificate_expiry_timestamp_seconds{$i} - time()",
				"{{instance}}"),
		}},
		{"Tenants", []panel{
			rate("Calls", "farhand_tenant_calls_total", "tenant"),
			graph("Failed calls", "short", perSecond("farhand_tenant_calls_total", "tenant", `,result="failed"`),
				"{{tenant}}"),
			level("Connections of devices", "short", "farhand_tenant_connections", "tenant"),
		}},
		{"Pools", []panel{
			graph("Most used", "short", `topk(10, sum by (pool) (farhand_pool_held{$i,pool!~".*_bytes"}))`, "{{pool}}"),
			graph("Most bytes", "bytes", `topk(10, sum by (pool) (farhand_pool_held{$i,pool=~".*_bytes"}))`,
				"{{pool}}"),
			level("Waiting", "short", "farhand_pool_waiting", "pool"),
			graph("Refused", "short",
				"sum by (pool, bound) (rate(farhand_pool_refused_total{$i}[$__rate_interval]))", "{{pool}} {{bound}}"),
		}},
		{"Configuration, audit log and records", []panel{
			{"Refused files", "short", []query{
				{"farhand_policy_file_refused{$i}", "policy {{instance}}"},
				{"farhand_tls_certificate_refused{$i}", "certificate {{instance}}"},
				{"farhand_model_prices_refused{$i}", "model prices {{instance}}"},
			}},
			rate("Policy files read", "farhand_policy_reloads_total", "result"),
			rate("Refused requests", "farhand_auth_refused_total", "reason"),
			rate("Uses of previous tokens", "farhand_auth_previous_token_total", "instance"),
			rate("Spans", "farhand_trace_spans_total", "outcome"),
			rate("Written by a newer release", "farhand_unreadable_total", "kind"),
			rate("Audit lines", "farhand_audit_lines_total", "result"),
			{"Queued lines", "short", []query{
				{"sum(farhand_audit_queued_lines{$i})", "audit"},
				{"sum(farhand_recorder_queued_lines{$i})", "recorder"},
				{"sum(farhand_recorder_unwritten_records{$i})", "unwritten records"},
			}},
			{"Bytes of queued lines", "bytes", []query{
				{"sum(farhand_audit_held_bytes{$i})", "audit"}, {"sum(farhand_recorder_held_bytes{$i})", "recorder"},
			}},
			rate("Dropped lines", "farhand_recorder_dropped_lines_total", "instance"),
		}},
	}},
	{"calls", "calls", []row{
		{"Calls", []panel{
			rate("Outcomes", "farhand_calls_total", "outcome"),
			rate("Endpoints", "farhand_calls_total", "endpoint"),
			rate("Routes", "farhand_calls_total", "route"),
			slowest("Latency", "farhand_call_duration_seconds", "route"),
			graph("Failed by the gateway", "percentunit",
				perSecond("farhand_calls_total", "instance", `,outcome=~"store_unavailable|lost|internal"`)+" / "+
					perSecond("farhand_calls_total", "instance", ""), "{{instance}}"),
			level("In progress", "short", "farhand_calls_in_progress", "place"),
			rate("Group calls", "farhand_group_calls_total", "state"),
			rate("Waits for devices", "farhand_call_returns_total", "came"),
			rate("Queued calls", "farhand_queued_calls_total", "event"),
			graph("Calls in queues", "short", "max(farhand_queue_calls{$i})", "calls"),
			graph("Oldest call in a queue", "s", "max(farhand_queue_oldest_seconds{$i})", "age"),
			rate("Refused by routing", "farhand_routing_refused_total", "bound"),
			{"Rare", "short", []query{
				{perSecond("farhand_calls_received_twice_total", "instance", ""), "received twice {{instance}}"},
				{"sum by (instance) (farhand_tasks{$i})", "store operations {{instance}}"},
			}},
		}},
		{"HTTP", []panel{
			rate("Requests", "farhand_http_requests_total", "status"),
			rate("Errors", "farhand_http_errors_total", "code"),
			slowest("Latency", "farhand_http_request_duration_seconds", "route"),
			level("Long-lived requests", "short", "farhand_http_held_requests", "kind"),
			rate("Refused", "farhand_http_refused_total", "bound"),
		}},
		{"Approvals, hooks and MCP servers", []panel{
			level("Waiting approvals", "short", "farhand_approvals_waiting", "instance"),
			graph("Oldest approval", "s", "max by (instance) (farhand_approvals_oldest_seconds{$i})", "{{instance}}"),
			rate("Requests to hooks", "farhand_hook_questions_total", "outcome"),
			mean("Mean latency of hooks", "farhand_hook_seconds_total", "farhand_hook_questions_total", "hook"),
			rate("Wakes of sleeping devices", "farhand_wakes_total", "did"),
			rate("Pushes", "farhand_wake_pushes_total", "outcome"),
			level("Connected MCP servers", "short", "farhand_mcp_server_up", "server"),
			rate("Calls to MCP servers", "farhand_mcp_server_calls_total", "outcome"),
			graph("Mean latency of MCP servers", "s", perSecond("farhand_mcp_server_seconds_total", "server", "")+" / "+
				perSecond("farhand_mcp_server_calls_total", "server", `,outcome="answered"`), "{{server}}"),
			rate("Connects to MCP servers", "farhand_mcp_server_connects_total", "server"),
			level("Tools of MCP servers", "short", "farhand_mcp_server_tools", "server"),
		}},
		{"Containers, browsers and places", []panel{
			level("Containers", "short", "farhand_containers", "instance"),
			rate("Starts of containers", "farhand_container_starts_total", "result"),
			level("Engine of containers is down", "short", "farhand_container_engine_down", "instance"),
			graph("Browsers", "short", `sum by (instance) (farhand_pool_held{$i,pool="browsers"})`, "{{instance}}"),
			rate("Starts of browsers", "farhand_browser_starts_total", "result"),
			rate("Lost browsers", "farhand_browsers_lost_total", "instance"),
			{"Places", "short", []query{
				{"sum by (instance) (farhand_places{$i})", "{{instance}}"},
				{"sum by (instance) (farhand_place_errands{$i})", "errands {{instance}}"},
			}},
			rate("Calls by place", "farhand_place_calls_total", "pod"),
			rate("Changes of places", "farhand_place_changes_total", "change"),
		}},
	}},
	{"devices", "devices", []row{
		{"Connections", []panel{
			level("Open", "short", "farhand_sockets", "instance"),
			rate("Opened", "farhand_sockets_opened_total", "instance"),
			rate("Closed", "farhand_sockets_closed_total", "reason"),
			rate("Refused", "farhand_sockets_refused_total", "code"),
			level("Opening", "short", "farhand_sockets_opening", "state"),
			level("By tenant", "short", "farhand_tenant_connections", "tenant"),
		}},
		{"Sessions", []panel{
			level("Sessions", "short", "farhand_sessions", "instance"),
			rate("Opened", "farhand_sessions_opened_total", "resumed"),
			{"Moved", "short", []query{
				{perSecond("farhand_sessions_replaced_total", "instance", ""), "replaced {{instance}}"},
				{perSecond("farhand_sessions_restored_total", "result", ""), "restored {{result}}"},
			}},
		}},
		{"Traffic", []panel{
			rate("Frames from devices", "farhand_frames_received_total", "type"),
			rate("Frames to devices", "farhand_frames_sent_total", "type"),
			graph("Bytes", "Bps", perSecond("farhand_socket_bytes_total", "direction", ""), "{{direction}}"),
			{"Queued bytes", "bytes", []query{
				{"sum by (instance) (farhand_outbox_bytes{$i})", "{{instance}}"},
				{"max by (instance) (farhand_outbox_fullest_bytes{$i})", "fullest {{instance}}"},
				{"sum by (instance) (farhand_unhandled_bytes{$i})", "unhandled {{instance}}"},
			}},
			level("Queued frames", "short", "farhand_outbox_frames", "instance"),
			rate("Acknowledgements", "farhand_acknowledgements_total", "written"),
		}},
	}},
	{"conversations", "conversations and cost", []row{
		{"Turns", []panel{
			level("Running or waiting", "short", "farhand_turns", "instance"),
			rate("Finished", "farhand_turns_total", "outcome"),
			slowest("Duration", "farhand_turn_duration_seconds", "channel"),
			rate("Refused", "farhand_turns_refused_total", "instance"),
			rate("Requested tool calls", "farhand_turn_calls_total", "channel"),
		}},
		{"Models", []panel{
			graph("Requests", "short",
				"sum by (model, outcome) (rate(farhand_model_requests_total{$i}[$__rate_interval]))",
				"{{model}} {{outcome}}"),
			graph("Tokens", "short",
				"sum by (model, direction) (rate(farhand_model_tokens_total{$i}[$__rate_interval]))",
				"{{model}} {{direction}}"),
			graph("Input from the provider's cache", "percentunit",
				perSecond("farhand_model_tokens_total", "model", `,direction="cached"`)+" / "+
					perSecond("farhand_model_tokens_total", "model", `,direction="input"`), "{{model}}"),
			graph("Cost in an hour", "short", "sum by (model) (increase(farhand_model_cost_total{$i}[1h]))",
				"{{model}}"),
			rate("Budgets warned or spent", "farhand_budget_events_total", "event"),
			rate("Refused, a budget is spent", "farhand_budget_refusals_total", "kind"),
			graph("Tokens by tenant", "short",
				"sum by (tenant, direction) (rate(farhand_tenant_model_tokens_total{$i}[$__rate_interval]))",
				"{{tenant}} {{direction}}"),
		}},
	}},
	{"redis", "Redis", []row{
		{"Round trips", []panel{
			slowest("Latency", "farhand_redis_round_trip_duration_seconds", "group"),
			rate("Round trips", "farhand_redis_round_trip_duration_seconds_count", "group"),
			rate("Failures", "farhand_redis_errors_total", "failure"),
		}},
		{"Connections", []panel{
			{"Connections", "short", []query{
				{"sum by (pool) (farhand_redis_connections{$i})", "{{pool}}"},
				{"sum by (pool) (farhand_redis_idle_connections{$i})", "idle {{pool}}"},
			}},
			mean("Mean wait for a connection", "farhand_redis_pool_wait_seconds_total",
				"farhand_redis_pool_waits_total", "pool"),
			rate("Got none in time", "farhand_redis_pool_timeouts_total", "pool"),
		}},
		{"Messages between pods", []panel{
			graph("Messages in a packet", "short", perSecond("farhand_bus_sent_messages_total", "queue", "")+" / "+
				perSecond("farhand_bus_sent_packets_total", "queue", ""), "{{queue}}"),
			rate("Failures", "farhand_bus_events_total", "event"),
			rate("Rejected: not signed by the fleet", "farhand_bus_rejected_messages_total", "reason"),
			level("Queued messages", "short", "farhand_bus_queued_messages", "queue"),
			level("Queued bytes", "bytes", "farhand_bus_queued_bytes", "queue"),
			rate("Sessions looked up", "farhand_routes_total", "from"),
		}},
	}},
}
