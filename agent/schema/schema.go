// Package schema compiles the JSON Schemas of tools and validates arguments against them. Both are untrusted, so
// everything that grows faster than the text is limited: the size of a compiled schema, and the work and memory of a
// validation. A validation also ends when its caller disconnects.
//
// Schemas are compiled, and checked against their metaschema, by github.com/santhosh-tekuri/jsonschema. Its validator
// cannot be cancelled and builds every violation. So the validator here walks the compiled schema instead.
//
// Start reading at Validator (validator.go): it caches compiled schemas and shares the pod's cores and memory. Schema
// (schema.go) is one compiled schema; walk.go is the validation.
package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// MaxSize is the maximum size of one compiled schema, in bytes.
const MaxSize = 6 << 20

const (
	// location is the URL given to a schema. Relative references resolve against it, and so lead to other documents.
	location = "farhand://tool/parameters"

	// nodeBytes and pointerCopies estimate the memory of a compiled subschema, in addition to the document.
	nodeBytes     = 900
	pointerCopies = 4
)

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	root *jsonschema.Schema
	size int
}

// noRemote rejects every reference to another document: a device must not make the gateway fetch anything.
type noRemote struct{}

var errRemoteRef = errors.New("references to other documents are not allowed")

// Load implements jsonschema.URLLoader.
func (noRemote) Load(string) (any, error) { return nil, errRemoteRef }

// Compile compiles a JSON Schema, 2020-12 unless $schema says otherwise. It must not refer to other documents, and its
// patterns must be RE2. The error's message is one line for the author of the schema.
func Compile(text []byte) (*Schema, error) {
	s, err := compile(text)
	if err != nil {
		return nil, errors.New(problem(err))
	}
	return s, nil
}

func compile(text []byte) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var known source
	if err := known.survey(doc, 0); err != nil {
		return nil, err
	}
	size := decodedSize(text) + known.nodes*nodeBytes + known.pointers*pointerCopies
	if size > MaxSize {
		return nil, beyond("it takes more than %d bytes when compiled", MaxSize)
	}
	patterns := patterns{size: size}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noRemote{})
	c.UseRegexpEngine(patterns.compile)
	if err := c.AddResource(location, doc); err != nil {
		return nil, err
	}
	root, err := c.Compile(location)
	if err != nil {
		if patterns.err != nil { // the compiler's error is longer
			return nil, patterns.err
		}
		return nil, err
	}
	e := expansion{onPath: make(map[*jsonschema.Schema]bool)}
	if err := e.expand(root); err != nil {
		return nil, err
	}
	return &Schema{root: root, size: patterns.size}, nil
}

// Size returns the approximate size of the compiled schema, in bytes.
func (s *Schema) Size() int { return s.size }

// problem converts a compiler's error to one line.
func problem(err error) string {
	if errors.Is(err, errRemoteRef) {
		return errRemoteRef.Error()
	}
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		var v *jsonschema.ValidationError
		if errors.As(invalid.Err, &v) {
			return "not a valid JSON Schema: at " + firstCause(v)
		}
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return cutTo(strings.ReplaceAll(line, location, ""), maxMessage)
}

// firstCause returns the first violation of a schema, with its place.
func firstCause(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	at := walk{}
	for _, name := range e.InstanceLocation {
		at.path = append(at.path, field(name))
	}
	where := at.pointer()
	if where == "" {
		where = "the root"
	}
	return where + ": " + cutTo(e.ErrorKind.LocalizedString(message.NewPrinter(language.English)), maxMessage)
}

// Work limits one validation, in addition to the fixed limits.
type Work struct {
	Deadline time.Time // zero: none

	// BeforeLong is called at most once, before a validation becomes expensive. It returns when the validation may
	// continue. Nil: no wait.
	BeforeLong func() error
}

// errEnough ends a walk with the maximum number of violations.
var errEnough = errors.New("enough violations")

// Validate checks a value as decoded by encoding/json with UseNumber. It returns the first violations, or none if the
// value is valid. On an error, the result is unknown: ctx, the deadline or Work.BeforeLong ended the validation, or the
// value is too expensive, which is an InputError.
func (s *Schema) Validate(ctx context.Context, v any, work Work) ([]registry.Violation, error) {
	if err := checkNumbers(v); err != nil {
		return nil, InputError{err}
	}
	w := walk{meter: meter{ctx: ctx, deadline: work.Deadline, beforeLong: work.BeforeLong, left: lookEvery}}
	w.open = w.initialOpen[:0]
	ok := w.apply(s.root, v, nil)
	if !ok && !w.stopped() {
		w.explain = true
		w.apply(s.root, v, nil)
		if len(w.found) == 0 && !w.stopped() {
			w.report(&kind.Schema{Location: s.root.Location})
		}
	}
	switch err := w.err; {
	case err == nil || errors.Is(err, errEnough):
		return w.found, nil
	case errors.Is(err, ErrTooExpensive), errors.Is(err, errTooDeep):
		return nil, InputError{err}
	default:
		return nil, err
	}
}

// InputError is the reason why a value cannot be validated.
type InputError struct{ error }

// Unwrap returns the reason.
func (e InputError) Unwrap() error { return e.error }

// Decode decodes a JSON text for Validate. Unusual input, such as a repeated key, is decoded as encoding/json does.
func Decode(text []byte, maxDepth int) (any, error) {
	if value, ok := strictjson.Decode(text, maxDepth); ok {
		return value, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	err := d.Decode(&value)
	return value, err
}

// The types as bits of jsonschema.Types.
var (
	typeNull    = typeSet("null")
	typeBoolean = typeSet("boolean")
	typeNumber  = typeSet("number")
	typeInteger = typeSet("integer")
	typeString  = typeSet("string")
	typeArray   = typeSet("array")
	typeObject  = typeSet("object")
)

func typeSet(name string) jsonschema.Types {
	var t jsonschema.Types
	t.Add(name)
	return t
}

func typeOf(v any) jsonschema.Types {
	switch v.(type) {
	case nil:
		return typeNull
	case bool:
		return typeBoolean
	case json.Number:
		return typeNumber
	case string:
		return typeString
	case []any:
		return typeArray
	default:
		return typeObject
	}
}

// hasType reports whether a value has one of the types.
func (w *walk) hasType(types jsonschema.Types, v any) bool {
	if types&typeOf(v) != 0 {
		return true
	}
	n, isNumber := v.(json.Number)
	return isNumber && types&typeInteger != 0 && w.isInteger(n)
}

func typeName(v any) string { return typeOf(v).ToStrings()[0] }
