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

// Namesakes knows what the names in it look like. The zero value is empty.
type Namesakes struct{ bySkeleton map[string]string }

// AddKnown takes in the name of an admitted tool.
func (n *Namesakes) AddKnown(t Admitted) { n.add(t.Spec.Name, t.skeletons) }

// Add takes in a name.
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

// Of returns the name that a reader may take another name for, empty if there is none. No name is one of itself.
func (n *Namesakes) Of(name string) string {
	if n == nil || len(n.bySkeleton) == 0 {
		return ""
	}
	return n.of(name, legible.Skeletons(name))
}

// of is Of for a name with these skeletons.
func (n *Namesakes) of(name string, skeletons []string) string {
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

// nameAll gives every tool its name for models: its own, made acceptable. Where that is taken by an earlier tool,
// a part of a hash of name and source tells the two apart, so that a tool keeps its name as long as the other is there.
// Tools of other sessions never take a name from the tools that are nearer.
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

// freeName returns name, or one made of it that is not taken.
func freeName(name string, t boundTool, taken map[string]bool) string {
	free := name
	for try := 0; taken[free]; try++ { // ends: every try is another name
		free = withHash(name, hashSeparator, t.Source+" "+t.Spec.Name+" "+strconv.Itoa(try))
	}
	return free
}
