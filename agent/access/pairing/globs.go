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

// covers reports whether every name that a glob matches is matched by one of the globs of a credential, separated by
// spaces; none is no restriction. It may say no to what is covered in a roundabout way.
func covers(scopes, glob string) bool {
	if scopes == "" {
		return true
	}
	for scope := range strings.FieldsSeq(scopes) {
		if scope == glob {
			return true
		}
		clear := !strings.Contains(glob, "*") || !strings.Contains(scope, "?")
		if clear && !strings.Contains(scope, unlikely) &&
			matches(scope, strings.NewReplacer("*", unlikely, "?", unlikely).Replace(glob)) {
			return true
		}
	}
	return false
}

// unlikely is a character that no glob has: only a wildcard matches it.
const unlikely = "\x01"

// checkScope refuses a tool that the approver's own credential is not good for.
func checkScope(by Approver, glob string) error {
	if covers(by.Tools, glob) {
		return nil
	}
	return registry.Errorf(registry.CodeForbidden, "tools: your credential is restricted to %q, so it cannot let a "+
		"device offer %q. Name the tools it may offer, or have another approver decide.", by.Tools, glob)
}
