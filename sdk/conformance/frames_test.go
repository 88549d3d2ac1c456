package conformance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/internal/testkit"
)

// Steps with frames.

var errClosed = errors.New("the device closed the connection")

// next returns the device's next frame. It skips tool_call_accepted: whether a fast call has it depends on the machine.
func (p *play) next() (map[string]any, error) {
	deadline := time.After(testkit.Limit)
	for {
		select {
		case frame, open := <-p.link.frames:
			switch {
			case !open:
				return nil, errClosed
			case frame["type"] != "tool_call_accepted":
				return frame, nil
			}
		case <-deadline:
			return nil, fmt.Errorf("no frame within %v", testkit.Limit)
		}
	}
}

// match reads the next frame, which must be like the pattern.
func (p *play) match(pattern map[string]any) error {
	frame, err := p.next()
	if err != nil {
		return err
	}
	if d := differ("frame", pattern, frame, true); d != "" {
		return fmt.Errorf("%s in %s", d, short(frame))
	}
	return nil
}

func (p *play) write(frame map[string]any) {
	p.t.Helper()
	text, err := json.Marshal(expand(frame))
	if err != nil {
		p.t.Fatal(err)
	}
	p.link.send(p.t, text)
}

// send sends a frame.
func (p *play) send(s *step) error {
	var frame map[string]any
	if err := s.bind(&frame); err != nil {
		return err
	}
	if frame["type"] == "server_draining" {
		p.drained = time.Now()
	}
	p.write(frame)
	return nil
}

// raw sends a text that need not be a frame.
func (p *play) raw(s *step) error {
	var text string
	if err := s.bind(&text); err != nil {
		return err
	}
	p.link.send(p.t, []byte(text))
	return nil
}

// call sends a tool_call_request.
func (p *play) call(s *step) error {
	frame := map[string]any{"type": "tool_call_request", "args": map[string]any{}, "deadline_ms": 30_000}
	if err := s.bind(&frame); err != nil {
		return err
	}
	p.write(frame)
	return nil
}

// expect takes the next frame.
func (p *play) expect(s *step) error {
	var pattern map[string]any
	if err := s.bind(&pattern); err != nil {
		return err
	}
	if pattern["type"] != "tool_call_accepted" {
		return p.match(pattern)
	}
	for {
		frame := testkit.Receive(p.t, "tool_call_accepted", p.link.frames)
		switch {
		case differ("frame", pattern, frame, true) == "":
			return nil
		case frame["type"] != "tool_call_accepted": // else it is another call's
			return fmt.Errorf("the frame is %s", short(frame))
		}
	}
}

// answer takes the answer of a call, and acknowledges it.
func (p *play) answer(s *step) error {
	var pattern map[string]any
	if err := s.bind(&pattern); err != nil {
		return err
	}
	if err := p.match(pattern); err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"type": "result_acknowledged", "id": pattern["id"]})
	if err == nil { // a device that stops may have gone
		_ = p.link.conn.WriteMessage(websocket.TextMessage, text)
	}
	return err
}

// unordered takes as many frames as there are patterns, in any order.
func (p *play) unordered(s *step) error {
	var patterns []map[string]any
	if err := s.bind(&patterns); err != nil {
		return err
	}
	for len(patterns) > 0 {
		frame, err := p.next()
		if err != nil {
			return err
		}
		found := slices.IndexFunc(patterns, func(pattern map[string]any) bool {
			return differ("frame", pattern, frame, true) == ""
		})
		if found < 0 {
			return fmt.Errorf("%s is none of %s", short(frame), short(patterns))
		}
		patterns = slices.Delete(patterns, found, found+1)
	}
	return nil
}

// many sends calls of echo side by side. Each is answered once, with its own text.
func (p *play) many(s *step) error {
	var count int
	if err := s.bind(&count); err != nil {
		return err
	}
	open := map[string]bool{}
	for i := range count {
		id := fmt.Sprintf("many-%d", i)
		open[id] = true
		p.write(map[string]any{
			"type": "tool_call_request", "id": id, "name": "echo", "args": map[string]any{"text": id},
			"deadline_ms": 30_000,
		})
	}
	for len(open) > 0 {
		frame, err := p.next()
		if err != nil {
			return err
		}
		id, _ := frame["id"].(string)
		if frame["type"] != "tool_result" || !open[id] || frame["output"] != id {
			return fmt.Errorf("%s answers no call that is open", short(frame))
		}
		delete(open, id)
		p.write(map[string]any{"type": "result_acknowledged", "id": id})
	}
	return nil
}

// close ends the connection with a close frame.
func (p *play) close(s *step) error {
	var with struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	}
	if err := s.bind(&with); err != nil {
		return err
	}
	p.link.close(p.t, with.Code, with.Reason)
	return nil
}

// drop ends the connection as a broken network does.
func (p *play) drop(*step) error { return p.link.conn.UnderlyingConn().Close() }

// closed expects that the device closes the connection, and sends nothing more before.
func (p *play) closed(s *step) error {
	var code int
	if err := s.bind(&code); err != nil {
		return err
	}
	frame, err := p.next()
	switch {
	case err == nil:
		return fmt.Errorf("the device sends %s", short(frame))
	case !errors.Is(err, errClosed):
		return err
	case p.link.ended == nil || p.link.ended.Code != code:
		return fmt.Errorf("the connection ended with %v, not %d", p.link.ended, code)
	}
	return nil
}
