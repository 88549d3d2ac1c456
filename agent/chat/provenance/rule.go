// Package provenance finds where the values of a model's tool call come from. Sources are the person who talks to the
// model, the system prompt, and values that a person approved. All other values come only from outside, such as a tool
// result, or are new.
//
//	texts, each with its source ─▶ Conversation ─▶ Origins of the arguments of a call ─▶ Suspects
//
// The package does no input or output. Its work is bounded: values beyond the limits are not examined, count as coming
// from outside, and are reported as cut. Start reading at conversation.go and rule.go; address.go defines addresses.
package provenance

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"golang.org/x/text/unicode/norm"

	"github.com/farhand/farhand/registry/textsafe"
)

// Effect is the effect of a tool.
type Effect string

// The effects. Unknown tools count as Changes.
const (
	Reads    Effect = "reads"
	Changes  Effect = "changes"
	Destroys Effect = "destroys"
)

// Suspects returns the values that a person should approve before the call, destinations first. It returns none if the
// call is as harmless as the person's own words. It implements the default rule:
//
// Once a conversation has read text from outside, a call with an effect asks for every address in its arguments that no
// trusted source contains. A call that only reads asks for such URLs only, and for what was not examined for them. A
// call with an effect also asks for every name, number and date that occurs only in running text from outside. A value
// that was a separate field of a result counts as a reference to a record. A call that destroys something asks unless
// all its values come from trusted sources. Weak values do not count there, because they can occur anywhere. The value
// of a destination must come from a trusted source, and must be a name that is not weak, not a text.
func (f Facts) Suspects(e Effect) []Argument {
	if !f.Tainted {
		return nil
	}
	var suspects []Argument
	vouched := false
	for _, a := range f.Arguments {
		switch {
		case a.vouches(e):
			vouched = true
		case a.Destination || a.suspicious(e):
			suspects = append(suspects, a)
		}
	}
	if e == Destroys && !vouched && len(suspects) == 0 {
		return []Argument{{Kind: KindName, Source: Model}} // no value says what is destroyed, and for whom
	}
	slices.SortStableFunc(suspects, func(a, b Argument) int { return a.rank() - b.rank() })
	return suspects
}

// rank orders values by importance for a person: destinations first.
func (a Argument) rank() int {
	switch {
	case a.Destination:
		return 0
	case a.Kind == KindAddress || a.Kind == KindURL:
		return 1
	default:
		return 2
	}
}

// vouches reports whether a trusted source contains a value, and not just by chance.
func (a Argument) vouches(e Effect) bool {
	switch {
	case !a.Source.trusted():
		return false
	case a.Destination:
		return !a.Weak && a.Kind != KindText
	default:
		return e != Destroys || !a.Weak
	}
}

// suspicious reports whether a value that no trusted source vouches for needs approval.
func (a Argument) suspicious(e Effect) bool {
	switch {
	case a.Kind == KindURL || a.Kind == KindCut && !a.Part:
		return true
	case e == Reads:
		return false
	case a.Kind == KindAddress || a.Kind == KindCut:
		return true
	case a.Kind == KindText:
		return false
	case e == Destroys:
		return true
	default:
		return a.Source == Outside && !a.Field && !a.Weak
	}
}

// fold returns text for comparisons: in plain form and lower case, without invisible characters.
func fold(s string) string {
	if textsafe.IsASCII(s) {
		return strings.ToLower(s)
	}
	return strings.ToLower(norm.NFKC.String(strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Cf, r), unicode.Is(unicode.Variation_Selector, r), r == '\u034f':
			return -1 // host names ignore them
		case r >= firstPhrase && r <= lastPhrase:
			return ' '
		case r == '。' || r == '｡': // separates the labels of a host name, like a dot
			return '.'
		}
		return r
	}, s)))
}

// The characters in this range are whole phrases, no values. Folding would make them up to 18 times as long.
const firstPhrase, lastPhrase = '\ufdf0', '\ufdff'

// token is a run of letters and digits in folded text. In scripts without spaces, each character is a token.
type token struct {
	hash       uint64
	start, end int32
	joined     bool // only joiners stand between it and the previous token
	digits     bool // it has no letter
}

// joiners connect the letters before and after them to one word.
const joiners = ".-:/@+'&=%#~?\\"

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// appendTokens appends at most n tokens of folded text, and reports whether there are more.
func appendTokens(tokens []token, s string, n int) (all []token, more bool) {
	joined := false
	for i := 0; i < len(s); {
		r, size := runeAt(s, i)
		if !isWord(r) {
			joined = joined && strings.IndexByte(joiners, s[i]) >= 0
			i += size
			continue
		}
		if len(tokens) >= n {
			return tokens, true
		}
		t := token{hash: fnvOffset, start: int32(i), joined: joined, digits: true}
		alone := isAlone(r)
		for {
			t.hash = (t.hash ^ uint64(r)) * fnvPrime
			t.digits = t.digits && r >= '0' && r <= '9'
			i += size
			if i >= len(s) || alone {
				break
			}
			if r, size = runeAt(s, i); !isWord(r) || isAlone(r) {
				break
			}
		}
		t.end = int32(i)
		tokens = append(tokens, t)
		joined = !alone
	}
	return tokens, false
}

func runeAt(s string, i int) (rune, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return rune(b), 1
	}
	return utf8.DecodeRuneInString(s[i:])
}

// text returns the text of a token of s.
func (t token) text(s string) string { return s[t.start:t.end] }

func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r >= 'A' && r <= 'Z'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r)
}

// isAlone reports whether a character is a token by itself.
func isAlone(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao,
		unicode.Khmer, unicode.Myanmar)
}

// tokensOf returns at most n tokens of folded text, and whether there are more.
func tokensOf(s string, n int) (tokens []token, more bool) {
	return appendTokens(make([]token, 0, n), s, n)
}

// Limits of the text that is parsed as YAML, in bytes. Text beyond them has no fields.
const (
	maxYAML    = 64 << 10 // of one text
	maxAllYAML = 8 * maxYAML
)

// addYAML indexes the fields of a text that is one list or record in YAML, as many tools and Python's notation print
// results. The text is also indexed as running text.
func (r *reader) addYAML(x *index, of origin, text string) {
	if len(text) > min(maxYAML, maxAllYAML-x.yaml) || !looksLikeYAML(text) || json.Valid([]byte(text)) {
		return
	}
	x.yaml += len(text)
	var doc, more yaml.Node
	d := yaml.NewDecoder(strings.NewReader(text))
	if d.Decode(&doc) != nil || !errors.Is(d.Decode(&more), io.EOF) || len(doc.Content) != 1 {
		return
	}
	top := doc.Content[0]
	if top.Kind == yaml.MappingNode && len(top.Content) == 2 && top.Style&yaml.FlowStyle == 0 {
		return // a sentence with a colon
	}
	r.addNode(x, of, top)
}

// looksLikeYAML reports whether the first line of a text looks like a list or a record.
func looksLikeYAML(text string) bool {
	line, _, _ := strings.Cut(strings.TrimLeft(text, " \t\r\n"), "\n")
	return strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "{") || strings.HasPrefix(line, "[") ||
		strings.HasSuffix(line, ":") || strings.Contains(line, ": ")
}

// addNode indexes the scalars in a list or a record.
func (r *reader) addNode(x *index, of origin, n *yaml.Node) {
	for i, child := range n.Content {
		switch isName := n.Kind == yaml.MappingNode && i%2 == 0; {
		case child.Kind != yaml.ScalarNode:
			r.addNode(x, of, child)
		case !isName:
			r.addField(x, field{origin: of}, child.Value)
		}
	}
}
