package mcp

import (
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/farhand/farhand/registry/legible"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Handle handles a message that concerns no call.
func (m *Machine) Handle(msg *Message) []Effect {
	switch {
	case msg.own:
		return m.answered(msg)
	case msg.stray:
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
