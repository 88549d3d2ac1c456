package schema

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// MaxDepth is the maximum nesting depth of arguments.
const MaxDepth = 64

// CacheBytes is the maximum size of the cached compiled schemas, in bytes, per generation of the cache; it has two.
const CacheBytes = 32 << 20

const (
	checkedBytes = 4 << 20 // of the cache of checked schemas, per generation
	checkedSize  = 100     // of one entry, approximately
)

// Validator checks the JSON Schemas of tools when they are registered, and compiles them when the tools are called:
// most tools are never called on the pod of their device. Each is done once per content. Each caller has a share of the
// memory for compiled schemas and decoded arguments, and of the cores for reading, checking, compiling and long
// validations. Validator is safe for concurrent use.
type Validator struct {
	compiled *cache.Cache[string, *Schema]        // by source text
	checked  *cache.Cache[[sha256.Size]byte, int] // size when compiled, in bytes, by digest of the source text
	capacity
}

// NewValidator returns a Validator with empty caches.
func NewValidator() *Validator {
	return &Validator{
		compiled: cache.New[string, *Schema](CacheBytes, 0),
		checked:  cache.New[[sha256.Size]byte, int](checkedBytes, 0), capacity: newCapacity(),
	}
}

// Compile checks that the parameters and the output schema of a normalized spec are usable. They must not refer to
// other documents, their patterns must be RE2, and they must not be too large. Compile returns the size of the compiled
// schemas in bytes. The error's message is for the device.
func (s *Validator) Compile(ctx context.Context, by share.Owner, spec registry.ToolSpec) (size int, err error) {
	size, err = s.check(ctx, by, "parameters", spec.Parameters)
	if err != nil || len(spec.OutputSchema) == 0 {
		return size, err
	}
	output, err := s.check(ctx, by, registry.FieldOutputSchema, spec.OutputSchema)
	return size + output, err
}

// check checks the schema in a field of a definition. It returns the size of the compiled schema in bytes.
func (s *Validator) check(ctx context.Context, by share.Owner, field string, source []byte) (size int, err error) {
	digest := sha256.Sum256(source)
	if size, known := s.checked.Get(digest); known {
		return size, nil
	}
	turn, err := acquire(ctx, by, time.Time{}, s.checking, 1)
	if err != nil {
		return 0, err
	}
	defer turn.Release()
	if size, known := s.checked.Get(digest); known { // thousands of devices with one app may register together
		return size, nil
	}
	compiled, err := compileOf(field, source)
	if err != nil {
		return 0, err
	}
	s.checked.Put(digest, compiled.Size(), checkedSize)
	return compiled.Size(), nil
}

func compileOf(field string, source []byte) (*Schema, error) {
	compiled, err := Compile(source)
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidRequest, "%s: %s", field, err)
	}
	return compiled, nil
}

// Validate checks the args of a caller against the parameters of spec, until the deadline; zero means none. The error
// is an *registry.Error: CodeInvalidArguments with the broken rules; CodeInvalidRequest for an unusable schema or too
// expensive args; CodeTimeout or CodeCancelled; CodeBusy if too many long validations are running.
func (s *Validator) Validate(
	ctx context.Context, by share.Owner, spec registry.ToolSpec, args []byte, deadline time.Time,
) error {
	violations, err := s.violations(ctx, by, spec, args, deadline)
	var input InputError
	var own *registry.Error
	switch {
	case err == nil && len(violations) == 0:
		return nil
	case err == nil:
		e := registry.Errorf(registry.CodeInvalidArguments,
			"The arguments do not satisfy the parameters schema of %q.", spec.Name)
		e.Violations = violations
		return e
	case errors.As(err, &own):
		return own
	case errors.Is(err, ErrTooExpensive):
		return registry.Errorf(registry.CodeInvalidRequest,
			"args are too large or nested too deeply to validate against the schema of this tool.")
	case errors.As(err, &input):
		return registry.Errorf(registry.CodeInvalidRequest, "args: %v.", input)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return outOfTime(err)
	default:
		return registry.AsError(err)
	}
}

// outOfTime returns the error of a call that ended before its tool ran, by the error of a context.
func outOfTime(err error) *registry.Error {
	if own := (*registry.Error)(nil); errors.As(err, &own) {
		return own
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return registry.Errorf(registry.CodeTimeout,
			"The call timed out before its arguments were validated. Send less, or allow more time.")
	}
	return registry.Cancelled()
}

// violations returns the first rules that args break. Its errors are those of Schema.Validate, or *registry.Errors.
func (s *Validator) violations(
	ctx context.Context, by share.Owner, spec registry.ToolSpec, args []byte, deadline time.Time,
) ([]registry.Violation, error) {
	// The schema was checked when it was registered, on this pod or another one.
	compiled, err := s.get(ctx, by, deadline, "parameters", spec.Parameters)
	if err != nil {
		return nil, err
	}
	release, err := s.ReserveArgs(ctx, by, deadline, args)
	if err != nil {
		return nil, err
	}
	defer release()
	done, err := s.ReadText(ctx, by, deadline, len(args))
	if err != nil {
		return nil, err
	}
	value, err := Decode(args, MaxDepth)
	done()
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidRequest, "args must be valid JSON.")
	}
	return apply(ctx, compiled, value, deadline, func() (*share.Grant, error) {
		return acquireWithin(ctx, by, deadline, s.longChecks, longCheckWait,
			"Too many calls have arguments that take long to validate. Retry in a moment.")
	})
}

// apply validates a value. If that takes long, it calls wait for permission first.
func apply(
	ctx context.Context, compiled *Schema, value any, deadline time.Time, wait func() (*share.Grant, error),
) ([]registry.Violation, error) {
	var turn *share.Grant
	defer func() {
		if turn != nil {
			turn.Release()
		}
	}()
	return compiled.Validate(ctx, value, Work{Deadline: deadline, BeforeLong: func() (err error) {
		turn, err = wait()
		return err
	}})
}

// get returns the compiled schema of a field of a definition. The deadline limits the wait for a core; zero means none.
func (s *Validator) get(
	ctx context.Context, by share.Owner, deadline time.Time, field string, source []byte,
) (*Schema, error) {
	text := string(source)
	if known, ok := s.compiled.Get(text); ok {
		return known, nil
	}
	turn, err := acquire(ctx, by, deadline, s.compiling, 1)
	if err != nil {
		return nil, err
	}
	defer turn.Release()
	if known, ok := s.compiled.Get(text); ok { // many calls may arrive together
		return known, nil
	}
	compiled, err := compileOf(field, source)
	if err != nil {
		return nil, err
	}
	s.compiled.Put(text, compiled, len(source)+compiled.Size())
	return compiled, nil
}

// Known reports whether a schema is in the cache of checked schemas.
func (s *Validator) Known(source []byte) bool {
	_, known := s.checked.Get(sha256.Sum256(source))
	return known
}

// evaluated records which parts of an object or array were evaluated by the schemas applied to it. It is recorded only
// inside unevaluatedProperties and unevaluatedItems, which apply to the other parts.
type evaluated struct {
	all   bool                // all fields and items
	names map[string]struct{} // of fields
	first int                 // number of leading items
	items []uint64            // one bit per item; bits below first do not matter
}

func (e *evaluated) field(name string) {
	if e == nil || e.all {
		return
	}
	if e.names == nil {
		e.names = make(map[string]struct{})
	}
	e.names[name] = struct{}{}
}

func (e *evaluated) item(i int) {
	if e == nil || e.all || i < e.first {
		return
	}
	for len(e.items) <= i/64 {
		e.items = append(e.items, 0)
	}
	e.items[i/64] |= 1 << (i % 64)
}

func (e *evaluated) hasItem(i int) bool {
	return i < e.first || i/64 < len(e.items) && e.items[i/64]&(1<<(i%64)) != 0
}

func (e *evaluated) upTo(items int) {
	if e != nil {
		e.first = max(e.first, items)
	}
}

func (e *evaluated) everything() {
	if e != nil {
		*e = evaluated{all: true}
	}
}

// The work of recording a field, which takes memory, and an item.
const (
	fieldCost = 32
	itemCost  = 1
)

// merge adds the parts that one branch evaluated.
func (w *walk) merge(into, from *evaluated) {
	switch {
	case into.all:
	case from.all:
		into.everything()
	case w.spend(fieldCost*len(from.names) + itemCost*len(from.items)):
		into.upTo(from.first)
		for name := range from.names {
			into.field(name)
		}
		for i, bits := range from.items {
			if i == len(into.items) {
				into.items = append(into.items, 0)
			}
			into.items[i] |= bits
		}
	}
}

// unevaluated applies the schemas for parts that were not evaluated.
func (w *walk) unevaluated(s *jsonschema.Schema, v any, own *evaluated) bool {
	ok := true
	switch v := v.(type) {
	case map[string]any:
		if s.UnevaluatedProperties == nil {
			return true
		}
		for name, value := range v {
			if own.all || w.stopped() || !ok && !w.explain {
				break
			}
			if _, known := own.names[name]; !known {
				ok = w.part(s.UnevaluatedProperties, value, field(name)) && ok
			}
		}
		own.everything()
	case []any:
		if s.UnevaluatedItems == nil {
			return true
		}
		for i := own.first; i < len(v); i++ {
			if own.all || w.stopped() || !ok && !w.explain {
				break
			}
			if !own.hasItem(i) {
				ok = w.part(s.UnevaluatedItems, v[i], item(i)) && ok
			}
		}
		own.everything()
	}
	return ok
}
