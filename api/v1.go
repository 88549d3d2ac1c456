package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/openai"
	"github.com/farhand/farhand/registry"
)

// complete serves POST /v1/chat/completions.
func (h *handler) complete(c *gin.Context, _ params) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	if h.Closing.Err() != nil {
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

// getModel serves GET /v1/models/*model. A name may have slashes, as in maker/model.
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

// Connected implements openai.Sessions. A session whose device is expected back counts as connected.
func (s v1Sessions) Connected(ctx context.Context, who auth.Identity, id string) (registry.Entry, error) {
	key := registry.Key{Tenant: who.Tenant, Session: id}
	e, _, err := s.h.session(ctx, who, key)
	if errors.Is(err, registry.CodeNotConnected) {
		switch due, failure := s.h.expected(ctx, who, key); {
		case failure != nil:
			return e, failure
		case due != nil:
			return registry.Entry{Session: *due}, nil
		}
	}
	return e, err
}

// Each implements openai.Sessions. If none is connected, it visits those whose devices are expected back.
func (s v1Sessions) Each(ctx context.Context, q registry.Query, visit func(registry.Entry)) error {
	visited := false
	err := s.h.fold(ctx, q, func(e registry.Entry) {
		visited = true
		visit(e)
	})
	if err != nil || visited {
		return err
	}
	due, err := s.h.Directory.Awaited(ctx, q)
	for i := range due {
		visit(registry.Entry{Session: due[i].Session})
	}
	return err
}
