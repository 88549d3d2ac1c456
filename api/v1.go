package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/api/openai"
	"github.com/farhand/farhand/registry"
)

// complete serves POST /v1/chat/completions.
func (h *handler) complete(c *gin.Context, _ params) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	if h.isDraining() { // a turn is long, and would not get far
		return draining()
	}
	r, err := parse(c, h.Invoker, body, openai.ParseRequest)
	if err != nil {
		return err
	}
	agent, err := h.agent()
	if err != nil {
		return openai.NoModel(err)
	}
	turns := openai.Turns{Agent: agent, Sessions: v1Sessions{h}, Explain: turnError}
	completion, err := r.Open(c.Request.Context(), turns, caller(c), c.GetHeader(openai.HeaderSession))
	if err != nil {
		return err
	}
	ctx, cancel := h.turnContext(c)
	defer cancel()
	if r.Streamed() {
		return h.streamTurn(ctx, c, completion.Stream)
	}
	answer, err := completion.Answer(ctx)
	if err != nil {
		return err
	}
	return h.writeJSON(c, http.StatusOK, answer)
}

// listModels serves GET /v1/models.
func (h *handler) listModels(c *gin.Context, _ params) error {
	return h.respond(c, openai.ListModels(h.models()))
}

// getModel serves GET /v1/models/*model. A name may have slashes: models of a hub are called maker/model.
func (h *handler) getModel(c *gin.Context, _ params) error {
	model, err := openai.GetModel(h.models(), strings.TrimPrefix(c.Param("model"), "/"))
	if err != nil {
		return err
	}
	return h.writeJSON(c, http.StatusOK, model)
}

// models returns the names of the configured models, the default first.
func (h *handler) models() []string {
	if h.Agent == nil {
		return nil
	}
	return h.Agent.Models()
}

// v1Sessions finds sessions for completions. It implements openai.Sessions.
type v1Sessions struct{ h *handler }

func (s v1Sessions) Connected(ctx context.Context, who auth.Identity, id string) (registry.Entry, error) {
	e, _, err := s.h.session(ctx, who, registry.Key{Tenant: who.Tenant, Session: id})
	return e, err
}

func (s v1Sessions) Each(ctx context.Context, q registry.Query, visit func(registry.Entry)) error {
	return s.h.fold(ctx, q, visit)
}
