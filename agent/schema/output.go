package schema

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// OutputTime is the maximum duration of the check of one answer.
const OutputTime = time.Second

// CheckOutput checks the answer of a tenant's tool against its output schema, for at most OutputTime. It checks
// structured output; text alone is checked as a JSON string. An answer that is too large or too deep has a violation
// that says so. Without violations, the answer is valid or the pod was too busy to check it. Failed results are not
// checked.
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
		return []registry.Violation{{Message: "the answer was not checked: " + input.Error()}}
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
	cutMark         = "…"
)

// report adds a violation at the current place. It ends the walk at the maximum number of violations. It returns false.
func (w *walk) report(k jsonschema.ErrorKind) bool {
	if w.stopped() {
		return false
	}
	text := k.LocalizedString(message.NewPrinter(language.English))
	w.found = append(w.found, registry.Violation{Pointer: w.pointer(), Message: cutTo(text, maxMessage)})
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
			return cutTo(b.String(), maxPointerShown)
		}
	}
	return b.String()
}

// cut truncates a text for display.
func cut(s string) string { return cutTo(s, maxShown) }

func cutTo(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len(cutMark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cutMark
}

// shown returns a value truncated for a violation.
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

// shownNames truncates the names in a violation.
func shownNames(names []string) []string {
	for i, name := range names {
		names[i] = cut(name)
	}
	return names
}

// endless is the violation of a schema that refers to itself without end.
type endless struct{}

// KeywordPath implements jsonschema.ErrorKind.
func (endless) KeywordPath() []string { return []string{"$ref"} }

// LocalizedString implements jsonschema.ErrorKind.
func (endless) LocalizedString(*message.Printer) string {
	return "the schema refers to itself without end"
}
