package farhand

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/caarlos0/env/v11"
)

// kindsOfValues says of each type of a setting what is expected, and gives an example for where there is no default.
var kindsOfValues = map[reflect.Type]struct{ what, example string }{
	reflect.TypeFor[time.Duration](): {"a duration", "30s"},
	reflect.TypeFor[ByteSize]():      {"a size in bytes, with or without a unit", "1MiB"},
	reflect.TypeFor[int]():           {"a whole number", "10"},
	reflect.TypeFor[float64]():       {"a number", "0.5"},
	reflect.TypeFor[bool]():          {"true or false", "true"},
	reflect.TypeFor[slog.Level]():    {"debug, info, warn or error", "info"},
}

// explainParseErrors says of each value that could not be read which variable has it, what is expected there, and an
// example. The library speaks of Go's fields and types.
func explainParseErrors(err error, environ map[string]string) error {
	var aggregate env.AggregateError
	if !errors.As(err, &aggregate) {
		return err
	}
	var errs []error
	for _, e := range aggregate.Errors {
		var parse env.ParseError
		if !errors.As(e, &parse) {
			errs = append(errs, e)
			continue
		}
		field, ok := reflect.TypeFor[Config]().FieldByName(parse.Name)
		kind, known := kindsOfValues[parse.Type]
		if !ok || !known {
			errs = append(errs, e)
			continue
		}
		name := EnvPrefix + field.Tag.Get("env")
		example := cmp.Or(field.Tag.Get("envDefault"), kind.example)
		errs = append(errs,
			fmt.Errorf("%s: %q is not %s; for example %s=%s", name, environ[name], kind.what, name, example))
	}
	return errors.Join(errs...)
}
