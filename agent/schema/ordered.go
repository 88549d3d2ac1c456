package schema

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"

	"github.com/farhand/farhand/internal/strictjson"
)

// object is a JSON object that keeps the order of its members, because models read it.
type object struct{ members []member }

type member struct {
	name  string
	value any // *object, []any, string, json.Number, bool or nil
}

func (o *object) find(name string) int {
	return slices.IndexFunc(o.members, func(m member) bool { return m.name == name })
}

// get returns the value of a member, or nil if there is none.
func (o *object) get(name string) any {
	if i := o.find(name); i >= 0 {
		return o.members[i].value
	}
	return nil
}

// set replaces a member, or appends it.
func (o *object) set(name string, value any) {
	if i := o.find(name); i >= 0 {
		o.members[i].value = value
		return
	}
	o.members = append(o.members, member{name, value})
}

func (o *object) remove(name string) {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.name == name })
}

// rename renames a member in place. It removes an existing member with the new name.
func (o *object) rename(from, to string) {
	o.remove(to)
	if i := o.find(from); i >= 0 {
		o.members[i].name = to
	}
}

// readOrdered decodes a JSON text. Of repeated names, the last value counts, as in encoding/json.
func readOrdered(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := readValue(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errTrailing
	}
	return v, nil
}

func readValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := readValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	case json.Delim('{'):
		o := &object{}
		seen := make(map[string]int)
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := readValue(d)
			if err != nil {
				return nil, err
			}
			m := member{name.(string), v}
			if i, twice := seen[m.name]; twice {
				o.members[i] = m
				continue
			}
			seen[m.name] = len(o.members)
			o.members = append(o.members, m)
		}
		_, err := d.Token()
		return o, err
	default:
		return token, nil
	}
}

func appendOrdered(b []byte, v any) []byte {
	switch v := v.(type) {
	case *object:
		b = append(b, '{')
		for i, m := range v.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(strictjson.AppendString(b, m.name), ':')
			b = appendOrdered(b, m.value)
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendOrdered(b, item)
		}
		return append(b, ']')
	default:
		return strictjson.AppendScalar(b, v)
	}
}
