package envconf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"strings"

	"github.com/farhand/farhand/internal/secret"
)

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
