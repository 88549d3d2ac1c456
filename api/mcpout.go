package api

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// mcpOut is where the answer to a POST of MCP goes. It implements mcp.Out.
type mcpOut struct {
	h  *handler
	c  *gin.Context
	by share.Owner

	// request is the context of the request. Ended may be asked when c serves another one already.
	request context.Context
	began   time.Time
}

// Write implements mcp.Out.
func (o mcpOut) Write(status int, body []byte, failure *registry.Error) error {
	o.NoteFailure(failure)
	answerInTime(o.c, o.began)
	if body == nil {
		o.c.Status(status)
		o.c.Writer.WriteHeaderNow()
		return nil
	}
	o.c.Header("Cache-Control", "no-store")
	return o.h.writeBody(o.c, status, body)
}

// NoteCall implements mcp.Out.
func (o mcpOut) NoteCall(id string) { noteCall(o.c, id) }

// NoteFailure implements mcp.Out.
func (o mcpOut) NoteFailure(failure *registry.Error) {
	if failure == nil {
		return
	}
	if why := interrupted(o.request, failure); why != nil {
		failure = why
	}
	noted := *failure
	noted.Code = auth.ProblemOf(failure).Code // one that clients may see
	o.c.Set(keyFailure, &noted)
}

// NameSession implements mcp.Out.
func (o mcpOut) NameSession(name string) { o.c.Header("Mcp-Session-Id", name) }

// ReservePage implements mcp.Out.
func (o mcpOut) ReservePage(ctx context.Context) error { return o.h.reserveAnswer(ctx, o.c, pageCost) }

// Open implements mcp.Out.
func (o mcpOut) Open() (*ssewriter.Stream, error) { return ssewriter.Open(o.c) }

// Reserve implements mcp.Out.
func (o mcpOut) Reserve(ctx context.Context, s *ssewriter.Stream, n int) (release func(), err error) {
	if n <= smallResponse {
		return func() {}, nil
	}
	held, err := o.h.responses.reserveMade(ctx, o.by, int64(n))
	if err != nil {
		return nil, err
	}
	if !held.nextPart(s.Controller()) {
		held.release()
		return nil, errTooSlow
	}
	return held.release, nil
}

// Enter implements mcp.Out.
func (o mcpOut) Enter() (release func(), err error) { return o.h.reserveStream(o.by) }

// UntilDraining implements mcp.Out.
func (o mcpOut) UntilDraining(ctx context.Context) (context.Context, func()) {
	return o.h.untilDraining(ctx)
}

// Ended implements mcp.Out.
func (o mcpOut) Ended() bool { return endedIdentity(o.request) != nil }
