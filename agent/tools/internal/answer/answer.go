// Package answer builds the results of the gateway's own tools.
package answer

import (
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// Failed returns a failed result with the reason for the model.
func Failed(reason string) registry.Result {
	return registry.Result{Output: reason, Error: reason}
}

// With returns a successful result with the same content as text and as JSON.
func With(text string, structured any) (registry.Result, error) {
	body, err := json.Marshal(structured)
	if err != nil {
		return registry.Result{}, err
	}
	checked, err := registry.ParseJSON(body)
	return registry.Result{Success: true, Output: text, Structured: checked}, err
}
