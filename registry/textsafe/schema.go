package textsafe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/farhand/farhand/internal/strictjson"
)

// schemaPart is the role of a value in a schema.
type schemaPart int

const (
	partSchema   schemaPart = iota // an object of keywords
	partNames                      // an object whose keys are names, and whose values are schemas
	partLiteral                    // a value that arguments are compared with, or its parts
	partFreeText                   // only for people and models
)

// schemaParts maps keywords to the role of their values. Object values of other keywords are schemas.
var schemaParts = map[string]schemaPart{
	"title": partFreeText, "description": partFreeText, "$comment": partFreeText,
	"properties": partNames, "patternProperties": partNames, "$defs": partNames, "definitions": partNames,
	"dependentSchemas": partNames, "dependencies": partNames,
	"enum": partLiteral, "const": partLiteral, "default": partLiteral, "examples": partLiteral, "example": partLiteral,
	"dependentRequired": partLiteral,
}

var errNotJSON = errors.New("not valid JSON")

// CleanSchema cleans the free text of a JSON Schema. Names and values stay unchanged, because the device compares
// arguments with them. It fails if one of them has an invisible character; the error says which.
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

// maybeUnseen reports whether the strings of a JSON text have anything but printable ASCII and escapes such as \n and
// \t.
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
					"such values cannot be cleaned, because arguments are compared with them", keyword, v)
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
			return fmt.Errorf("the name %.40q looks like the name %.40q next to it", key, other)
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

// imitations finds names of one object that look alike because one uses letters of another script. Names that differ
// only in ASCII letters are not reported.
type imitations struct {
	ascii  []string
	others map[string]string // by skeleton
}

// add adds a name, and returns the earlier name that it looks like, empty if there is none.
func (m *imitations) add(name string) (like string) {
	if IsASCII(name) {
		m.ascii = append(m.ascii, name)
		if len(m.others) == 0 {
			return ""
		}
	}
	skeletons := Skeletons(name)
	if m.others == nil { // the first non-ASCII name
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
