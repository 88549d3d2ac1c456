package pairing

import (
	"path"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/registry"
)

// maxGlob is how long a name or glob of a tool may be, in bytes.
const maxGlob = 192

// checkGlob refuses what is neither a name nor a glob: * and ? are the only special characters.
func checkGlob(glob string) error {
	if glob == "" || len(glob) > maxGlob || !utf8.ValidString(glob) || strings.ContainsAny(glob, "[]\\/ ,\t\r\n") {
		return registry.Errorf(registry.CodeInvalidRequest, "tools: %.80q is no name or glob of a tool.", glob)
	}
	attributes := registry.Session{Name: glob} // no invisible characters
	return attributes.ValidateAttributes()
}

func isGlob(text string) bool { return strings.ContainsAny(text, "*?") }

func matches(glob, name string) bool {
	ok, err := path.Match(glob, name)
	return ok && err == nil
}
