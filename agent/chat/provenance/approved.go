package provenance

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxParameters bounds the parameters whose approved values are remembered; those of others vouch for nothing.
const maxParameters = 1000

// addApproved notes the short values of approved arguments by their parameters.
func (c *Conversation) addApproved(t text) {
	eachScalar([]byte(t.text), func(pointer string, value jsontext.Token, key bool) bool {
		said := value.String()
		if key || isLong(said) {
			return true
		}
		name := parameterOf(t.tool, pointer)
		x := c.approved[name]
		if x == nil {
			if len(c.approved) >= maxParameters {
				return false
			}
			x = newIndex()
			c.approved[name] = x
		}
		c.reader.addTrusted(x, t.of, c.trusted.admit(said, maxTrusted))
		return true
	})
}

// eachScalar calls visit with the strings and numbers of some JSON, and with the names of members, until it returns
// false or the JSON ends.
func eachScalar(args json.RawMessage, visit func(pointer string, value jsontext.Token, key bool) bool) {
	d := jsontext.NewDecoder(bytes.NewReader(args), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if err != nil { // the end; arguments were checked before
			return
		}
		if kind := t.Kind(); kind != '"' && kind != '0' {
			continue
		}
		container, n := d.StackIndex(d.StackDepth())
		if !visit(string(d.StackPointer()), t, container == '{' && n%2 == 1) {
			return
		}
	}
}

// isLong reports whether a text is longer than a name.
func isLong(said string) bool {
	if len(said) > maxNameBytes || strings.Contains(said, "\n") {
		return true
	}
	_, more := tokensOf(said, maxNameTokens)
	return more
}

// parameterOf returns the name of a parameter of a tool: that of all elements of a list is the list's.
func parameterOf(tool, pointer string) string {
	steps := slices.DeleteFunc(strings.Split(pointer, "/"), isIndex)
	return tool + " " + strings.Join(steps, "/")
}

// anyStep stands for any step of a pointer.
const anyStep = "*"

func isIndex(step string) bool { return step != "" && countDigits(step) == len(step) }

// believe looks for a value among what trusted sources have said, and what was approved as a value of its parameter.
func (s *search) believe(pointer string, look func(*index) (origin, bool)) (origin, bool) {
	for _, x := range []*index{s.system, s.trusted, s.approved[parameterOf(s.call.Tool, pointer)]} {
		if x != nil {
			if of, ok := look(x); ok {
				return of, true
			}
		}
	}
	return origin{}, false
}

// isDestination reports whether a value says where something goes.
func (s *search) isDestination(pointer string) bool {
	for _, to := range s.call.Destinations {
		if liesIn(pointer, to) {
			return true
		}
	}
	return false
}

// liesIn reports whether a pointer leads to what another one means, or below it.
func liesIn(pointer, to string) bool {
	steps, wanted := strings.Split(pointer, "/"), strings.Split(to, "/")
	if len(steps) < len(wanted) {
		return false
	}
	for i, w := range wanted {
		if w != anyStep && w != steps[i] {
			return false
		}
	}
	return true
}
