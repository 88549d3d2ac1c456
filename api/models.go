package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// modelDefault is the name under which clients get the default model without knowing its own.
const modelDefault = "farhand"

// modelRow is a model as OpenAI's API lists it. When it was created nobody knows, so that is always zero.
type modelRow struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func modelRowOf(name string) modelRow { return modelRow{ID: name, Object: "model", OwnedBy: "farhand"} }

// models returns the names of the models there are, the default first.
func (h *handler) models() []string {
	if h.Agent == nil {
		return nil
	}
	return h.Agent.Models()
}

// model returns the name of the model that goes by a name.
func (h *handler) model(name string) (string, error) {
	all := h.models()
	switch {
	case slices.Contains(all, name):
		return name, nil
	case name == modelDefault && len(all) > 0:
		return all[0], nil
	default:
		return "", unknownModel(name)
	}
}

func (h *handler) listModels(c *gin.Context, _ params) {
	rows := []modelRow{}
	for _, name := range h.models() {
		rows = append(rows, modelRowOf(name))
	}
	h.respond(c, struct {
		Object string     `json:"object"`
		Data   []modelRow `json:"data"`
	}{"list", rows})
}

// getModel serves names with slashes too: models of a hub are called maker/model.
func (h *handler) getModel(c *gin.Context, _ params) {
	name, err := h.model(strings.TrimPrefix(c.Param("model"), "/"))
	if err != nil {
		h.fail(c, err)
		return
	}
	body, err := encode(modelRowOf(name))
	if err != nil {
		h.fail(c, err)
		return
	}
	h.writeJSON(c, http.StatusOK, body)
}
