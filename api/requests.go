package api

import (
	"bytes"
	"errors"
	"reflect"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// request is a decoded body of a request. T is its type in package wire, whose fields are the only ones allowed.
type request[T any] struct {
	said   T
	fields memberList // as sent; null and empty values are like absent ones in said
}

// has reports whether a field was sent.
func (r request[T]) has(name string) bool {
	_, ok := r.fields.get(name)
	return ok
}

// readRequest decodes a body. wants has, by the names of fields, what they must be if not texts; for error messages.
func readRequest[T any](body []byte, wants map[string]string) (r request[T], err error) {
	if r.fields, err = readBodyObject(body, fieldsOf[T]()...); err != nil {
		return r, err
	}
	// What is read here are names of objects in fields: those of the body are known, and none is there twice.
	err = jsonv2.Unmarshal(body, &r.said, jsonv2.MatchCaseInsensitiveNames(true), jsontext.AllowDuplicateNames(true))
	return r, fieldError(err, wants)
}

// readStrict is readRequest for requests whose texts can be neither null nor empty.
func readStrict[T any](body []byte, wants map[string]string) (r request[T], err error) {
	if r, err = readRequest[T](body, wants); err != nil {
		return r, err
	}
	for _, name := range fieldsOf[T]() {
		if text, ok := r.fields.get(name); ok && wants[name] == "" {
			if _, err := readString(text, name); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// orNothing returns a body, or {} if it is empty.
func orNothing(body []byte) []byte {
	if len(bytes.TrimSpace(body)) == 0 {
		return []byte("{}")
	}
	return body
}

// fieldsOf returns the names of the fields of a request.
func fieldsOf[T any]() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// fieldError returns the error for a field of the wrong type, for an error of decoding a body that is valid JSON.
func fieldError(err error, wants map[string]string) error {
	if err == nil {
		return nil
	}
	var wrong *jsonv2.SemanticError
	if !errors.As(err, &wrong) {
		return err
	}
	for name := range wrong.JSONPointer.Tokens() { // the first
		if want := wants[name]; want != "" {
			return wrongType(name, want)
		}
		return wrongType(name, "a string")
	}
	return wrongType("", "a JSON object")
}
