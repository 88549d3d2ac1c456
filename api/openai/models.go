package openai

import (
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// defaultModel is a name for the default model. Clients use it without knowing the model's own name.
const defaultModel = "farhand"

// modelRow is a model as OpenAI's API lists it. Farhand does not know when it was created, so that is always zero.
type modelRow struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func modelRowOf(name string) modelRow { return modelRow{ID: name, Object: "model", OwnedBy: "farhand"} }

// models returns the names of the configured models, the default first.
func (a *API) models() []string {
	agent, err := a.host.Agent()
	if err != nil { // there is none
		return nil
	}
	return agent.Models()
}

// model returns the configured name of a model.
func (a *API) model(name string) (string, error) {
	all := a.models()
	switch {
	case slices.Contains(all, name):
		return name, nil
	case name == defaultModel && len(all) > 0:
		return all[0], nil
	default:
		return "", unknownModel(name)
	}
}

// ListModels serves GET /v1/models.
func (a *API) ListModels(c *gin.Context) {
	rows := []modelRow{}
	for _, name := range a.models() {
		rows = append(rows, modelRowOf(name))
	}
	a.host.WriteCacheable(c, struct {
		Object string     `json:"object"`
		Data   []modelRow `json:"data"`
	}{"list", rows})
}

// GetModel serves GET /v1/models/*model. A name may have slashes: models of a hub are called maker/model.
func (a *API) GetModel(c *gin.Context) {
	name, err := a.model(strings.TrimPrefix(c.Param("model"), "/"))
	if err != nil {
		a.host.Fail(c, err)
		return
	}
	a.host.WriteJSON(c, modelRowOf(name))
}
