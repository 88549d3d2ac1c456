package mcp

import (
	"fmt"
	"testing"

	"github.com/farhand/farhand/registry"
)

// peer drives a Machine as its connection does. Each byte of script is what happens next.
type peer struct {
	t      *testing.T
	m      *Machine
	script []byte
	turn   int
	closed bool
}

// next returns the next byte of the script, zero at its end.
func (p *peer) next() (b byte) {
	if len(p.script) > 0 {
		b, p.script = p.script[0], p.script[1:]
	}
	return b
}

// perform carries out effects as ws does. The timer may fire while tools are being stored.
func (p *peer) perform(effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case StartTimer:
			p.turn = e.Turn
		case Close:
			p.closed = true
		case Offer:
			for _, raw := range e.Tools {
				p.m.Tool(raw)
			}
			if p.next()%2 == 1 {
				p.perform(p.m.Late(p.turn))
			}
			if p.next()%4 == 1 {
				p.perform(p.m.Failed())
				return
			}
			p.m.UseNames()
			p.perform(p.m.Registered())
		case Retain:
			if p.next()%2 == 1 {
				p.perform(p.m.Late(p.turn))
			}
			if p.next()%4 == 1 {
				p.perform(p.m.Failed())
				return
			}
			p.perform(p.m.Listed([]registry.ToolSpec{{Name: "a_b"}}, p.next()%2 == 1))
		}
	}
}

// answer returns an answer to the pending request, as the script says.
func (p *peer) answer() string {
	id := p.m.pending
	if id == "" {
		id = "5"
	}
	result := [...]string{
		`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"n"}}`,
		`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`,
		`{"tools":[{"name":"a b","inputSchema":{}}],"nextCursor":"more"}`, `{"tools":[{"name":"a b"},{"name":"c"}]}`,
		`{"tools":7}`, `7`, `{}`,
	}
	if n := int(p.next()) % (len(result) + 2); n < len(result) {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result[n])
	} else if n == len(result) {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, id)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"no"}}`, id)
}

// step does what the script says next.
func (p *peer) step() {
	text := ""
	switch p.next() % 8 {
	case 0, 1, 2, 3:
		text = p.answer()
	case 4:
		text = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	case 5:
		text = `{"type":"hello"}`
	case 6:
		p.perform(p.m.Late(p.turn))
		return
	case 7:
		p.m.Call("c", "a_b", nil)
		p.m.Cancel("c", "why")
		return
	}
	if message, err := p.m.Decode([]byte(text)); err == nil {
		if m, ok := message.(*Message); ok {
			p.perform(p.m.Handle(m))
		}
	}
}

// FuzzConversation: whatever a device answers, repeats or leaves out, and whenever the time is over or the store fails,
// the machine goes on or closes.
func FuzzConversation(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 0, 0, 0, 0}, false)
	f.Add([]byte{5, 0, 0, 0, 2, 1, 0, 0, 3, 0, 1, 4, 6, 0, 3}, true)
	f.Fuzz(func(t *testing.T, script []byte, voice bool) {
		p := &peer{t: t, m: New(Config{Session: "s", Voice: voice, MaxToolBytes: 1 << 10, MaxTools: 4}), script: script}
		p.perform(p.m.Begin())
		for len(p.script) > 0 && !p.closed {
			p.step()
		}
		if size := p.m.NameBytes(); size > 1<<12 {
			t.Errorf("%d bytes of names are kept", size)
		}
	})
}
