package mcp

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Handle handles a message that concerns no call.
func (m *Machine) Handle(msg *Message) []Effect {
	switch {
	case msg.own:
		return m.answered(msg)
	case msg.unmatched:
		todo := []Effect{Charge{Stray}}
		if msg.failed != nil {
			todo = append(todo, Log{slog.LevelDebug, "the device reports an error", []any{"error", msg.failed}})
		}
		return todo
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case msg.hello:
		return m.greet()
	case msg.id != nil && msg.method == methodPing:
		return []Effect{m.send(resultFrame(msg.id, "{}"))}
	case msg.id != nil:
		text := "This client does not offer " + fields.Short(msg.method) + "."
		return []Effect{m.send(errorFrame(msg.id, codeNoMethod, text))}
	case msg.method == methodListChanged:
		return m.listAgain()
	}
	return nil
}

// greet answers the hello of a voice device. If the device is not initialized yet, initialize follows.
func (m *Machine) greet() []Effect {
	m.envelope = true
	todo := []Effect{Send{helloFrame(m.cfg.Session)}}
	if m.stage <= initializing {
		todo = append(todo, m.initialize()...)
	}
	return todo
}

// initialize sends initialize. Only the first hello restarts the timer for the answer; otherwise a device could repeat
// hello to avoid it.
func (m *Machine) initialize() (todo []Effect) {
	m.stage = initializing
	id := m.newRequest()
	if !m.greeted {
		todo = append(todo, m.arm())
	}
	m.greeted = m.envelope
	return append(todo, m.send(initializeFrame(id)))
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
		tools = readPage(result)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.isPending(msg.id):
		return nil
	case m.stage == initializing && msg.failed != nil:
		return m.discover(msg.failed)
	case m.stage == initializing:
		return append([]Effect{m.disarm()}, m.initialized(result, bad)...)
	case m.stage == discovering && msg.failed != nil:
		return []Effect{m.disarm(), Close{msg.failed}}
	case m.stage == discovering:
		return append([]Effect{m.disarm()}, m.discovered(result, bad)...)
	case msg.failed != nil:
		return m.unlisted(msg.failed)
	case bad != nil:
		return []Effect{Close{bad}}
	default:
		tools.bytes = len(msg.result)
		return m.pageListed(tools)
	}
}

// lists reports whether the gateway's own requests are lists.
func (m *Machine) lists() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stage >= listing
}

// discover asks a device that rejected initialize whether it speaks the version without it.
func (m *Machine) discover(refusal *failure) []Effect {
	disarmed := m.disarm()
	m.stage = discovering
	id := m.newRequest()
	return []Effect{
		disarmed, Log{slog.LevelDebug, "initialize refused", []any{"error", refusal}}, m.arm(),
		m.send(discoverFrame(id)),
	}
}

// initialized handles the answer to initialize.
func (m *Machine) initialized(result *fields.Object, bad *fields.Error) (todo []Effect) {
	if bad != nil {
		return []Effect{Close{bad}}
	}
	version := result.Text("protocolVersion")
	if result.Bad() != nil || !speaks(version) {
		return []Effect{Close{fields.Invalid("protocolVersion: %s is not spoken here", fields.Quote(version))}}
	}
	if name := programName(result.Value("serverInfo")); name != nil {
		todo = append(todo, NameDevice{*name})
	}
	todo = append(todo, m.send(notificationFrame(methodInitialized)))
	return append(todo, m.listTools()...)
}

// programName returns the name of the device's program, nil if it has none.
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
	text := legible.Line(fields.Truncate(*name, fields.MaxEcho))
	return &text
}

// discovered handles the answer to server/discover.
func (m *Machine) discovered(result *fields.Object, bad *fields.Error) (todo []Effect) {
	if bad != nil {
		return []Effect{Close{bad}}
	}
	if versions := result.OptionalTexts("supportedVersions"); !slices.Contains(versions, statelessVersion) {
		return []Effect{Close{fields.Invalid("supportedVersions: none of them is spoken here")}}
	}
	m.meta = statelessMeta
	tools := fields.Member(result.Value("capabilities"), "tools")
	if string(fields.Member(tools, "listChanged")) == "true" {
		todo = append(todo, m.send(listenFrame(m.newRequest())))
	}
	return append(todo, m.listTools()...)
}

// Bounds of one list of tools, over all its pages. The gateway requests nothing beyond them.
const (
	maxPages    = 64
	maxCursor   = 4 << 10 // bytes
	listedTimes = 4       // times MaxToolBytes: listed schemas contain white space, and some tools are rejected
)

// list is a list of tools that is being read.
type list struct {
	pages  int
	bytes  int
	tools  int
	theirs map[string]string // names of tools here → at the device
}

// page is one page of a list.
type page struct {
	tools  []json.RawMessage
	cursor string // of the next page; empty: it is the last one
	bytes  int
}

// readPage reads a page. Mistakes are in the object.
func readPage(result *fields.Object) *page {
	return &page{tools: result.Array("tools"), cursor: result.TextOr("nextCursor", "")}
}

// listTools requests the first page of tools.
func (m *Machine) listTools() []Effect {
	if m.stage != ready {
		m.stage = listing
	}
	m.list, m.changed = &list{theirs: make(map[string]string)}, false
	id := m.newRequest()
	return []Effect{m.arm(), m.send(listFrame(id, "", m.meta))} // the time is for the whole list
}

// listAgain lists the tools again after a change. If a list is still being read, the new one starts after it.
func (m *Machine) listAgain() []Effect {
	todo := []Effect{Charge{Listing}}
	if m.stage < listing || m.waiting {
		m.changed = true
		return todo
	}
	return append(todo, m.listTools()...)
}

// listChanged lists the tools again if they have changed since they were requested.
func (m *Machine) listChanged() []Effect {
	if !m.changed {
		return nil
	}
	return m.listTools()
}

// unlisted handles an error in place of a page. A device without tools may not know the method.
func (m *Machine) unlisted(refusal *failure) []Effect {
	todo := []Effect{Log{slog.LevelInfo, "a device does not list its tools", []any{"error", refusal}}}
	if refusal.code != codeNoMethod && m.stage == ready {
		m.list = nil
		todo = append(todo, m.disarm())
		return append(todo, m.listChanged()...)
	}
	return append(todo, m.endList()...)
}

// pageListed handles one page. Its tools are registered immediately. After the last page, the tools that were on no
// page are removed.
func (m *Machine) pageListed(p *page) []Effect {
	m.list.pages++
	m.list.bytes += p.bytes
	m.list.tools += len(p.tools)
	if m.list.bytes > listedTimes*m.cfg.MaxToolBytes || m.list.tools > m.cfg.MaxTools {
		return m.cutList()
	}
	m.cursor, m.settling = p.cursor, true
	return []Effect{Offer{p.tools, m.stage != ready}}
}

// Registered reports that the tools of an Offer are stored.
func (m *Machine) Registered() []Effect {
	m.mu.Lock()
	defer m.mu.Unlock()
	cursor := m.cursor
	m.cursor, m.settling = "", false // it may be long, and the connection may live for days
	var todo []Effect
	switch {
	case cursor == "":
		todo = m.endList()
	case m.list.pages == maxPages || len(cursor) > maxCursor:
		todo = m.cutList()
	default:
		todo = []Effect{m.send(listFrame(m.newRequest(), cursor, m.meta))}
	}
	return append(todo, m.settle()...)
}

// cutList ends a list that is too long.
func (m *Machine) cutList() []Effect {
	cut := Log{slog.LevelWarn, "the list of a device's tools is too long; its end is not read",
		[]any{"tools", m.list.tools, "pages", m.list.pages, "bytes", m.list.bytes}}
	return append([]Effect{cut}, m.endList()...)
}

// endList ends a list.
func (m *Machine) endList() []Effect {
	first := m.stage != ready
	m.stage, m.settling = ready, true
	return []Effect{m.disarm(), Retain{m.list.theirs, first}}
}

// Listed reports that a Retain is done, and which tools the connection offers now. With all, the names of the others
// that were listed are also kept, because they may be offered later.
func (m *Machine) Listed(offered []registry.ToolSpec, all bool) []Effect {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settling, m.listed = false, true
	m.theirs, m.list = m.list.renamed(nil), nil
	if !all {
		maps.DeleteFunc(m.theirs, func(ours, _ string) bool {
			return !slices.ContainsFunc(offered, func(t registry.ToolSpec) bool { return t.Name == ours })
		})
	}
	return append(m.listChanged(), m.settle()...)
}

// Failed reports that the tools of an Offer or a Retain could not be stored. The request stays open until its time is
// over.
func (m *Machine) Failed() []Effect {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cursor, m.settling = "", false
	if m.pending == "" {
		m.list = nil // no page of it will be read
	}
	return m.settle()
}

// settle does what Late could not do while tools were being stored.
func (m *Machine) settle() []Effect {
	if !m.overdue || m.settling {
		return nil
	}
	m.overdue = false
	return m.listChanged()
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
	names := maps.Clone(before)
	for ours, theirs := range l.theirs {
		if ours == theirs {
			delete(names, ours)
			continue
		}
		if names == nil {
			names = make(map[string]string)
		}
		names[ours] = theirs
	}
	return names
}
