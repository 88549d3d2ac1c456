// Package schema compiles the JSON Schemas of tools and validates arguments against them. Both are untrusted, so the
// size of a compiled schema, and the work and memory of a validation, are limited. Schemas are compiled by
// github.com/santhosh-tekuri/jsonschema. Its validator cannot be cancelled and builds every violation, so the validator
// here walks the compiled schema instead (walk.go). Start reading at Validator (validator.go).
package schema

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/farhand/farhand/internal/share"
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
		return nil, beyond("its compiled form takes more than %d bytes", MaxSize)
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
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if v, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			return "not a valid JSON Schema: at " + firstCause(v)
		}
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return registry.TruncateText(strings.ReplaceAll(line, location, ""), maxMessage)
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
	where := cmp.Or(at.pointer(), "the root")
	text := e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
	return where + ": " + registry.TruncateText(text, maxMessage)
}

// Work limits one validation, in addition to the fixed limits.
type Work struct {
	Deadline time.Time // zero: none

	// BeforeLong is called at most once, before a validation becomes expensive, and may wait. Nil: no wait.
	BeforeLong func() error
}

var errEnough = errors.New("enough violations")

// Validate checks a value as decoded by encoding/json with UseNumber, and returns the first violations. On an error,
// the result is unknown: ctx, the deadline or Work.BeforeLong ended it, or the value is too expensive (InputError).
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

func (w *walk) hasType(types jsonschema.Types, v any) bool {
	if types&typeOf(v) != 0 {
		return true
	}
	n, isNumber := v.(json.Number)
	return isNumber && types&typeInteger != 0 && w.isInteger(n)
}

func typeName(v any) string { return typeOf(v).ToStrings()[0] }

// OutputTime is the maximum duration of the check of one answer.
const OutputTime = time.Second

// CheckOutput checks the answer of a tenant's tool against its output schema, for at most OutputTime. Text alone is
// checked as a JSON string. An answer that is too large or too deep has a violation that says so. Without violations,
// the answer is valid, is of a failed call, or the pod was too busy to check it.
func (s *Validator) CheckOutput(
	ctx context.Context, tenant string, outputSchema []byte, res registry.Result,
) []registry.Violation {
	if len(outputSchema) == 0 || !res.Success {
		return nil
	}
	text := res.Structured.Raw()
	if len(text) == 0 {
		text = strictjson.AppendString(nil, res.Output)
	}
	ctx, cancel := context.WithTimeout(ctx, OutputTime)
	defer cancel()
	violations, err := s.outputViolations(ctx, tenant, outputSchema, text)
	if input := (InputError{}); errors.As(err, &input) {
		return []registry.Violation{{Message: "not checked: " + input.Error()}}
	}
	return violations // none if the pod was busy
}

func (s *Validator) outputViolations(
	ctx context.Context, tenant string, source, text []byte,
) ([]registry.Violation, error) {
	deadline, _ := ctx.Deadline()
	compiled, err := s.get(ctx, share.Owner{Tenant: tenant}, deadline, registry.FieldOutputSchema, source)
	if err != nil {
		return nil, err
	}
	value, release, err := s.decodeOutput(ctx, tenant, text)
	defer release()
	if err != nil {
		return nil, err
	}
	return apply(ctx, compiled, value, deadline, func() (*share.Grant, error) {
		return s.longOutputChecks.Acquire(ctx, share.Owner{Tenant: tenant}, 1)
	})
}

// Limits of the report about invalid arguments, which may be megabytes long.
const (
	maxViolations   = 20
	maxNamed        = 20   // names in one violation
	maxMatched      = 100  // items in one
	maxShown        = 200  // bytes of a value or a name in it
	maxMessage      = 1000 // bytes
	maxPointerShown = 1000 // bytes
)

// report adds a violation at the current place. It ends the walk at the maximum number of violations. It returns false.
func (w *walk) report(k jsonschema.ErrorKind) bool {
	if w.stopped() {
		return false
	}
	text := k.LocalizedString(message.NewPrinter(language.English))
	text = registry.TruncateText(text, maxMessage)
	w.found = append(w.found, registry.Violation{Pointer: w.pointer(), Message: text})
	if len(w.found) == maxViolations {
		w.stop(errEnough)
	}
	return false
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

func (w *walk) pointer() string {
	var b strings.Builder
	for _, s := range w.path {
		b.WriteByte('/')
		if s.item < 0 {
			b.WriteString(escapePointer.Replace(cut(s.name)))
		} else {
			b.WriteString(strconv.Itoa(s.item))
		}
		if b.Len() > maxPointerShown {
			return registry.TruncateText(b.String(), maxPointerShown)
		}
	}
	return b.String()
}

func cut(s string) string { return registry.TruncateText(s, maxShown) }

func shown(v any) any {
	switch v := v.(type) {
	case string:
		return cut(v)
	case json.Number:
		return json.Number(cut(string(v)))
	default:
		return v
	}
}

func shownNames(names []string) []string {
	for i, name := range names {
		names[i] = cut(name)
	}
	return names
}

// endless is the violation of a schema that refers to itself without end.
type endless struct{}

func (endless) KeywordPath() []string { return []string{"$ref"} }

func (endless) LocalizedString(*message.Printer) string {
	return "the schema refers to itself infinitely"
}
