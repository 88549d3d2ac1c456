package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// Member is one member of an object.
type Member struct {
	Name  []byte          // decoded; a part of the text unless it has escapes
	Value json.RawMessage // as it was sent, a part of the text
}

// Errors of Members and Items, besides those of the parser.
var (
	ErrNotObject = errors.New("must be a JSON object")
	ErrNotArray  = errors.New("must be a JSON array")
	ErrTooMany   = errors.New("too many members")
)

// Members appends the members of a JSON object in order, at most limit. It checks the whole text on the way: the
// members that it returns without an error have no fault.
func Members(into []Member, text []byte, limit int) ([]Member, error) {
	return readMembers(into, text, limit)
}

// LenientMembers is Members for a text that was found to be faulty: it also takes names twice and invalid UTF-8. It
// serves to find the call that a refused answer was meant for.
func LenientMembers(text []byte, limit int) ([]Member, error) {
	return readMembers(nil, text, limit, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func readMembers(into []Member, text []byte, limit int, options ...jsontext.Options) ([]Member, error) {
	r := newReader(text, options...)
	defer r.free()
	if r.PeekKind() != '{' {
		return nil, first(r.value, ErrNotObject)
	}
	if _, err := r.ReadToken(); err != nil {
		return nil, err
	}
	for n := 0; r.PeekKind() == '"'; n++ {
		if n == limit {
			return nil, ErrTooMany
		}
		name, err := r.value()
		if err != nil {
			return nil, err
		}
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		into = append(into, Member{unquoted(name), value})
	}
	if _, err := r.ReadToken(); err != nil {
		return nil, err
	}
	return into, r.end()
}

// Items returns the elements of a JSON array in order, each a part of the text.
func Items(text []byte) ([]json.RawMessage, error) {
	r := newReader(text)
	defer r.free()
	if r.PeekKind() != '[' {
		return nil, first(r.value, ErrNotArray)
	}
	if _, err := r.ReadToken(); err != nil {
		return nil, err
	}
	items := []json.RawMessage{}
	for more(r.PeekKind()) {
		item, err := r.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if _, err := r.ReadToken(); err != nil {
		return nil, err
	}
	return items, r.end()
}

// first returns the error of reading the value, or the other one if there is none.
func first(value func() ([]byte, error), other error) error {
	if _, err := value(); err != nil {
		return err
	}
	return other
}

// Text decodes a valid JSON string.
func Text(quoted []byte) string { return string(unquoted(quoted)) }

// unquoted decodes a valid JSON string. Where nothing is escaped, that is a part of it.
func unquoted(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, quoted) // what is no character becomes U+FFFD
	return text
}
