package scripted

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/farhand/farhand/agent/provider"
)

// speaker writes parts in a vendor's format.
type speaker interface {
	text(s string)
	refusal(s string)
	thinking(s string)
	redacted(data string)
	calls(calls []Call)
	ping()
	fault(kind, message string)
	garbage()
	finish(reason provider.StopReason)
}

// player plays one stream.
type player struct {
	w       http.ResponseWriter
	request *http.Request
	closing <-chan struct{}
	asked   Request
	speaker speaker
	usage   provider.Usage
	stop    provider.StopReason
	made    int // calls
	called  bool
	over    bool
}

func (s *Server) play(w http.ResponseWriter, r *http.Request, asked Request, step Step) {
	if step.status != 0 {
		s.write(w, step)
		return
	}
	p := &player{w: w, request: r, closing: s.closing, asked: asked, usage: provider.Usage{Input: 10, Output: 5}}
	for _, part := range step.parts {
		if part.usage != nil {
			p.usage = *part.usage
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	p.speaker = s.vendor.speaker(p)
	for _, part := range step.parts {
		if part.play != nil && !p.over {
			part.play(p)
		}
	}
	if p.over {
		return
	}
	if p.stop == "" {
		if p.stop = provider.StopEnd; p.called {
			p.stop = provider.StopToolCalls
		}
	}
	p.speaker.finish(p.stop)
}

// write sends text immediately. It ignores that the client has disconnected.
func (p *player) write(text string) {
	_, _ = io.WriteString(p.w, text)
	_ = http.NewResponseController(p.w).Flush()
}

// event sends an event. Without a name it has only data.
func (p *player) event(name string, data any) {
	if name != "" {
		name = "event: " + name + "\n"
	}
	p.write(fmt.Sprintf("%sdata: %s\n\n", name, mustJSON(data)))
}

// identified returns the calls with ids and pieces.
func (p *player) identified(calls []Call) []Call {
	out := make([]Call, len(calls))
	for i, c := range calls {
		p.made++
		if c.ID == "" {
			c.ID = fmt.Sprintf("call_%d_%d", p.asked.Number, p.made)
		}
		if c.Pieces <= 0 {
			c.Pieces = 3
		}
		out[i] = c
	}
	return out
}

// interleave calls send with a piece of each call's arguments in turn.
func interleave(calls []Call, send func(i int, piece string)) {
	longest := 0
	for _, c := range calls {
		longest = max(longest, c.Pieces)
	}
	for n := range longest {
		for i, c := range calls {
			if n < c.Pieces {
				send(i, c.Args[len(c.Args)*n/c.Pieces:len(c.Args)*(n+1)/c.Pieces])
			}
		}
	}
}

func mustJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen with the types above
	}
	return string(data)
}
