// Package envconf reads structs from the environment. The tags of a field are its variable (env), its default
// (envDefault) and its meaning (doc); a field that is a struct may give its variables a prefix (envPrefix). A package
// whose struct has these tags has its defaults there alone.
package envconf

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/farhand/farhand/internal/bytesize"
	"github.com/farhand/farhand/internal/days"
	"github.com/farhand/farhand/internal/secret"
)

// maxSize bounds a size in bytes.
const maxSize = 1 << 40

// Variable is a field that is read from a variable of the environment.
type Variable struct {
	Name, Default, Doc string
	Field              reflect.StructField
	Value              reflect.Value
}

// Variables returns the variables of a struct, with those of the structs in it, in the order of the fields.
func Variables(of reflect.Value, prefix string) []Variable {
	var all []Variable
	for f, value := range of.Fields() {
		if name, ok := f.Tag.Lookup("env"); ok {
			all = append(all, Variable{prefix + name, f.Tag.Get("envDefault"), f.Tag.Get("doc"), f, value})
		} else if f.Type.Kind() == reflect.Struct {
			all = append(all, Variables(value, prefix+f.Tag.Get("envPrefix"))...)
		}
	}
	return all
}

// Parse reads a struct from an environment, and its secrets also from files (Secret). The error lists all invalid
// values and files. Durations may have days; an int64 is a size in bytes, with or without a unit.
func Parse[T any](environment map[string]string, prefix string) (T, error) {
	all := Variables(reflect.ValueOf(*new(T)), prefix)
	environment, unread := readSecrets(all, environment)
	t, err := env.ParseAsWithOptions[T](env.Options{
		Prefix: prefix, Environment: environment,
		FuncMap: map[reflect.Type]env.ParserFunc{
			reflect.TypeFor[time.Duration](): func(text string) (any, error) { return days.Parse(text) },
			reflect.TypeFor[int64](): func(text string) (any, error) {
				n, err := bytesize.Parse(text)
				if n > maxSize {
					err = errors.New("too large")
				}
				return int64(n), err
			},
		},
	})
	if err != nil {
		err = explain(err, all, environment)
	}
	return t, errors.Join(unread, err)
}

// Default sets the fields of a struct that are zero to their defaults, except booleans.
func Default[T any](t *T) {
	defaults, err := Parse[T](map[string]string{}, "")
	if err != nil {
		panic(err) // a tag is wrong
	}
	of := Variables(reflect.ValueOf(defaults), "")
	for i, v := range Variables(reflect.ValueOf(t).Elem(), "") {
		if v.Value.IsZero() && v.Value.Kind() != reflect.Bool {
			v.Value.Set(of[i].Value)
		}
	}
}

// kinds describes the values of each type, with an example for variables without a default.
var kinds = map[reflect.Type]struct{ what, example string }{
	reflect.TypeFor[time.Duration](): {"a duration", "30s"},
	reflect.TypeFor[int64]():         {"a size in bytes, with or without a unit", "1MiB"},
	reflect.TypeFor[int]():           {"a whole number", "10"},
	reflect.TypeFor[float64]():       {"a number", "0.5"},
	reflect.TypeFor[bool]():          {"true or false", "true"},
	reflect.TypeFor[slog.Level]():    {"debug, info, warn or error", "info"},
}

// explain names, for each invalid value, its variable, the expected kind of value, and an example. The env library's
// own errors name Go fields and types instead. Fields of one type in one struct of settings must have different names.
func explain(err error, all []Variable, environment map[string]string) error {
	var aggregate env.AggregateError
	if !errors.As(err, &aggregate) {
		return err
	}
	var errs []error
	for _, err := range aggregate.Errors {
		parse, ok := errors.AsType[env.ParseError](err)
		i := slices.IndexFunc(all, func(v Variable) bool {
			return v.Field.Name == parse.Name && v.Field.Type == parse.Type
		})
		if kind, known := kinds[parse.Type]; ok && known && i >= 0 {
			v := all[i]
			err = fmt.Errorf("%s: %q is not %s; for example %s=%s", v.Name, environment[v.Name], kind.what, v.Name,
				cmp.Or(v.Default, kind.example))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// FileSuffix is appended to the variable of a secret, for the path of a file that has the secret.
const FileSuffix = "_FILE"

// maxSecretFile bounds the file of a secret in bytes.
const maxSecretFile = 64 << 10

// Secret returns the value of a secret's variable, or the content of the file whose path is in the variable
// name+FileSuffix, without line breaks at its end. It returns an empty text if neither is set, and fails if both are.
func Secret(environment map[string]string, name string) (string, error) {
	path := environment[name+FileSuffix]
	if path == "" {
		return environment[name], nil
	}
	if environment[name] != "" {
		return "", fmt.Errorf("%s and %s%s are both set: remove one of them", name, name, FileSuffix)
	}
	text, err := readSecret(path)
	if err != nil {
		return "", fmt.Errorf("%s%s: %w; name a readable file with the secret alone, or set %s instead",
			name, FileSuffix, err, name)
	}
	return text, nil
}

func readSecret(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: not a regular file", path) // opening a pipe could wait forever
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	text := strings.TrimRight(string(content), "\r\n")
	switch {
	case err != nil:
		return "", err
	case len(content) > maxSecretFile:
		return "", fmt.Errorf("%s: longer than 64 KiB", path)
	case text == "":
		return "", fmt.Errorf("%s: the file is empty", path)
	case strings.ContainsRune(text, 0):
		return "", fmt.Errorf("%s: contains a zero byte", path)
	}
	return text, nil
}

// readSecrets returns the environment with the secrets that are in files. The error lists all files that cannot be
// used.
func readSecrets(all []Variable, environment map[string]string) (map[string]string, error) {
	read, errs := maps.Clone(environment), []error(nil)
	for _, v := range all {
		if !v.Secret() {
			continue
		}
		text, err := Secret(environment, v.Name)
		errs = append(errs, err)
		if text != "" {
			read[v.Name] = text
		}
	}
	return read, errors.Join(errs...)
}

// Secret reports whether the value is a secret.
func (v Variable) Secret() bool { return v.Field.Type == reflect.TypeFor[secret.Text]() }
