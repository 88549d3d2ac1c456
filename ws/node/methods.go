package node

import (
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/farhand/farhand/registry/textsafe"
	"github.com/farhand/farhand/ws/internal/fields"
)

// maxPluginTools is how many tools of plug-ins a node may publish. It is OpenClaw's limit; further ones are dropped.
const maxPluginTools = 128

// notServed are the beginnings of methods of OpenClaw's gateway that are for operators. The answer to a client names
// where to look, instead of that the method is unknown.
var notServed = []string{
	"agent", "agents.", "approval.", "approvals.", "artifacts.", "audit.", "channels.", "chat.", "config.", "cron.",
	"device.", "devices.", "doctor.", "environments.", "exec.", "health", "last-heartbeat", "logs.", "message.",
	"models.", "node.describe", "node.invoke", "node.list", "node.pair.", "node.pending.enqueue", "node.rename",
	"plugin", "plugins.", "poll", "push.", "secrets.", "send", "sessions.", "set-heartbeats", "skills.", "status",
	"system-event", "system-presence", "talk.", "tasks.", "tools.", "tts.", "update.", "usage.", "voicewake.", "wake",
	"web.", "wizard.", "worktrees.",
}

// Handle handles a request that concerns no running call. Every request is answered.
func (m *Machine) Handle(r *Request) []Effect {
	if r.ignored {
		return []Effect{Charge{}, Send{settled(r.id, true)}}
	}
	switch r.method {
	case methodConnect:
		return m.refused(r, "connect is only valid as the first request")
	case methodPluginTools:
		return m.pluginTools(r)
	case methodEvent:
		return m.event(r)
	case methodSkills:
		return m.skills(r)
	case methodPendingPull:
		return answer(r, map[string]any{"nodeId": m.cfg.NodeID, "actions": []any{}})
	case methodPendingAck:
		return m.acknowledgePending(r)
	case methodPendingDrain:
		return answer(r, map[string]any{
			"nodeId": m.cfg.NodeID, "revision": 0, "items": []any{}, "hasMore": false,
		})
	case methodRunners:
		return answer(r, map[string]any{"nodeId": m.cfg.NodeID}) // it would be repeated for ever
	case methodSkillBins:
		return answer(r, map[string]any{"bins": []any{}})
	}
	for _, begin := range notServed {
		if strings.HasPrefix(r.method, begin) {
			return m.refused(r, "unauthorized role: node. Farhand serves no operators and does not answer "+
				fields.Quote(textsafe.Line(r.method))+". See "+documentation+".")
		}
	}
	return m.refused(r, "unknown method: "+textsafe.Line(fields.Short(r.method))) // clients compare this text
}

func answer(r *Request, payload any) []Effect { return []Effect{Send{succeeded(r.id, payload)}} }

func (m *Machine) refused(r *Request, why string) []Effect {
	return []Effect{Charge{}, Send{failed(r.id, failure{Code: codeInvalidRequest, Message: why})}}
}

// open opens the parameters of a request.
func open(r *Request, bad **fields.Error) *fields.Object {
	p, mistake := fields.Open(r.params, "params: must be an object", bad)
	if mistake != "" {
		*bad = fields.Invalid("%s", mistake)
		p = new(fields.Object)
		*p = fields.New(nil, bad)
	}
	return p
}

// pluginTools replaces the tools that the node's plug-ins offer. Nodes of the older version have none. The answer has
// those that are offered now: not those that are malformed, and not those that wait for an approver.
func (m *Machine) pluginTools(r *Request) []Effect {
	var bad *fields.Error
	tools := open(r, &bad).Array("tools")
	if bad != nil {
		return m.refused(r, "invalid node.pluginTools.update params: "+bad.Message)
	}
	var effects []Effect
	if m.cfg.Protocol < ProtocolNewest {
		tools = nil
	}
	if len(tools) > maxPluginTools {
		effects = append(effects, Log{slog.LevelWarn, "tools of a node's plug-ins dropped",
			[]any{"published", len(tools), "kept", maxPluginTools}})
		tools = tools[:maxPluginTools]
	}
	kept := make([]json.RawMessage, len(tools))
	for i, t := range tools {
		kept[i] = append(json.RawMessage(nil), t...)
	}
	catalog := m.cfg.Catalog(kept)
	m.mu.Lock()
	m.catalog = catalog
	m.mu.Unlock()
	return append(effects, Offer{func(offers func(tool string) bool) []byte {
		offered := make([]json.RawMessage, 0, len(kept))
		for _, t := range catalog.Tools() {
			if t.Published > 0 && offers(t.Name) {
				offered = append(offered, kept[t.Published-1])
			}
		}
		return succeeded(r.id, map[string]any{"nodeId": m.cfg.NodeID, "tools": offered})
	}})
}

// skills answers a node that publishes instructions for agents. Farhand keeps none: a device's text must not become a
// part of an agent's instructions unread.
func (m *Machine) skills(r *Request) []Effect {
	return []Effect{
		Log{slog.LevelDebug, "a node published skills, which are not kept", nil},
		Send{succeeded(r.id, map[string]any{"nodeId": m.cfg.NodeID, "skills": []any{}})},
	}
}

func (m *Machine) acknowledgePending(r *Request) []Effect {
	var bad *fields.Error
	ids := open(r, &bad).Texts("ids")
	if bad != nil {
		return m.refused(r, "invalid node.pending.ack params: "+bad.Message)
	}
	if len(ids) > maxList {
		ids = ids[:maxList]
	}
	return answer(r, map[string]any{"nodeId": m.cfg.NodeID, "ackedIds": ids, "remainingCount": 0})
}

// event answers an event of the node. Those that Farhand does nothing with are answered so.
func (m *Machine) event(r *Request) []Effect {
	var bad *fields.Error
	name := open(r, &bad).Text("event")
	if bad == nil && (name == "" || len(name) > maxName) {
		bad = fields.Invalid("event: must be a name")
	}
	if bad != nil {
		return m.refused(r, "invalid node.event params: "+bad.Message)
	}
	reply := map[string]any{"ok": true, "event": name, "handled": true}
	switch name {
	case "node.presence.alive":
		return []Effect{Seen{}, Send{succeeded(r.id, reply)}}
	case "exec.started", "exec.finished", "exec.denied":
		return []Effect{
			Log{slog.LevelDebug, "a node reported a command", []any{"event", name}}, Send{succeeded(r.id, reply)},
		}
	}
	reply["handled"], reply["reason"] = false, "not served by Farhand"
	return []Effect{Send{succeeded(r.id, reply)}}
}
