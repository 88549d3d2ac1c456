package metrics

import (
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/audit"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/internal/certificate"
	"github.com/farhand/farhand/internal/reload"
	"github.com/farhand/farhand/registry"
)

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
