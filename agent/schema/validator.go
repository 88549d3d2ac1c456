package schema

import (
	"context"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// MaxDepth is how deep arguments may nest.
const MaxDepth = 64

const (
	// CacheBytes bounds what the schemas that are kept compiled take, in bytes, per generation of the cache, of which
	// there are two.
	CacheBytes = 32 << 20

	// maxLong bounds how many schemas are compiled, and how many long validations run, at one time, on however many
	// cores: each may take tens of megabytes.
	maxLong = 4

	// heavyWait is how long a validation waits, at most, until it may take long: it holds memory meanwhile.
	heavyWait = time.Second
)

// Validator compiles the JSON Validator of tools and keeps them compiled: once per content, however many devices
// register it. What it takes of the pod is bounded, whoever asks: the memory of compiled schemas and of decoded
// arguments, and the cores that compile, or validate at length. It is safe for concurrent use.
type Validator struct {
	compiled *cache.Cache[string, *Schema] // by source text

	texts     longTexts
	args      argsMemory
	compiling *semaphore.Weighted // one slot per core it may take
	heavy     *semaphore.Weighted // likewise, for validations that take long
}

// NewValidator returns an empty cache.
func NewValidator() *Validator {
	cores := int64(min(max(1, runtime.GOMAXPROCS(0)/2), maxLong))
	return &Validator{
		compiled: cache.New[string, *Schema](CacheBytes, 0), texts: newLongTexts(), args: newArgsMemory(),
		compiling: semaphore.NewWeighted(cores), heavy: semaphore.NewWeighted(cores),
	}
}

// Compile checks that the parameters of a normalized spec are a usable schema: it refers to nothing outside itself, its
// patterns are RE2, and it is not too large. It returns how many bytes the compiled schema takes. The error's message
// is a reason for the device.
func (s *Validator) Compile(ctx context.Context, spec registry.ToolSpec) (size int, err error) {
	compiled, err := s.get(ctx, spec)
	if err != nil {
		return 0, err
	}
	return compiled.Size(), nil
}

// Validate checks args against the parameters of spec until the deadline; zero is none. The error is an
// *registry.Error: CodeInvalidArguments with the broken rules, CodeInvalidRequest if the schema is unusable or the
// arguments would take too long, CodeTimeout or CodeCancelled if the time was up or the caller gone before it was
// known, CodeBusy if too many validations take long already.
func (s *Validator) Validate(ctx context.Context, spec registry.ToolSpec, args []byte, deadline time.Time) error {
	job := validationJob{schemas: s, ctx: ctx, deadline: deadline}
	defer job.done()
	violations, err := job.run(spec, args)
	var input InputError
	var told *registry.Error
	switch {
	case err == nil && len(violations) == 0:
		return nil
	case err == nil:
		e := registry.Errorf(registry.CodeInvalidArguments,
			"The arguments do not satisfy the parameters schema of %q.", spec.Name)
		e.Violations = violations
		return e
	case errors.As(err, &told):
		return told
	case errors.Is(err, ErrTooExpensive):
		return registry.Errorf(registry.CodeInvalidRequest,
			"args are too large, or nested too deep, to be validated against the schema of this tool.")
	case errors.As(err, &input):
		return registry.Errorf(registry.CodeInvalidRequest, "args: %v.", input)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return outOfTime(err)
	default:
		return registry.AsError(err)
	}
}

// ReserveArgs waits until the pod has memory for decoded arguments, at most until the deadline; zero is none. release
// gives it back. The error is an *registry.Error, as that of Validate.
func (s *Validator) ReserveArgs(ctx context.Context, deadline time.Time, args []byte) (release func(), err error) {
	if release, err = s.args.reserve(ctx, deadline, args); err != nil {
		return nil, outOfTime(err)
	}
	return release, nil
}

// ReadText waits until a text of n bytes may be read: only few long ones are read at a time. The caller calls done when
// it has read the text. The error is an *registry.Error, as that of Validate.
func (s *Validator) ReadText(ctx context.Context, deadline time.Time, n int) (done func(), err error) {
	if done, err = s.texts.read(ctx, deadline, n); err != nil {
		return nil, outOfTime(err)
	}
	return done, nil
}

// outOfTime says why a call was given up before its tool ran: err is that of a context, or says it already.
func outOfTime(err error) *registry.Error {
	if told := (*registry.Error)(nil); errors.As(err, &told) {
		return told
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return registry.Errorf(registry.CodeTimeout,
			"The time of the call was up before its arguments were validated. Send less, or allow more time.")
	}
	return registry.Errorf(registry.CodeCancelled, "The call was cancelled.")
}

// validationJob is one validation, with what it holds of the pod.
type validationJob struct {
	schemas  *Validator
	ctx      context.Context
	deadline time.Time
	heavy    bool // a slot of heavy is held
}

func (j *validationJob) run(spec registry.ToolSpec, args []byte) ([]registry.Violation, error) {
	compiled, err := j.compiled(spec)
	if err != nil {
		return nil, err
	}
	release, err := j.schemas.args.reserve(j.ctx, j.deadline, args)
	if err != nil {
		return nil, err
	}
	defer release()
	done, err := j.schemas.texts.read(j.ctx, j.deadline, len(args))
	if err != nil {
		return nil, err
	}
	value, err := Decode(args, MaxDepth)
	done()
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidRequest, "args must be valid JSON.")
	}
	return compiled.Validate(j.ctx, value, Work{Deadline: j.deadline, Heavy: j.becomeHeavy})
}

// compiled returns the schema of a tool, which was compiled when it was registered, here or on another pod.
func (j *validationJob) compiled(spec registry.ToolSpec) (*Schema, error) {
	if known := j.schemas.cached(spec.Parameters); known != nil {
		return known, nil
	}
	ctx, cancel := until(j.ctx, j.deadline)
	defer cancel()
	return j.schemas.get(ctx, spec)
}

func (j *validationJob) becomeHeavy() error {
	ctx, cancel := until(j.ctx, j.deadline)
	defer cancel()
	wait, stop := context.WithTimeout(ctx, heavyWait)
	defer stop()
	if err := acquire(wait, j.schemas.heavy, 1); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		e := registry.Errorf(registry.CodeBusy, "Too many calls have arguments that take long to validate. Retry after a moment.")
		e.RetryAfter = heavyWait
		return e
	}
	j.heavy = true
	return nil
}

func (j *validationJob) done() {
	if j.heavy {
		j.schemas.heavy.Release(1)
	}
}

func (s *Validator) get(ctx context.Context, spec registry.ToolSpec) (*Schema, error) {
	if known := s.cached(spec.Parameters); known != nil {
		return known, nil
	}
	if err := acquire(ctx, s.compiling, 1); err != nil {
		return nil, err
	}
	defer s.compiling.Release(1)
	if known := s.cached(spec.Parameters); known != nil { // thousands of devices with one app may come at once
		return known, nil
	}
	compiled, err := Compile(spec.Parameters)
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidRequest, "parameters: %s", err)
	}
	s.compiled.Put(string(spec.Parameters), compiled, len(spec.Parameters)+compiled.Size())
	return compiled, nil
}

func (s *Validator) cached(source []byte) *Schema {
	known, _ := s.compiled.Get(string(source))
	return known
}

// Known reports whether a schema is kept compiled, and so needs no checking.
func (s *Validator) Known(source []byte) bool { return s.cached(source) != nil }
