// Package answer makes the results of the gateway's own tools.
package answer

import (
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// Failed is the result of a tool that cannot do what it was asked, with the reason for the model.
func Failed(reason string) registry.Result {
	return registry.Result{Output: reason, Error: reason}
}

// With is the result of a tool that did what it was asked: the same in words and in JSON.
func With(text string, structured any) (registry.Result, error) {
	body, err := json.Marshal(structured)
	if err != nil {
		return registry.Result{}, err
	}
	checked, err := registry.ParseJSON(body)
	return registry.Result{Success: true, Output: text, Structured: checked}, err
}
