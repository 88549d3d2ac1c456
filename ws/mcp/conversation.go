package mcp

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Handle handles a message that concerns no call.
func (m *Machine) Handle(msg *Message) []Effect {
	if msg.own {
		return m.answered(msg)
	}
	return m.step(func() {
		switch {
		case msg.unmatched:
			m.do(Charge{})
			if msg.failed != nil {
				m.do(Log{slog.LevelDebug, "the device reported an error", []any{"error", msg.failed}})
			}
		case msg.hello:
			m.greet()
		case msg.id != nil && msg.method == "ping":
			m.send(`{"jsonrpc":"2.0","id":` + string(msg.id) + `,"result":{}}`)
		case msg.id != nil:
			text := "This client does not support " + fields.Short(msg.method) + "."
			m.send(string(errorFrame(string(msg.id), codeNoMethod, text)))
		case msg.method == "notifications/tools/list_changed":
			m.listAgain()
		}
	})
}

// greet answers the hello of a voice device. If the device is not initialized yet, initialize follows.
func (m *Machine) greet() {
	m.envelope = true
	m.do(Send{fmt.Appendf(nil, `{"type":"`+TypeHello+`","transport":"websocket","session_id":%s}`,
		strictjson.AppendString(nil, m.cfg.Session))})
	if m.stage <= initializing {
		m.initialize()
	}
}

// initialize sends initialize. Only the first hello restarts the timer for the answer; otherwise a device could repeat
// hello to avoid it.
func (m *Machine) initialize() {
	m.stage = initializing
	if !m.greeted {
		m.arm()
	}
	m.greeted = m.envelope
	m.request(methodInitialize,
		`"protocolVersion":"`+initializeVersion+`","capabilities":{},"clientInfo":`+clientInfo)
}

// answered handles the answer to a request of the gateway, unless it is late. A page is split without the mutex,
// because it may be long.
func (m *Machine) answered(msg *Message) []Effect {
	var bad *fields.Error
	var tools *page
	result, mistake := fields.Open(msg.result, "must be an object", &bad)
	if mistake != "" {
		bad = fields.Invalid("result: %s", mistake)
	} else if m.lists() {
		tools = &page{tools: result.Array("tools"), cursor: result.TextOr("nextCursor", "")}
	}
	return m.step(func() {
		if !m.isPending(msg.id) {
			return
		}
		if m.stage < listing {
			m.disarm()
		}
		switch {
		case m.stage == initializing && msg.failed != nil:
			m.discover(msg.failed)
		case m.stage >= listing && msg.failed != nil:
			m.unlisted(msg.failed)
		case msg.failed != nil:
			m.do(Close{msg.failed})
		case bad != nil:
			m.do(Close{bad})
		case m.stage == initializing:
			m.initialized(result)
		case m.stage == discovering:
			m.discovered(result)
		default:
			tools.bytes = len(msg.result)
			m.pageListed(tools)
		}
	})
}

// lists reports whether the gateway's own requests are lists.
func (m *Machine) lists() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stage >= listing
}

// discover asks a device that rejected initialize whether it speaks the version without it.
func (m *Machine) discover(refusal *failure) {
	m.stage = discovering
	m.do(Log{slog.LevelDebug, "initialize refused", []any{"error", refusal}})
	m.arm()
	m.request("server/discover", `"_meta":{`+statelessMeta+`}`)
}

func (m *Machine) initialized(result *fields.Object) {
	spoken := []string{"2024-11-05", "2025-03-26", "2025-06-18", initializeVersion}
	version := result.Text("protocolVersion")
	if result.Bad() != nil || !slices.Contains(spoken, version) {
		m.do(Close{fields.Invalid("protocolVersion: %s is not supported", fields.Quote(version))})
		return
	}
	if name := programName(result.Value("serverInfo")); name != nil {
		m.do(NameDevice{*name})
	}
	m.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	m.listTools()
}

func programName(info json.RawMessage) *string {
	var bad *fields.Error
	f, mistake := fields.Open(info, "must be an object", &bad)
	if mistake != "" {
		return nil
	}
	name := f.OptionalText("title")
	if name == nil || *name == "" {
		name = f.OptionalText("name")
	}
	if name == nil || bad != nil {
		return nil
	}
	text := textsafe.Line(fields.Truncate(*name, fields.MaxEcho))
	return &text
}

func (m *Machine) discovered(result *fields.Object) {
	if versions := result.OptionalTexts("supportedVersions"); !slices.Contains(versions, statelessVersion) {
		m.do(Close{fields.Invalid("supportedVersions: none of them is supported")})
		return
	}
	m.meta = statelessMeta
	tools := fields.Member(result.Value("capabilities"), "tools")
	if string(fields.Member(tools, "listChanged")) == "true" {
		m.request("subscriptions/listen", `"notifications":{"toolsListChanged":true},"_meta":{`+statelessMeta+`}`)
	}
	m.listTools()
}

// Bounds of one list of tools, over all its pages. The gateway requests nothing beyond them.
const (
	maxPages    = 64
	maxCursor   = 4 << 10 // bytes
	listedTimes = 4       // times MaxToolBytes: listed schemas contain white space, and some tools are rejected
)

type list struct {
	pages  int
	bytes  int
	tools  int
	theirs map[string]string // names of tools here → at the device
}

type page struct {
	tools  []json.RawMessage
	cursor string // of the next page; empty: it is the last one
	bytes  int
}

func (m *Machine) listTools() {
	if m.stage != ready {
		m.stage = listing
	}
	m.list, m.changed = &list{theirs: make(map[string]string)}, false
	m.arm() // the time is for the whole list
	m.requestPage("")
}

// requestPage requests a page of tools; without a cursor the first one.
func (m *Machine) requestPage(cursor string) {
	var params []string
	if cursor != "" {
		params = append(params, `"cursor":`+string(strictjson.AppendString(nil, cursor)))
	}
	if m.meta != "" {
		params = append(params, `"_meta":{`+m.meta+`}`)
	}
	m.request(methodListTools, strings.Join(params, ","))
}

// listAgain lists the tools again after a change. If a list is still being read, the new one starts after it.
func (m *Machine) listAgain() {
	m.do(Charge{Listing: true})
	if m.stage < listing || m.waiting {
		m.changed = true
		return
	}
	m.listTools()
}

// listChanged lists the tools again if they have changed since they were requested.
func (m *Machine) listChanged() {
	if m.changed {
		m.listTools()
	}
}

// unlisted handles an error in place of a page. A device without tools may not know the method.
func (m *Machine) unlisted(refusal *failure) {
	m.do(Log{slog.LevelInfo, "a device did not list its tools", []any{"error", refusal}})
	if refusal.code == codeNoMethod || m.stage != ready {
		m.endList()
		return
	}
	m.list = nil
	m.disarm()
	m.listChanged()
}

// pageListed handles one page. Its tools are registered immediately. After the last page, the tools that were on no
// page are removed.
func (m *Machine) pageListed(p *page) {
	m.list.pages++
	m.list.bytes += p.bytes
	m.list.tools += len(p.tools)
	if m.list.bytes > listedTimes*m.cfg.MaxToolBytes || m.list.tools > m.cfg.MaxTools {
		m.cutList()
		return
	}
	m.cursor, m.settling = p.cursor, true
	m.do(Offer{p.tools, m.stage != ready})
}

// Registered reports that the tools of an Offer are stored.
func (m *Machine) Registered() []Effect {
	return m.step(func() {
		cursor := m.cursor
		m.cursor, m.settling = "", false // it may be long, and the connection may live for days
		switch {
		case cursor == "":
			m.endList()
		case m.list.pages == maxPages || len(cursor) > maxCursor:
			m.cutList()
		default:
			m.requestPage(cursor)
		}
		m.settle()
	})
}

func (m *Machine) cutList() {
	m.do(Log{slog.LevelWarn, "a device's tool list is too long; the rest is ignored",
		[]any{"tools", m.list.tools, "pages", m.list.pages, "bytes", m.list.bytes}})
	m.endList()
}

func (m *Machine) endList() {
	m.disarm()
	m.do(Retain{m.list.theirs, m.stage != ready})
	m.stage, m.settling = ready, true
}

// Listed reports that a Retain is done, and which tools the connection offers now. With all, the names of the others
// that were listed are also kept, because they may be offered later.
func (m *Machine) Listed(offered []registry.ToolSpec, all bool) []Effect {
	return m.step(func() {
		m.settling, m.listed = false, true
		m.theirs, m.list = m.list.renamed(nil), nil
		if !all {
			maps.DeleteFunc(m.theirs, func(ours, _ string) bool {
				return !slices.ContainsFunc(offered, func(t registry.ToolSpec) bool { return t.Name == ours })
			})
		}
		m.listChanged()
		m.settle()
	})
}

// Failed reports that the tools of an Offer or a Retain could not be stored. The request stays open until its time is
// over.
func (m *Machine) Failed() []Effect {
	return m.step(func() {
		m.cursor, m.settling = "", false
		if m.pending == "" {
			m.list = nil // no page of it will be read
		}
		m.settle()
	})
}

// settle does what Late could not do while tools were being stored.
func (m *Machine) settle() {
	if m.overdue && !m.settling {
		m.overdue = false
		m.listChanged()
	}
}

// UseNames makes calls use the names at the device of the tools listed so far.
func (m *Machine) UseNames() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.theirs = m.list.renamed(m.theirs)
}

// renamed returns the tools whose names differ at the device, by their names here. The result has the names in before,
// updated with the list.
func (l *list) renamed(before map[string]string) map[string]string {
	names := make(map[string]string)
	maps.Copy(names, before)
	for ours, theirs := range l.theirs {
		if names[ours] = theirs; ours == theirs {
			delete(names, ours)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return names
}
