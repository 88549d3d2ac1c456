package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/openai"
	"github.com/farhand/farhand/registry"
)

func (h *handler) complete(c *gin.Context, _ *params) error {
	if h.Closing.Err() != nil {
		return draining()
	}
	r, err := readAs(h, c, openai.ParseRequest)
	if err != nil {
		return err
	}
	agent, err := h.agent()
	if err != nil {
		return openai.NoModel(err)
	}
	queue, err := h.queueHeader(c)
	if err != nil {
		return err
	}
	turns := openai.Turns{Agent: agent, Queue: queue, Sessions: v1Sessions{h, queue}, Explain: turnError}
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

func (h *handler) listModels(c *gin.Context, _ *params) error {
	return h.respond(c, openai.ListModels(h.models()))
}

// getModel serves GET /v1/models/*model. A name may have slashes, as in maker/model.
func (h *handler) getModel(c *gin.Context, _ *params) error {
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
type v1Sessions struct {
	h     *handler
	queue time.Duration // calls may wait for sleeping devices; zero: they may not
}

// Connected implements openai.Sessions. A session whose device is expected back counts as connected.
func (s v1Sessions) Connected(ctx context.Context, who auth.Identity, id string) (registry.Session, error) {
	key := registry.Key{Tenant: who.Tenant, Session: id}
	e, _, err := s.h.session(ctx, who, key)
	if errors.Is(err, registry.CodeNotConnected) {
		switch due, failure := s.h.expected(ctx, who, key); {
		case failure != nil:
			return e.Session, failure
		case due != nil:
			return *due, nil
		}
	}
	if err != nil && isAbsent(err) && s.queue > 0 {
		switch known, failure := s.h.sleeping(ctx, who, registry.Target{SessionID: id}); {
		case failure != nil:
			return e.Session, failure
		case len(known) > 0:
			return known[0].Session, nil
		}
	}
	return e.Session, err
}

// OfUser implements openai.Sessions. If none is connected, it returns those whose devices are expected back.
func (s v1Sessions) OfUser(ctx context.Context, who auth.Identity, user string) (found []registry.Session, err error) {
	q := registry.Query{Tenant: who.Tenant, Target: registry.Target{UserID: user, Viewer: who.Viewer()}}
	add := func(e registry.Session) {
		if len(found) < openai.MaxCandidates {
			found = append(found, e)
		}
	}
	err = s.h.fold(ctx, q, func(e registry.Entry) { add(e.Session) })
	if err != nil || len(found) > 0 {
		return found, err
	}
	due, err := s.h.Directory.Awaited(ctx, q)
	for i := range due {
		add(due[i].Session)
	}
	if err == nil && len(found) == 0 && s.queue > 0 {
		var known []registry.KnownDevice
		known, err = s.h.sleeping(ctx, who, registry.Target{UserID: user})
		for i := range known {
			add(known[i].Session)
		}
	}
	return found, err
}
