// Package jsonbody checks the JSON of requests, for the API and for the endpoints of /v1.
//
// It imports agent and registry. Check checks any body, Members also splits an object.
package jsonbody

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// maxDepth allows arguments of the maximum depth inside the request's own object.
const maxDepth = agent.MaxArgsDepth + 1

// Check rejects text that two parsers could read differently: invalid UTF-8, data after the value, duplicate keys in
// one object, and nesting that exhausts a stack. The error has the code invalid_request.
func Check(text []byte) error {
	switch p := strictjson.Check(text, maxDepth); p.Fault {
	case 0:
		return nil
	case strictjson.NotUTF8:
		return registry.Errorf(registry.CodeInvalidRequest, "The body is not valid UTF-8.")
	case strictjson.TooDeep:
		return registry.Errorf(registry.CodeInvalidRequest, "The body nests deeper than %d levels.", maxDepth)
	case strictjson.NameTwice:
		return registry.Errorf(registry.CodeInvalidRequest, "The field %.120q appears twice.", p.Path)
	default:
		var value json.RawMessage
		err := json.Unmarshal(text, &value)
		if err == nil { // encoding/json accepts half a surrogate pair
			err = p.Err
		}
		return registry.Errorf(registry.CodeInvalidRequest,
			"The body is not one valid JSON value: %s.", syntaxProblem(err))
	}
}

// usualMembers is the maximum number of members of most bodies.
const usualMembers = 4

// Members is Check for a body that must be an object. It also returns the object's members, in one pass.
func Members(text []byte) ([]strictjson.Member, error) {
	if strictjson.Depth(text) <= maxDepth {
		members, err := strictjson.Members(make([]strictjson.Member, 0, usualMembers), text, math.MaxInt)
		switch {
		case err == nil:
			return members, nil
		case errors.Is(err, strictjson.ErrNotObject):
			return nil, registry.Errorf(registry.CodeInvalidRequest, "The body must be a JSON object.")
		}
	}
	if err := Check(text); err != nil {
		return nil, err
	}
	return nil, registry.Errorf(registry.CodeInternal, "The body was not read.") // cannot be: Check is no more lenient
}

func syntaxProblem(err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("%v at byte %d", syntax, syntax.Offset)
	}
	return err.Error()
}
