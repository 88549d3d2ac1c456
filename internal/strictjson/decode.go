package strictjson

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// Decode makes a value of a text in which Check finds no fault, as encoding/json does with UseNumber: objects become
// map[string]any and numbers json.Number.
func Decode(text []byte, maxDepth int) (value any, ok bool) {
	if precheck(text, maxDepth).Fault != 0 {
		return nil, false
	}
	r := newReader(text)
	defer r.free()
	value, err := r.decode()
	if err != nil || r.end() != nil {
		return nil, false
	}
	return value, true
}

func (r *reader) decode() (any, error) {
	switch r.PeekKind() {
	case '{':
		return r.decodeObject()
	case '[':
		return r.decodeArray()
	}
	text, err := r.ReadValue()
	if err != nil {
		return nil, err
	}
	switch text.Kind() {
	case '"':
		return Text(text), nil
	case '0':
		return json.Number(text), nil
	case 't', 'f':
		return text[0] == 't', nil
	default:
		return nil, nil
	}
}

func (r *reader) decodeObject() (any, error) {
	if _, err := r.ReadToken(); err != nil {
		return nil, err
	}
	object := make(map[string]any)
	for r.PeekKind() == '"' {
		quoted, err := r.ReadValue()
		if err != nil {
			return nil, err
		}
		name := Text(quoted)
		if object[name], err = r.decode(); err != nil {
			return nil, err
		}
	}
	_, err := r.ReadToken()
	return object, err
}

func (r *reader) decodeArray() (any, error) {
	if _, err := r.ReadToken(); err != nil {
		return nil, err
	}
	array := []any{}
	for more(r.PeekKind()) {
		item, err := r.decode()
		if err != nil {
			return nil, err
		}
		array = append(array, item)
	}
	_, err := r.ReadToken()
	return array, err
}

// more reports whether another element begins.
func more(kind jsontext.Kind) bool { return kind != ']' && kind != 0 }
