package provider

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// refusedAtTop are the keywords that the vendors do not take at the top of a schema.
var refusedAtTop = [...]string{"oneOf", "anyOf", "allOf", "not", "enum"}

// member is one member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// objectSchema returns a valid JSON text as a schema the vendors take: of the type object, without what they refuse at
// its top. The description says to the model what was taken out: the gateway checks the arguments by the schema as it
// was. Order, and all that is not changed, stay as they were written.
func objectSchema(schema json.RawMessage) json.RawMessage {
	members, ok := membersOf(schema)
	if !ok { // true and false are schemas too
		return json.RawMessage(emptySchema)
	}
	kept, typed, changed := []member(nil), false, false
	var rules []string
	for _, m := range members {
		switch {
		case m.name == "type":
			if typed = string(m.value) == `"object"`; !typed { // ["object","null"], for example
				changed = true
				continue
			}
		case slices.Contains(refusedAtTop[:], m.name):
			rules, changed = append(rules, `"`+m.name+`":`+string(m.value)), true
			continue
		}
		kept = append(kept, m)
	}
	if !typed {
		kept, changed = append([]member{{"type", json.RawMessage(`"object"`)}}, kept...), true
	}
	if !changed {
		return schema
	}
	return joined(described(kept, rules))
}

// described adds rules to the description of a schema.
func described(members []member, rules []string) []member {
	if len(rules) == 0 {
		return members
	}
	text := "The arguments must also satisfy this JSON Schema: {" + strings.Join(rules, ",") + "}"
	i := slices.IndexFunc(members, func(m member) bool { return m.name == "description" })
	if i < 0 {
		return append(members, member{"description", quoted(text)})
	}
	var before string
	if json.Unmarshal(members[i].value, &before) == nil && before != "" {
		text = before + " " + text
	}
	members[i].value = quoted(text)
	return members
}

// membersOf returns the members of a JSON object in order, the last of those that have the same name; false: it is
// none.
func membersOf(text json.RawMessage) ([]member, bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	var members []member
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, false
		}
		m := member{name.(string), value} // of an object, every other token is a name
		members = append(slices.DeleteFunc(members, func(old member) bool { return old.name == m.name }), m)
	}
	return members, true
}

func joined(members []member) json.RawMessage {
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted(m.name)...), ':'), m.value...)
	}
	return append(out, '}')
}

// quoted returns a text as JSON.
func quoted(text string) json.RawMessage {
	b, _ := json.Marshal(text) // which cannot fail
	return b
}
