package openai

import "slices"

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

// configuredModel returns the configured name of a model. The first one of all is the default.
func configuredModel(all []string, name string) (string, error) {
	switch {
	case slices.Contains(all, name):
		return name, nil
	case name == defaultModel && len(all) > 0:
		return all[0], nil
	default:
		return "", unknownModel(name)
	}
}

// ListModels returns the answer that lists models, to be written as JSON.
func ListModels(all []string) any {
	rows := []modelRow{}
	for _, name := range all {
		rows = append(rows, modelRowOf(name))
	}
	return struct {
		Object string     `json:"object"`
		Data   []modelRow `json:"data"`
	}{"list", rows}
}

// GetModel returns the answer that describes one model, to be written as JSON.
func GetModel(all []string, name string) (any, error) {
	name, err := configuredModel(all, name)
	return modelRowOf(name), err
}
