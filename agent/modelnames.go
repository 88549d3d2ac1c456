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

// maxModelName is the maximum length of a tool's name for OpenAI and Anthropic, in characters.
const maxModelName = 64

// foreignName replaces the ASCII part of a tool name that has none.
const foreignName = "tool"

// ModelNames maps every name to a name that models accept: letters, digits, _ and -. Dots become underscores. Other
// characters are reduced to their ASCII parts, and a part of a hash of the original is appended, so the result is
// always the same. If a name is taken, a hash is also appended. All results are distinct. The names must be distinct
// and valid (registry.ValidToolName).
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
		for try := int64(0); taken[safe]; try++ { // terminates: every try is another name
			safe = withHash(plain, "_", name+" "+strconv.FormatInt(try, 10))
		}
		shown[name], taken[safe] = safe, true
	}
	return shown
}

// plainName returns a name that models accept: the name itself if possible.
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

// withHash appends a part of the hash of another text to a name, and shortens the name so that models still accept it.
func withHash(name, separator, of string) string {
	sum := sha256.Sum256([]byte(of))
	suffix := separator + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxModelName-len(suffix))] + suffix
}

// Namesakes finds names that look like others. The zero value is empty.
type Namesakes struct{ bySkeleton map[string]string }

// AddKnown adds the name of an admitted tool.
func (n *Namesakes) AddKnown(t Admitted) { n.add(t.Spec.Name, t.skeletons) }

// Add adds a name.
func (n *Namesakes) Add(name string) { n.add(name, legible.Skeletons(name)) }

func (n *Namesakes) add(name string, skeletons []string) {
	if n.bySkeleton == nil {
		n.bySkeleton = make(map[string]string)
	}
	for _, s := range skeletons {
		if _, known := n.bySkeleton[s]; !known {
			n.bySkeleton[s] = name
		}
	}
}

// Find returns a known name that a reader could confuse with name. It is empty if there is none. A name is never
// confused with itself.
func (n *Namesakes) Find(name string) string {
	if n == nil || len(n.bySkeleton) == 0 {
		return ""
	}
	return n.find(name, legible.Skeletons(name))
}

// find is Find for a name with these skeletons.
func (n *Namesakes) find(name string, skeletons []string) string {
	if n == nil {
		return ""
	}
	for _, s := range skeletons {
		if known := n.bySkeleton[s]; known != "" && known != name {
			return known
		}
	}
	return ""
}

// nameAll sets the ModelName of every tool: its own name, made acceptable. If an earlier tool has that name, a part of
// a hash of name and source is appended. So a tool keeps its name as long as the other is there. Tools of other
// sessions never take a name from nearer tools.
func nameAll(near, others []boundTool) []boundTool {
	distinct, names := make(map[string]bool), make([]string, len(near))
	for i, t := range near {
		names[i] = freeName(t.Spec.Name, t, distinct)
		distinct[names[i]] = true
	}
	safe, taken := ModelNames(names), make(map[string]bool)
	for i := range near {
		near[i].ModelName = safe[names[i]]
		taken[near[i].ModelName] = true
	}
	for i, t := range others {
		others[i].ModelName = freeName(plainName(t.Spec.Name), t, taken)
		taken[others[i].ModelName] = true
	}
	return append(near, others...)
}

// freeName returns name, or a name derived from it that is not taken.
func freeName(name string, t boundTool, taken map[string]bool) string {
	free := name
	for try := 0; taken[free]; try++ { // terminates: every try is another name
		free = withHash(name, hashSeparator, t.Source+" "+t.Spec.Name+" "+strconv.Itoa(try))
	}
	return free
}
