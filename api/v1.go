package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/api/internal/sse"
	"github.com/farhand/farhand/registry"
)

// v1Host is what the handler shares with the endpoints of /v1. It implements openai.Host.
type v1Host struct{ *handler }

func (h v1Host) Caller(c *gin.Context) auth.Identity { return caller(c) }

func (h v1Host) ReadTurn(c *gin.Context, parseBody func([]byte) error) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	if h.isDraining() { // a turn is long, and would not get far
		return draining()
	}
	_, err = parse(c, h.Invoker, body, func(body []byte) (struct{}, error) { return struct{}{}, parseBody(body) })
	return err
}

func (h v1Host) Fail(c *gin.Context, err error) { h.fail(c, err) }

func (h v1Host) WriteJSON(c *gin.Context, v any) { h.writeJSON(c, http.StatusOK, v) }

func (h v1Host) WriteCacheable(c *gin.Context, v any) { h.respond(c, v) }

func (h v1Host) Agent() (chat.Agent, error) { return h.agent() }

func (h v1Host) TurnContext(c *gin.Context) (context.Context, context.CancelFunc) {
	return h.turnContext(c)
}

func (h v1Host) StreamTurn(
	ctx context.Context, c *gin.Context, run func(context.Context, *sse.TurnStream) sse.Ending,
) {
	h.streamTurn(ctx, c, run)
}

func (h v1Host) TurnError(ctx context.Context, err error, aborted bool) error {
	return turnError(ctx, err, aborted)
}

func (h v1Host) Connected(ctx context.Context, who auth.Identity, id string) (registry.Entry, error) {
	e, err := h.session(ctx, registry.Key{Tenant: who.Tenant, Session: id})
	if err == nil && isForeign(who, e.Session) {
		return registry.Entry{}, unknownSession()
	}
	return e, err
}

func (h v1Host) EachSession(ctx context.Context, q registry.Query, visit func(registry.Entry)) error {
	return h.fold(ctx, q, visit)
}
