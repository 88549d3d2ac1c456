package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/farhand/farhand/registry/legible"
)

// maxModelName is how long a tool's name may be for OpenAI and Anthropic, in characters.
const maxModelName = 64

// foreignName begins the name of a tool that has nothing of ASCII.
const foreignName = "tool"

// ModelNames gives every name one that models accept: letters, digits, _ and -. Dots become underscores; of letters
// that are not ASCII the ASCII in them is left, and a part of a hash of the original stands for the rest, so that such
// a name is always the same. Where a name is taken, a hash tells the two apart as well. No two names come out equal.
// The names must be distinct and valid (registry.ValidToolName).
func ModelNames(names []string) map[string]string {
	shown, taken := make(map[string]string, len(names)), make(map[string]bool, len(names))
	for _, name := range names {
		if plainName(name) == name {
			shown[name], taken[name] = name, true
		}
	}
	for _, name := range names {
		if shown[name] != "" {
			continue
		}
		plain := plainName(name)
		safe := plain
		for try := int64(0); taken[safe]; try++ { // ends: every try is another name
			safe = withHash(plain, "_", name+" "+strconv.FormatInt(try, 10))
		}
		shown[name], taken[safe] = safe, true
	}
	return shown
}

// plainName returns a name that models accept. It is the name itself if they accept that.
func plainName(name string) string {
	if legible.IsASCII(name) {
		return strings.ReplaceAll(name, ".", "_")
	}
	var b strings.Builder
	for _, r := range norm.NFKD.String(name) {
		switch {
		case r == '.':
			b.WriteByte('_')
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		}
	}
	plain := strings.Trim(b.String(), "_-")
	if plain == "" {
		plain = foreignName
	}
	return withHash(plain, "_", name)
}

// withHash ends a name with a part of the hash of another text, and shortens it so that models still accept it.
func withHash(name, separator, of string) string {
	sum := sha256.Sum256([]byte(of))
	suffix := separator + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxModelName-len(suffix))] + suffix
}
