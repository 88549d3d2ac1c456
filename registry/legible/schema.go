package legible

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/farhand/farhand/internal/strictjson"
)

// schemaPart says what a value of a schema is to its readers.
type schemaPart int

const (
	partSchema   schemaPart = iota // an object of keywords
	partNames                      // an object whose keys are names, and whose values are schemas
	partLiteral                    // a value that arguments are compared with, or its parts
	partFreeText                   // said to people and models, and nothing else
)

// schemaParts says what the value of a keyword is. Values of other keywords are schemas, as far as they are objects.
var schemaParts = map[string]schemaPart{
	"title": partFreeText, "description": partFreeText, "$comment": partFreeText,
	"properties": partNames, "patternProperties": partNames, "$defs": partNames, "definitions": partNames,
	"dependentSchemas": partNames, "dependencies": partNames,
	"enum": partLiteral, "const": partLiteral, "default": partLiteral, "examples": partLiteral, "example": partLiteral,
	"dependentRequired": partLiteral,
}

var errNotJSON = errors.New("not valid JSON")

// CleanSchema returns a JSON Schema with its free text cleaned. Names and values are not cleaned, because arguments
// must be what the device compares them with. The error says which of them has a character that is not seen.
func CleanSchema(schema []byte) ([]byte, error) {
	if !maybeUnseen(schema) {
		return schema, nil
	}
	dec := json.NewDecoder(bytes.NewReader(schema))
	dec.UseNumber()
	c := schemaCleaner{dec: dec, out: make([]byte, 0, len(schema))}
	if err := c.value(partSchema, ""); err != nil {
		return nil, err
	}
	return c.out, nil
}

// maybeUnseen reports whether a JSON text has anything but printable ASCII in its strings, and what is written \n, \t
// or so.
func maybeUnseen(text []byte) bool {
	for i, b := range text {
		if b >= 0x7f || b == '\\' && i+1 < len(text) && bytes.IndexByte([]byte("ubfr"), text[i+1]) >= 0 {
			return true
		}
	}
	return false
}

// schemaCleaner copies a schema, value by value.
type schemaCleaner struct {
	dec *json.Decoder
	out []byte
}

// value copies the next value. keyword is the nearest one, for the error.
func (c *schemaCleaner) value(part schemaPart, keyword string) error {
	tok, err := c.dec.Token()
	if err != nil {
		return errNotJSON
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '{' {
			return c.object(part, keyword)
		}
		return c.array(part, keyword)
	case string:
		if part == partFreeText {
			v = Clean(v)
		} else if Clean(v) != v {
			return fmt.Errorf(
				"a value of %s has a control or invisible character (%+.40q); "+
					"it is compared with arguments, so it is not cleaned", keyword, v)
		}
		c.out = strictjson.AppendString(c.out, v)
	default:
		c.out = strictjson.AppendScalar(c.out, v)
	}
	return nil
}

func (c *schemaCleaner) object(part schemaPart, keyword string) error {
	c.out = append(c.out, '{')
	var names imitations
	for first := true; c.dec.More(); first = false {
		if !first {
			c.out = append(c.out, ',')
		}
		tok, err := c.dec.Token()
		key, ok := tok.(string)
		if err != nil || !ok {
			return errNotJSON
		}
		if Line(key) != key {
			return fmt.Errorf("the name %+.40q has a control or invisible character", key)
		}
		if other := names.add(key); part == partNames && other != "" {
			return fmt.Errorf("the name %.40q looks like the name %.40q beside it", key, other)
		}
		c.out = append(strictjson.AppendString(c.out, key), ':')
		of, near := partLiteral, keyword
		switch part {
		case partSchema, partFreeText:
			of, near = schemaParts[key], key
		case partNames:
			of = partSchema
		}
		if err := c.value(of, near); err != nil {
			return err
		}
	}
	c.out = append(c.out, '}')
	_, err := c.dec.Token()
	return err
}

func (c *schemaCleaner) array(part schemaPart, keyword string) error {
	if part == partNames || part == partFreeText {
		part = partLiteral
	}
	c.out = append(c.out, '[')
	for first := true; c.dec.More(); first = false {
		if !first {
			c.out = append(c.out, ',')
		}
		if err := c.value(part, keyword); err != nil {
			return err
		}
	}
	c.out = append(c.out, ']')
	_, err := c.dec.Token()
	return err
}

// imitations finds names beside one another that are taken for one another because one is written with letters of
// another script. Names of ASCII letters alone are told apart by those who write them.
type imitations struct {
	ascii  []string
	others map[string]string // by skeleton
}

// add takes in a name, and returns the name it looks like, empty if there is none.
func (m *imitations) add(name string) (like string) {
	if IsASCII(name) {
		m.ascii = append(m.ascii, name)
		if len(m.others) == 0 {
			return ""
		}
	}
	skeletons := Skeletons(name)
	if m.others == nil { // the first that is not ASCII
		m.others = make(map[string]string)
		for _, plain := range m.ascii {
			for _, s := range Skeletons(plain) {
				m.others[s] = plain
			}
		}
	}
	for _, s := range skeletons {
		if other, known := m.others[s]; known && other != name && !(IsASCII(other) && IsASCII(name)) {
			return other
		}
	}
	for _, s := range skeletons {
		m.others[s] = name
	}
	return ""
}
