package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A conversation may come from another model, and hold what a model made up. The vendors refuse all of a request for
// one id, name or argument they do not like, and would do so for ever; so what they would refuse is put right on its
// way to them.

// emptySchema is that of a tool without parameters.
const emptySchema = `{"type":"object","properties":{}}`

// schemaOf returns the parameters of a tool, as the vendors take them.
func schemaOf(t Tool) (json.RawMessage, error) {
	if len(bytes.TrimSpace(t.Parameters)) == 0 {
		return json.RawMessage(emptySchema), nil
	}
	if !json.Valid(t.Parameters) {
		return nil, fmt.Errorf("the parameters of the tool %q are not JSON", t.Name)
	}
	return objectSchema(t.Parameters), nil
}

// objectArgs returns the arguments of a call as a JSON object. A model that wrote something else is shown it as the
// text it was.
func objectArgs(args string) json.RawMessage {
	trimmed := strings.TrimSpace(args)
	if trimmed == "" {
		return json.RawMessage("{}")
	}
	if trimmed[0] == '{' && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	wrapped, _ := json.Marshal(map[string]string{"malformed_arguments": args}) // which cannot fail
	return wrapped
}

// cleanName returns the name of a called tool as the vendors take it: ^[A-Za-z0-9_-]{1,64}$.
func cleanName(name string) string {
	name = cleanID(name)
	return name[:min(len(name), 64)]
}

// cleanID does the same for the id of a call, whose length is free.
func cleanID(id string) string {
	if id == "" {
		return "unknown"
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, id)
}

// unsupported is the error for what cannot be said to any vendor.
func (c *caller) unsupported(cause error) *Error {
	if u, ok := errors.AsType[unoffered](cause); ok {
		return &Error{
			Kind: KindRequest, Param: u.param, Cause: cause,
			Message: fmt.Sprintf("The model %q does not take the request: %s.", c.cfg.Name, u.Error()),
		}
	}
	return &Error{Kind: KindRequest, Message: fmt.Sprintf("The request cannot be put to %q.", c.cfg.Name), Cause: cause}
}
