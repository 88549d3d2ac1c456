package agent

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/farhand/farhand/registry"
)

const (
	// schemaCacheBytes bounds the source text of the schemas kept compiled, per generation of the cache.
	schemaCacheBytes = 8 << 20

	// maxViolations bounds how many broken rules one error lists.
	maxViolations = 20

	// schemaURL is where a schema pretends to live; relative references resolve against it, and so lead elsewhere.
	schemaURL = "farhand://tool/parameters"
)

// Schemas compiles JSON Schemas (2020-12 unless $schema says otherwise) and keeps them compiled: once per content,
// however many devices register it. It is safe for concurrent use.
type Schemas struct {
	mu       sync.Mutex
	current  map[string]*compiled // by source text
	previous map[string]*compiled
	size     int // bytes of source text in current
}

// compiled is a schema ready for use, with what it costs to use it.
type compiled struct {
	*jsonschema.Schema
	cost schemaCost
}

// NewSchemas returns an empty cache.
func NewSchemas() *Schemas { return &Schemas{current: make(map[string]*compiled)} }

// Compile checks that the parameters of a normalized spec are a usable schema: it refers to nothing outside itself,
// its patterns are RE2, and validating against it is cheap. The error's message is a reason for the device.
func (s *Schemas) Compile(spec registry.ToolSpec) error {
	_, err := s.get(spec)
	return err
}

// Validate checks args against the parameters of spec. The error is an *registry.Error: CodeInvalidArguments with
// the broken rules, or CodeInvalidRequest if the schema itself is unusable.
func (s *Schemas) Validate(spec registry.ToolSpec, args []byte) error {
	schema, err := s.get(spec)
	if err != nil {
		return err
	}
	value, depth, err := decodeArgs(args)
	if err != nil {
		return registry.Errorf(registry.CodeInvalidRequest, "args must be valid JSON.")
	}
	if err := schema.cost.checkWork(value, depth); err != nil {
		return err
	}
	var invalid *jsonschema.ValidationError
	switch err := schema.Validate(value); {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		e := registry.Errorf(registry.CodeInvalidArguments,
			"The arguments do not satisfy the parameters schema of %q.", spec.Name)
		e.Violations = violations(invalid)
		return e
	default:
		return registry.AsError(err)
	}
}

// decodeArgs decodes arguments as the validator wants them. What is out of the ordinary, as a key that stands there twice, is
// read as encoding/json reads it.
func decodeArgs(args []byte) (value any, depth int, err error) {
	value, depth, ok := registry.DecodeJSON(args, MaxArgsDepth)
	if !ok {
		depth = registry.Depth(args)
		value, err = jsonschema.UnmarshalJSON(bytes.NewReader(args))
	}
	return value, depth, err
}

func (s *Schemas) get(spec registry.ToolSpec) (*compiled, error) {
	if schema := s.cached(spec.Parameters); schema != nil {
		return schema, nil
	}
	schema, err := compile(spec.Parameters)
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidRequest, "parameters: %s", schemaProblem(err))
	}
	s.keep(string(spec.Parameters), schema)
	return schema, nil
}

func (s *Schemas) cached(source []byte) *compiled {
	s.mu.Lock()
	defer s.mu.Unlock()
	if schema := s.current[string(source)]; schema != nil {
		return schema
	}
	schema := s.previous[string(source)]
	if schema != nil {
		s.keepLocked(string(source), schema)
	}
	return schema
}

func (s *Schemas) keep(source string, schema *compiled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepLocked(source, schema)
}

// keepLocked adds to the current generation; when that is full it becomes the previous one, and what was only in the
// one before is forgotten.
func (s *Schemas) keepLocked(source string, schema *compiled) {
	if s.size+len(source) > schemaCacheBytes {
		s.previous, s.current, s.size = s.current, make(map[string]*compiled), 0
	}
	s.current[source] = schema
	s.size += len(source)
}

// noRemote refuses every reference that leaves the schema: a device must not make the gateway fetch anything.
type noRemote struct{}

var errRemoteRef = errors.New("references to other documents are not allowed")

func (noRemote) Load(string) (any, error) { return nil, errRemoteRef }

func compile(source []byte) (*compiled, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(source))
	if err != nil {
		return nil, err
	}
	if _, err := survey(doc); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noRemote{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, err
	}
	cost, err := measure(schema)
	if err != nil {
		return nil, err
	}
	return &compiled{Schema: schema, cost: cost}, nil
}

// schemaProblem turns a compiler's error into one line for the author of the schema.
func schemaProblem(err error) string {
	if errors.Is(err, errRemoteRef) {
		return errRemoteRef.Error()
	}
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		var v *jsonschema.ValidationError
		if errors.As(invalid.Err, &v) {
			if found := violations(v); len(found) > 0 {
				return "not a valid JSON Schema: at " + quotePointer(found[0].Pointer) + ": " + found[0].Message
			}
		}
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.ReplaceAll(line, schemaURL, "")
}

func quotePointer(p string) string {
	if p == "" {
		return "the root"
	}
	return p
}

// violations lists the innermost causes: those a caller can act on.
func violations(e *jsonschema.ValidationError) []registry.Violation {
	printer := message.NewPrinter(language.English)
	var out []registry.Violation
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(out) == maxViolations {
			return
		}
		if len(e.Causes) == 0 {
			out = append(out, registry.Violation{
				Pointer: pointer(e.InstanceLocation), Message: e.ErrorKind.LocalizedString(printer),
			})
			return
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	walk(e)
	return out
}

func pointer(tokens []string) string {
	var b strings.Builder
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(escape.Replace(t))
	}
	return b.String()
}

// validation is the hook that checks the arguments, the last one before a tool runs.
type validation struct{ schemas *Schemas }

// Name implements Hook.
func (validation) Name() string { return "validation" }

// Before implements BeforeHook.
func (v validation) Before(_ context.Context, inv Invocation) (Decision, error) {
	return Pass(), v.schemas.Validate(inv.Spec, inv.Args)
}
