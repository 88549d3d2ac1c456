package mcp

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

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
