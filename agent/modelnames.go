package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// maxModelName is how long a tool's name may be for OpenAI and Anthropic, in characters.
const maxModelName = 64

// ModelNames gives every name one that models accept: letters, digits, _ and -. Dots become underscores; where that
// name is taken, a part of a hash of the original tells the two apart. No two names come out equal. The names must be
// distinct and valid (registry.ValidToolName).
func ModelNames(names []string) map[string]string {
	shown, taken := make(map[string]string, len(names)), make(map[string]bool, len(names))
	for _, name := range names {
		if !strings.Contains(name, ".") {
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

func plainName(name string) string { return strings.ReplaceAll(name, ".", "_") }

// withHash ends a name with a part of the hash of text, and shortens it so that models still accept it.
func withHash(name, separator, text string) string {
	sum := sha256.Sum256([]byte(text))
	suffix := separator + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxModelName-len(suffix))] + suffix
}
