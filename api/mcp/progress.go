package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

const (
	// progressPause is the pause between two reads of what a call reports, which grows up to progressIdle while it
	// reports nothing. The reports are in the call's log, as pods tell one another nothing else of a running call.
	progressPause = 100 * time.Millisecond
	progressIdle  = time.Second

	// progressRead is how long a read of the log may take.
	progressRead = 5 * time.Second
)

// CallLog is what is read of the reports of running calls. *routing.Calls is one.
type CallLog interface {
	Events(ctx context.Context, tenant, callID, after string) ([]registry.CallEvent, registry.Record, error)
}

// progress passes on what a call reports.
type progress struct {
	answer *answer
	log    CallLog
	callID string
	token  json.RawMessage
	after  string  // the last line that was read
	last   float64 // the progress that was told last
}

// follow passes on the reports of a call until finish is called, which passes on the rest of them. Without a token, or
// when too many are followed already, nothing is.
func (s *Server) follow(a *answer, callID string) (finish func(), err error) {
	token := a.meta.get("progressToken")
	switch {
	case token.IsZero() || a.timer == nil:
		return func() {}, nil
	case !isID(token.Raw()):
		return nil, invalidParams("_meta.progressToken must be a string or a whole number, of at most %d bytes.", maxID)
	}
	release, err := a.Out.Enter()
	if err != nil {
		return func() {}, nil
	}
	p := &progress{answer: a, log: s.cfg.Calls, callID: callID, token: bytes.Clone(token.Raw()), last: math.Inf(-1)}
	ctx, stop := context.WithCancel(a.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.followUntil(ctx)
	}()
	return func() {
		defer release()
		stop()
		<-done
		p.read(a.ctx) // an answer waits until the reports before it are in the log
	}, nil
}

func (p *progress) followUntil(ctx context.Context) {
	pause := progressPause
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if pause = min(pause*2, progressIdle); p.read(ctx) {
			pause = progressPause
		}
		timer.Reset(pause)
	}
}

// read passes on the reports that are new. It reports whether there were any.
func (p *progress) read(ctx context.Context) (some bool) {
	ctx, cancel := context.WithTimeout(ctx, progressRead)
	defer cancel()
	for {
		events, _, _ := p.log.Events(ctx, p.answer.Caller.Tenant, p.callID, p.after) // a quick call has no record yet
		for _, e := range events {
			if p.after = e.ID; e.Type != registry.CallEventState {
				some = true
				if message := p.appendProgress(nil, e); message != nil {
					p.answer.notify(message)
				}
			}
		}
		if len(events) < registry.EventPage {
			return some
		}
	}
}

// appendProgress appends a notification of one report. Progress must grow with each, also if the device says nothing of
// it, or the same again: then it is one more. It appends nothing if there is no greater number that differs by one.
func (p *progress) appendProgress(b []byte, e registry.CallEvent) []byte {
	switch {
	case e.Progress != nil && *e.Progress > p.last:
		p.last = *e.Progress
	case math.IsInf(p.last, -1):
		p.last = 0
	case p.last+1 > p.last:
		p.last++
	default:
		return nil
	}
	b = append(b, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
	b = strconv.AppendFloat(append(append(b, p.token...), `,"progress":`...), p.last, 'g', -1, 64)
	if e.Total != nil {
		b = strconv.AppendFloat(append(b, `,"total":`...), *e.Total, 'g', -1, 64)
	}
	text := e.Message
	if e.Chunk != "" {
		if text != "" {
			text += "\n"
		}
		text += e.Chunk
	}
	if text != "" {
		b = strictjson.AppendString(append(b, `,"message":`...), legible.Clean(text))
	}
	return append(b, "}}"...)
}
